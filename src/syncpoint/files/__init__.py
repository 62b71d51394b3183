"""Careful access to files: read without trust, locked, checked, written whole or not at all."""
