"""LiteRT: .tflite files written with its own schema, and their runtime."""
