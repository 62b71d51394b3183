"""How the weights of the target differ from those of the reference."""
