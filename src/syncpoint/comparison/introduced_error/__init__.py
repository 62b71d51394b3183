"""Introduced error: the error that an op itself adds to the error of its inputs."""
