"""Inputs of a model: where they come from, in which order it takes them, and others like them."""
