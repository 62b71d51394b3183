"""The numbers of one pair: the native kernel, the catalogue, limits and verdicts."""
