"""Other tools' files as runs, and runs as other tools' files. One file per format."""
