"""What every ONNX op computes, in JAX: a table of small functions, by family."""
