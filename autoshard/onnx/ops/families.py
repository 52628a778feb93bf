"""All families of ops; importing them fills the table."""


def load() -> None:
    """Import every family once."""
    from autoshard.onnx.ops import (  # noqa: F401
        control,
        convolution,
        elementwise,
        indexing,
        linalg,
        needing_values,
        normalization,
        quantization,
        recurrent,
        reductions,
        sampling,
        shapes,
        signal,
        training,
        types,
    )
