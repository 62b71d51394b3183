"""Known wrong variants of ops: one family of variants per file."""
