"""What the public functions do, step by step: resolve, capture, diagnose, record, verify."""
