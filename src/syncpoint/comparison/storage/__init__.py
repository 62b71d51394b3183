"""A comparison on disk: written, checked, read, and resumed."""
