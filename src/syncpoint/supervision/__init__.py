"""Run a command in a child process and report how it ended. Imports only the standard library."""
