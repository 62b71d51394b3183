"""Run a command in a child process and tell how it ended. Only the standard library is imported."""
