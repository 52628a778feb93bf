"""FLOP of convolutions in compiled programs; padding and the zeros of dilation do no work."""

import re
from typing import Final

import numpy as np

from autoshard.simulation.scheduled import Array, Instruction

DTYPES: Final = {"bf16": "bfloat16", "f32": "float32", "f16": "float16", "s8": "int8", "u8": "uint8", "f64": "float64"}
"""Element types of HLO, as the cost models name them."""


def convolution_flop(lhs: Array, rhs: Array, out: Array, instruction: Instruction) -> float:
    """FLOP of the convolution of an input with a kernel, by the window and the labels of the instruction."""
    labels = instruction.attribute("dim_labels") or ""
    left, _, rest = labels.partition("_")
    kernel, _, result = rest.partition("->")
    window = _window(instruction.attribute("window") or "")
    pairs = 1.0
    for k in range(sum(c.isdigit() for c in kernel)):
        char = str(k)
        pairs *= _taps(
            lhs.shape[left.index(char)], rhs.shape[kernel.index(char)], out.shape[result.index(char)], window, k
        )
    batch, features = out.shape[result.index("b")], out.shape[result.index("f")]
    return 2.0 * pairs * batch * features * rhs.shape[kernel.index("i")]


def _window(text: str) -> dict[str, list[str]]:
    """``{size=2x1 pad=0_0x1_1}`` -> its fields, one entry for each dimension."""
    return {k: v.split("x") for k, v in re.findall(r"(\w+)=([\w\-x]+)", text)}


def _taps(size: int, taps: int, results: int, window: dict[str, list[str]], k: int) -> float:
    """Pairs of a result and a tap along one dimension that meet an element of the operand, not a zero.

    Result *o* and tap *t* meet position ``o * stride + t * far - low`` of the operand with zeros between its elements.
    """

    def number(field: str, default: int) -> int:
        return int(window[field][k]) if k < len(window.get(field, ())) else default

    stride, near, far = number("stride", 1), number("lhs_dilate", 1), number("rhs_dilate", 1)
    low = int(window["pad"][k].split("_")[0]) if k < len(window.get("pad", ())) else 0
    at = np.arange(results)[:, None] * stride + np.arange(taps) * far - low
    return float(((at >= 0) & (at <= (size - 1) * near) & (at % near == 0)).sum())
