"""Comparison -> findings: why the two runs differ, and what to do about it."""
