"""PyTorch models as torch.compile executes them."""
