"""Sync points -> measured comparison: engine, introduced error, the result and its table."""
