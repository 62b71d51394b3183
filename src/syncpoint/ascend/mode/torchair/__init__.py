"""The mode `torchair`: compare dumps of TorchAir."""
