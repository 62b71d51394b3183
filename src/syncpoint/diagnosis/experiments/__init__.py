"""Experiments: ops computed again on chosen values, to prove or rule out an explanation."""
