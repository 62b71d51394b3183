"""Builders of architectures, one file for each package they come from."""
