"""The steps of the public functions: resolve, capture, compare, diagnose, record, verify."""
