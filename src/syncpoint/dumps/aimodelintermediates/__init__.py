"""Apple's `.aimodelintermediates`: the values of a PyTorch reference run, for Core AI's tools."""
