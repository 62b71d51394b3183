"""Core AI assets as the Core AI runtime executes them."""
