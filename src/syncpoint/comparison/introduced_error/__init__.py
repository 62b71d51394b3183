"""Introduced error: what an op itself added to the error that it was given."""
