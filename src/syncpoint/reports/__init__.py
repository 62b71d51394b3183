"""Comparison -> terminal, CSV, JSON."""
