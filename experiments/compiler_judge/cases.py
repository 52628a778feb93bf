"""The cases: a program of `programs` on a slice each, with its named strategies."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """A program of `programs` on a slice.

    held_out: chosen after everything that was fitted. new: of these, chosen after the terms of the calibrated prices
    were changed with the others in view: the first time (1), or the second time (2); a third time, on slices of 32
    chips, no term was changed (3).
    named: the named strategies among its candidates. annotated: whose shardings of inputs and outputs XLA gets.
    """

    name: str
    model: str
    options: dict[str, Any]
    mesh: dict[str, int]
    hardware: str
    held_out: bool = field(default=False)
    new: int = field(default=0)
    named: tuple[str, ...] = ("data", "fsdp", "tensor", "fsdp+tensor")
    annotated: str = "fsdp+tensor"


_EXPERTS = ("data", "fsdp", "data+expert", "fsdp+expert")
_TF = {"d_model": 2048, "d_ff": 8192, "heads": 16, "kv_heads": 8, "vocab": 32768, "compute_dtype": "bfloat16"}
_SCAN = {**_TF, "scan": True, "remat": True}
_FLAT = {**_TF, "scan": False, "remat": False}
_MOE = {
    "layers": 2, "d_model": 1024, "d_ff": 4096, "heads": 8, "kv_heads": 8, "experts": 8, "vocab": 32768, "scan": True,
    "remat": True, "compute_dtype": "bfloat16",
}  # fmt: skip
_MLP = {"inputs": 4096, "hidden": 16384, "outputs": 4096, "layers": 2}
_MLP3 = {"inputs": 2048, "hidden": 8192, "outputs": 2048, "layers": 4, "compute_dtype": "bfloat16"}
_DECODE = {"width": 4096, "hidden": 14336, "heads": 32, "kv_heads": 8, "layers": 2}
_LONG = {"batch": 4, "seq": 4096, "width": 2048, "heads": 16}
_CONVS = {"batch": 256, "image": 56, "widths": (64, 128, 128, 256)}
_TWO_FOUR, _FOUR_FOUR, _FOUR_EIGHT = {"data": 2, "model": 4}, {"data": 4, "model": 4}, {"data": 4, "model": 8}
CASES = (
    Case("mlp_v5e_4x4", "mlp", {**_MLP, "batch": 16384}, _FOUR_FOUR, "tpu_v5e"),
    Case("mlp_v6e_2x4", "mlp", {**_MLP, "batch": 8192}, _TWO_FOUR, "tpu_v6e"),
    Case("mlp_v5p_2x2x2", "mlp", {**_MLP, "batch": 8192}, _TWO_FOUR, "tpu_v5p"),
    Case("dense_v5e_2x4", "transformer", {**_SCAN, "layers": 4, "batch": 8, "seq": 2048}, _TWO_FOUR, "tpu_v5e"),
    Case("conv_v5e_2x4", "resnet", {"batch": 512, "width": 64, "image": 56, "stages": [1, 1], "classes": 1000},
         _TWO_FOUR, "tpu_v5e", held_out=True),
    Case("dense_v6e_2x4", "transformer", {**_SCAN, "layers": 4, "batch": 8, "seq": 2048}, _TWO_FOUR, "tpu_v6e",
         held_out=True),
    Case("decode_v5e_2x4", "decode", {**_DECODE, "batch": 64, "context": 4096}, _TWO_FOUR, "tpu_v5e",
         held_out=True, annotated="tensor"),
    Case("decode_v6e_2x4", "decode", {**_DECODE, "batch": 64, "context": 4096}, _TWO_FOUR, "tpu_v6e",
         held_out=True, annotated="tensor"),
    Case("decode_v5p_2x2x2", "decode", {**_DECODE, "batch": 256, "context": 2048}, _TWO_FOUR, "tpu_v5p",
         held_out=True, annotated="tensor"),
    Case("mlp_bf16_v5e_2x4", "mlp", {**_MLP3, "batch": 8192}, _TWO_FOUR, "tpu_v5e", held_out=True),
    Case("mlp_bf16_v5p_2x2x2", "mlp", {**_MLP3, "batch": 16384}, _TWO_FOUR, "tpu_v5p", held_out=True),
    Case("mlp_bf16_v6e_4x4", "mlp", {**_MLP3, "batch": 32768}, _FOUR_FOUR, "tpu_v6e", held_out=True),
    Case("long_v5e_2x4", "attention", _LONG, _TWO_FOUR, "tpu_v5e", held_out=True),
    Case("long_v5p_2x2x2", "attention", _LONG, _TWO_FOUR, "tpu_v5p", held_out=True),
    Case("convs_v5e_2x4", "convolutions", _CONVS, _TWO_FOUR, "tpu_v5e", held_out=True),
    Case("convs_v6e_2x4", "convolutions", _CONVS, _TWO_FOUR, "tpu_v6e", held_out=True),
    Case("flat_v5e_2x4", "transformer", {**_FLAT, "layers": 2, "batch": 8, "seq": 1024}, _TWO_FOUR, "tpu_v5e",
         held_out=True),
    Case("moe_v5e_2x4", "moe", {**_MOE, "batch": 16, "seq": 1024}, {"data": 2, "expert": 4}, "tpu_v5e",
         held_out=True, named=_EXPERTS, annotated="fsdp+expert"),
    Case("moe_v6e_2x4", "moe", {**_MOE, "batch": 16, "seq": 1024}, {"data": 2, "expert": 4}, "tpu_v6e",
         held_out=True, named=_EXPERTS, annotated="fsdp+expert"),
    Case("dense_v5p_2x2x2", "transformer", {**_SCAN, "layers": 4, "batch": 8, "seq": 2048}, _TWO_FOUR, "tpu_v5p",
         held_out=True),
    Case("wide_v5p_2x2x2", "mlp", {**_MLP3, "inputs": 3072, "hidden": 12288, "outputs": 3072, "layers": 2,
         "batch": 8192}, _TWO_FOUR, "tpu_v5p", held_out=True, new=1),
    Case("small_v6e_4x4", "transformer", {**_SCAN, "d_model": 1024, "d_ff": 4096, "heads": 8, "vocab": 16384,
         "layers": 4, "batch": 32, "seq": 512}, _FOUR_FOUR, "tpu_v6e", held_out=True, new=1),
    Case("convs_v5p_2x2x2", "convolutions", {"batch": 128, "image": 28, "widths": (128, 256, 256, 512)}, _TWO_FOUR,
         "tpu_v5p", held_out=True, new=1),
    Case("mlp_v6e_2x2", "mlp", {**_MLP, "inputs": 3072, "hidden": 12288, "outputs": 3072, "batch": 4096},
         {"data": 2, "model": 2}, "tpu_v6e", held_out=True, new=2),
    Case("small_v5p_2x2x4", "transformer", {**_SCAN, "d_model": 1024, "d_ff": 4096, "heads": 8, "vocab": 16384,
         "layers": 4, "batch": 32, "seq": 1024}, _FOUR_FOUR, "tpu_v5p", held_out=True, new=2),
    Case("mlp_v5e_2x2", "mlp", {**_MLP, "inputs": 3072, "hidden": 12288, "outputs": 3072, "batch": 4096},
         {"data": 2, "model": 2}, "tpu_v5e", held_out=True, new=2),
    Case("wide_v5p_2x2x1", "mlp", {**_MLP3, "inputs": 3072, "hidden": 12288, "outputs": 3072, "layers": 2,
         "batch": 8192}, {"data": 2, "model": 2}, "tpu_v5p", held_out=True, new=2),
    Case("small_v5e_4x8", "transformer", {**_SCAN, "d_model": 1024, "d_ff": 4096, "heads": 8, "vocab": 16384,
         "layers": 4, "batch": 64, "seq": 512}, _FOUR_EIGHT, "tpu_v5e", held_out=True, new=3),
    Case("mlp_bf16_v5p_2x4x4", "mlp", {**_MLP3, "batch": 32768}, _FOUR_EIGHT, "tpu_v5p", held_out=True, new=3),
    Case("decode_v5e_4x8", "decode", {**_DECODE, "batch": 128, "context": 4096}, _FOUR_EIGHT, "tpu_v5e",
         held_out=True, new=3, annotated="tensor"),
    Case("moe_v5p_2x4x4", "moe", {**_MOE, "batch": 32, "seq": 1024}, {"data": 4, "expert": 8}, "tpu_v5p",
         held_out=True, new=3, named=_EXPERTS, annotated="fsdp+expert"),
)  # fmt: skip

_NODE, _TWO_NODES = {"data": 2, "model": 4}, {"data": 2, "model": 8}
GPU_CASES = (
    Case("mlp_h100_8", "mlp", {**_MLP, "batch": 8192}, _NODE, "h100"),
    Case("mlp_bf16_h100_8", "mlp", {**_MLP3, "batch": 16384}, _NODE, "h100"),
    Case("dense_h100_8", "transformer", {**_SCAN, "layers": 4, "batch": 16, "seq": 2048}, _NODE, "h100"),
    Case("flat_h100_8", "transformer", {**_FLAT, "layers": 2, "batch": 16, "seq": 1024}, _NODE, "h100"),
    Case("long_h100_8", "attention", _LONG, _NODE, "h100"),
    Case("moe_h100_8", "moe", {**_MOE, "batch": 16, "seq": 1024}, {"data": 2, "expert": 4}, "h100", named=_EXPERTS,
         annotated="fsdp+expert"),
    Case("conv_h100_8", "resnet", {"batch": 512, "width": 64, "image": 56, "stages": [1, 1], "classes": 1000}, _NODE,
         "h100"),
    Case("decode_h100_8", "decode", {**_DECODE, "batch": 64, "context": 4096}, _NODE, "h100", annotated="tensor"),
    Case("mlp_bf16_h100_16", "mlp", {**_MLP3, "batch": 32768}, _TWO_NODES, "h100"),
    Case("dense_h100_16", "transformer", {**_SCAN, "layers": 4, "batch": 32, "seq": 2048}, _TWO_NODES, "h100"),
    Case("small_h100_16", "transformer", {**_SCAN, "d_model": 1024, "d_ff": 4096, "heads": 8, "vocab": 16384,
         "layers": 4, "batch": 64, "seq": 512}, _TWO_NODES, "h100"),
    Case("moe_h100_16", "moe", {**_MOE, "batch": 32, "seq": 1024}, {"data": 2, "expert": 8}, "h100", named=_EXPERTS,
         annotated="fsdp+expert"),
)  # fmt: skip
"""One node of eight H100s (NVLink), and two of them (InfiniBand between); none was fitted on."""
