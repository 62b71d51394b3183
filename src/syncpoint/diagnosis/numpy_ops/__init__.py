"""Ops in float64 with NumPy alone, read from what a run recorded of them; one family a file."""
