"""All families of ops; importing them fills the table, in which the mapping of an op is looked up."""

from autoshard.onnx.ops.registry import TABLE, Mapped, full_name, normal


def load() -> None:
    """Import every family once."""
    from autoshard.onnx.ops import (  # noqa: F401
        control,
        convolution,
        elementwise,
        indexing,
        linalg,
        needing_values,
        ngrams,
        normalization,
        quantization,
        recurrent,
        reductions,
        regions,
        sampling,
        shapes,
        signal,
        training,
        trees,
        types,
    )


def find(domain: str, name: str, version: int) -> Mapped | None:
    """The mapping that holds at an opset version; None where there is none."""
    load()
    fitting = [m for m in TABLE.get((normal(domain), name), ()) if m.since <= version]
    return fitting[-1] if fitting else None


def mapped_ops() -> tuple[str, ...]:
    """The names of all ops with a mapping of their own, sorted."""
    load()
    return tuple(sorted(full_name(domain, name) for domain, name in TABLE))
