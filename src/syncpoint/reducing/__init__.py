"""Reduce a run or a dump, also while it is being written, to statistics, digests or extrema."""
