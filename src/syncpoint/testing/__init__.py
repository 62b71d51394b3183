"""Assertions for tests of models."""
