"""The comparison session over HTTP, serving the built page."""
