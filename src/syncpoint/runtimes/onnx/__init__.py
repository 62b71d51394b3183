"""ONNX models as ONNX Runtime executes them."""
