"""ONNX in QDQ form, run by ONNX Runtime."""
