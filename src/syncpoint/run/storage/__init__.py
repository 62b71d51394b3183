"""A run on disk: its folder, journal, tables and shards, written and read."""
