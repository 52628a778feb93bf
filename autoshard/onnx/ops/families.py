"""All families of ops; importing them fills the table."""


def load() -> None:
    """Import every family once."""
    from autoshard.onnx.ops import (  # noqa: F401
        convolution,
        elementwise,
        indexing,
        linalg,
        normalization,
        reductions,
        shapes,
        types,
    )
