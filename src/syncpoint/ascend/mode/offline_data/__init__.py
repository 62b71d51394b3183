"""Comparing the dumps of an Ascend device on disk, as its users ask for it: `-m offline_data`."""
