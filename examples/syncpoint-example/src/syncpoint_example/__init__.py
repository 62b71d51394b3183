"""Plugins for Syncpoint, one a file."""
