"""Reads other tools' files as runs, and writes runs as other tools' files. One file per format."""
