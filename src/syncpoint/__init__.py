"""Syncpoint: where, by how much and why two executions of the same model disagree."""

__version__ = "0.1.0"
