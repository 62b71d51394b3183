"""Comparing the dumps of TorchAir, as its users ask for it: `--mode torchair`."""
