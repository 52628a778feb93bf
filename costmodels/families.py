"""Families of element types: one rate of the matrix unit for each."""

from typing import Final

# Parts of dtype names and their families of matmul rates, and the family to use where a machine has no rate for one.
_FAMILIES: Final = (
    ("float8", "fp8"), ("float4", "fp4"), ("bfloat16", "bf16"), ("float16", "fp16"), ("float32_highest", "f32_highest"),
    ("float32_high", "f32_high"), ("float32", "f32"),
)  # fmt: skip
FALLBACK: Final = {
    "fp4": "fp8",
    "fp8": "bf16",
    "int4": "int8",
    "int8": "bf16",
    "bf16": "fp16",
    "fp16": "f32",
    "f32": "vector",
    "f32_high": "f32",
    "f32_highest": "f32_high",
}
KNOWN_RATES: Final = frozenset({*FALLBACK, "f64"})


def family_of(dtype: str) -> str:
    """The family of matmul rates that a dtype (numpy's or ml_dtypes' name) belongs to; ``vector`` if to none.

    ``float32_high`` and ``float32_highest`` are float32 in matmuls that ask for these precisions of JAX.
    """
    if dtype in KNOWN_RATES:
        return dtype
    for prefix, family in _FAMILIES:
        if dtype.startswith(prefix):
            return family
    if dtype in ("int8", "uint8", "int4", "uint4", "int2", "uint2", "bool"):
        return "int8" if dtype in ("int8", "uint8", "bool") else "int4"
    return {"complex64": "f32", "float64": "f64", "complex128": "f64"}.get(dtype, "vector")
