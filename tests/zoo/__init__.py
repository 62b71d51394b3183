"""Faults planted on purpose, to measure how often the diagnosis names the right one."""
