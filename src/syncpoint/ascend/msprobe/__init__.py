"""Dumps of msProbe's PrecisionDebugger for PyTorch: dump.json, stack.json, construct.json and the
tensors beside them, read as runs; and that tool's own table of two of them."""
