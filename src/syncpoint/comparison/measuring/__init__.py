"""Measure pairs of tensors: by their values, by digests or by statistics, without masked positions,
and where the worst slice is."""
