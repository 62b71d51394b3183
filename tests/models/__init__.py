"""Small nets that many tests share: seeded, in eval mode, defined at the top of real files.

Each file has `make_*()` and `*_inputs()`; the latter gives the positional arguments, or the
positional and the keyword arguments.
"""
