"""ONNX models: checked, completed, planned, run, and annotated with plans."""
