"""PyTorch models op by op, as eager mode computes them."""
