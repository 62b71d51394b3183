"""Careful access to files: untrusted reads, locks, checksums, atomic writes."""
