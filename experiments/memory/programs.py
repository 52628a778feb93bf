"""The programs whose memory is compared: models of the library, sizes above 1 GiB per device, on TPU slices.

`strategy` is a named baseline, or "plan" for autoshard's own optimum. Programs marked `held_out` were compiled after
the memory rules were fixed.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    name: str
    model: str
    options: dict[str, Any]
    mesh: dict[str, int]
    hardware: str
    topology: str
    strategy: str
    held_out: bool = False
    donate: bool = field(default=True)


def _tf(**more: Any) -> dict[str, Any]:
    return {
        "layers": 4, "d_model": 2048, "d_ff": 8192, "heads": 16, "kv_heads": 8, "seq": 1024, "vocab": 32768,
        "batch": 16, "compute_dtype": "bfloat16", **more,
    }  # fmt: skip


_EIGHT = {"data": 8}
_GRID = {"data": 2, "model": 4}
_MLP = {"inputs": 4096, "hidden": 8192, "outputs": 1024, "layers": 4}

CASES = (
    Case("mlp_f32_data_v5e", "mlp", {**_MLP, "batch": 32768}, _EIGHT, "tpu_v5e", "v5e:2x4", "data"),
    Case(
        "mlp_bf16_fsdp_v5p",
        "mlp",
        {**_MLP, "batch": 131072, "activation": "gelu", "compute_dtype": "bfloat16", "param_dtype": "bfloat16"},
        _EIGHT,
        "tpu_v5p",
        "v5p:2x2x2",
        "fsdp",
    ),
    Case(
        "mlp_mixed_grid_v6e",
        "mlp",
        {**_MLP, "batch": 65536, "compute_dtype": "bfloat16"},
        _GRID,
        "tpu_v6e",
        "v6e:2x4",
        "fsdp+tensor",
    ),
    Case("tf_scan_mixed_fsdp_v5e", "transformer", _tf(remat="none"), _EIGHT, "tpu_v5e", "v5e:2x4", "fsdp"),
    Case("tf_scan_full_fsdp_v5e", "transformer", _tf(remat="full", batch=32), _EIGHT, "tpu_v5e", "v5e:2x4", "fsdp"),
    Case("tf_scan_dots_grid_v6e", "transformer", _tf(remat="dots"), _GRID, "tpu_v6e", "v6e:2x4", "fsdp+tensor"),
    Case(
        "tf_scan_f32_full_data_v5p",
        "transformer",
        _tf(remat="full", compute_dtype="float32"),
        _EIGHT,
        "tpu_v5p",
        "v5p:2x2x2",
        "data",
    ),
    Case(
        "tf_scan_bf16_tensor_v5e4",
        "transformer",
        _tf(remat="full", param_dtype="bfloat16", batch=8),
        {"model": 4},
        "tpu_v5e",
        "v5e:2x2",
        "tensor",
    ),
    Case(
        "tf_scan_full_grid16_v5e",
        "transformer",
        _tf(remat="full", batch=64),
        {"data": 4, "model": 4},
        "tpu_v5e",
        "v5e:4x4",
        "fsdp+tensor",
    ),
    Case(
        "tf_unroll_mixed_fsdp_v5e",
        "transformer",
        _tf(scan=False, remat="none", layers=2),
        _EIGHT,
        "tpu_v5e",
        "v5e:2x4",
        "fsdp",
    ),
    Case(
        "tf_unroll_full_grid_v6e",
        "transformer",
        _tf(scan=False, remat="full", layers=3, batch=32),
        _GRID,
        "tpu_v6e",
        "v6e:2x4",
        "fsdp+tensor",
    ),
    Case(
        "tf_unroll_f32_data_v5p",
        "transformer",
        _tf(scan=False, remat="none", layers=2, batch=8, compute_dtype="float32"),
        _EIGHT,
        "tpu_v5p",
        "v5p:2x2x2",
        "data",
    ),
    Case("tf_scan_plan_v5e", "transformer", _tf(remat="full", batch=32), _GRID, "tpu_v5e", "v5e:2x4", "plan"),
    Case(
        "moe_scan_full_fsdp_v5e", "moe", _tf(remat="full", d_ff=2048, experts=8), _EIGHT, "tpu_v5e", "v5e:2x4", "fsdp"
    ),
    Case(
        "moe_scan_none_grid_v5p",
        "moe",
        _tf(remat="none", d_ff=2048, experts=8),
        _GRID,
        "tpu_v5p",
        "v5p:2x2x2",
        "fsdp+tensor",
    ),
    Case(
        "moe_unroll_full_data_v6e",
        "moe",
        _tf(scan=False, remat="full", layers=2, d_ff=2048, experts=8),
        _EIGHT,
        "tpu_v6e",
        "v6e:2x4",
        "data",
    ),
    Case(
        "resnet_f32_data_v5e",
        "resnet",
        {"stages": (2, 2, 2), "width": 64, "image": 224, "classes": 1000, "stem": "large", "batch": 256},
        _EIGHT,
        "tpu_v5e",
        "v5e:2x4",
        "data",
    ),
    Case(
        "resnet_bf16_data_v6e",
        "resnet",
        {
            "stages": (1, 1),
            "width": 128,
            "image": 224,
            "classes": 1000,
            "stem": "large",
            "batch": 256,
            "compute_dtype": "bfloat16",
        },
        {"data": 4},
        "tpu_v6e",
        "v6e:2x2",
        "data",
    ),
    Case(
        "resnet_basic_fsdp_v5p",
        "resnet",
        {"stages": (2, 2), "width": 128, "image": 128, "classes": 1000, "bottleneck": False, "batch": 512},
        _EIGHT,
        "tpu_v5p",
        "v5p:2x2x2",
        "fsdp",
    ),
    Case(
        "tf_too_big_v5e4",
        "transformer",
        _tf(remat="none", layers=8, batch=32),
        {"data": 4},
        "tpu_v5e",
        "v5e:2x2",
        "fsdp",
    ),
    Case(
        "held_mlp_gelu_fsdp16_v6e",
        "mlp",
        {
            "inputs": 8192,
            "hidden": 16384,
            "outputs": 1024,
            "layers": 6,
            "batch": 131072,
            "activation": "gelu",
            "compute_dtype": "bfloat16",
        },
        {"data": 16},
        "tpu_v6e",
        "v6e:4x4",
        "fsdp",
        held_out=True,
    ),
    Case(
        "held_tf_layernorm_grid_v5e",
        "transformer",
        _tf(
            remat="full", gated_mlp=False, norm="layer", positions="learned", bias=True, heads=16, kv_heads=16, batch=8
        ),
        {"data": 2, "model": 2},
        "tpu_v5e",
        "v5e:2x2",
        "fsdp+tensor",
        held_out=True,
    ),
    Case(
        "held_tf_tied_window_data_v6e",
        "transformer",
        _tf(remat="none", tied_embeddings=True, sliding_window=256, layers=6, batch=8, vocab=16384),
        {"data": 4},
        "tpu_v6e",
        "v6e:2x2",
        "data",
        held_out=True,
    ),
    *(  # near the memory of a v5e chip: what is said to fit must be accepted
        Case(
            f"border_mlp_data_v5e4_{rows}k",
            "mlp",
            {**_MLP, "batch": rows * 1024},
            {"data": 4},
            "tpu_v5e",
            "v5e:2x2",
            "data",
            held_out=True,
        )
        for rows in (416, 448, 480)
    ),
    *(
        Case(
            f"border_tf_fsdp_v5e4_{layers}l",
            "transformer",
            _tf(remat="none", layers=layers, batch=32),
            {"data": 4},
            "tpu_v5e",
            "v5e:2x2",
            "fsdp",
            held_out=True,
        )
        for layers in (5, 6)
    ),
)

_GPU_MLP = {"inputs": 2048, "hidden": 8192, "outputs": 2048}
_RESNET50 = {"stages": (3, 4, 6, 3), "width": 64, "image": 224, "classes": 1000, "stem": "large"}
_GELU = _tf(
    scan=False, gated_mlp=False, activation="gelu", norm="layer", positions="learned", bias=True, kv_heads=16,
    remat="none",
)  # fmt: skip
_HELD: tuple[tuple[str, str, dict[str, Any], dict[str, int], str, str], ...] = (
    ("mlp_tanh", "mlp", {**_GPU_MLP, "layers": 6, "batch": 65536, "activation": "tanh", "compute_dtype": "bfloat16"},
     _EIGHT, "h100", "fsdp"),
    ("mlp_silu", "mlp", {**_GPU_MLP, "layers": 5, "batch": 131072, "activation": "silu", "compute_dtype": "bfloat16"},
     _GRID, "h100", "plan"),
    ("mlp_regress_nobias", "mlp", {**_GPU_MLP, "layers": 4, "batch": 65536, "bias": False, "task": "regression"},
     _EIGHT, "b200", "data"),
    ("tf_unroll_gelu", "transformer", _GELU, _EIGHT, "a100_80", "fsdp"),
    ("tf_scan_qknorm_dots", "transformer", _tf(qk_norm=True, remat="dots", layers=6, batch=32, kv_heads=4),
     {"data": 16}, "h200", "fsdp"),
    ("tf_blocks", "transformer", _tf(attention_block=256, remat="full", seq=2048, batch=32), _GRID, "h100", "plan"),
    ("tf_clip_window", "transformer", _tf(sliding_window=512, clip_norm=1.0, remat="none", layers=6), _EIGHT, "b200",
     "data"),
    ("tf_parallel_block", "transformer", _tf(parallel_block=True, remat="none", batch=8), {"model": 8}, "h100",
     "tensor"),
    ("tf_long", "transformer", _tf(seq=4096, batch=8, remat="full", layers=8, vocab=65536), _GRID, "h100",
     "fsdp+tensor"),
    ("tf_small_vocab", "transformer", _tf(vocab=4096, remat="full", layers=12, batch=64, param_dtype="bfloat16"),
     _EIGHT, "h100", "fsdp"),
    ("moe", "moe", _tf(remat="full", d_ff=2048, experts=16, layers=6, batch=32), _GRID, "h100", "plan"),
    ("moe_ragged", "moe", _tf(remat="full", d_ff=4096, experts=8, dispatch="ragged"), _EIGHT, "h200", "fsdp"),
    ("resnet50_bf16", "resnet", {**_RESNET50, "batch": 512, "compute_dtype": "bfloat16"}, _EIGHT, "h100", "data"),
    ("resnet50_f32", "resnet", {**_RESNET50, "batch": 256}, _EIGHT, "a100_80", "fsdp"),
    ("resnext", "resnet", {**_RESNET50, "stages": (2, 2, 2, 2), "width": 128, "groups": 32, "group_width": 4,
                           "batch": 256}, _EIGHT, "h100", "plan"),
)  # fmt: skip
GPU_CASES = tuple(
    Case(f"held_{name}_{hardware}", model, options, mesh, hardware, "", strategy, held_out=True)
    for name, model, options, mesh, hardware, strategy in _HELD
)
"""For GPUs only, chosen after the rules for GPUs were fixed."""
