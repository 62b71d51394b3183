"""How faults are planted: in programs, in ONNX graphs, in recorded runs, in what goes in."""
