"""Files of ONNX, and every other chain of its operators, as layers."""
