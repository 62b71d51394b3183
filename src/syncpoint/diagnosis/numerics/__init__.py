"""Precision, range, quantization and accumulation: how arithmetic explains an error."""
