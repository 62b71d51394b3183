"""Runs a PyTorch program node by node into the folder that Core AI's tools read as a reference."""
