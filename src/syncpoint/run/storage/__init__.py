"""A run on disk: write and read its folder, journal, tables and shards."""
