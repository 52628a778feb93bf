"""A graph of the shape of Llama 3 8B: 32 layers, weights declared as external data with no bytes behind them; planned.

python experiments/onnx_models/llama.py [DATA MODEL BATCH SEQ HARDWARE]
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper, save_model


@dataclass(frozen=True)
class Dims:
    """Sizes of the network; those of Llama 3 8B."""

    layers: int = 32
    width: int = 4096
    heads: int = 32
    kv_heads: int = 8
    mlp: int = 14336
    vocab: int = 128256

    @property
    def head(self) -> int:
        return self.width // self.heads


class Builder:
    """Nodes, weights without bytes, and small constants."""

    def __init__(self, dtype: int) -> None:
        self.dtype, self.nodes, self.tensors = dtype, [], []

    def weight(self, name: str, *shape: int) -> str:
        tensor = TensorProto(name=name, data_type=self.dtype, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="weights.bin")
        self.tensors.append(tensor)
        return name

    def constant(self, name: str, values: object, dtype: object = np.int64) -> str:
        if not any(t.name == name for t in self.tensors):
            self.tensors.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def add(self, op: str, *inputs: str, to: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, inputs, [to], name=f"{to}/{op}", **attributes))
        return to


def llama(dims: Dims = Dims(), dtype: int = TensorProto.BFLOAT16) -> ModelProto:
    """The graph: tokens [batch, seq] and their cosines and sines to logits [batch, seq, vocab]."""
    b = Builder(dtype)
    x = b.add("Gather", b.weight("embed", dims.vocab, dims.width), "tokens", to="hidden_0")
    for k in range(dims.layers):
        x = _layer(b, dims, x, f"layers.{k}")
    x = _norm(b, dims, x, "final")
    b.add("MatMul", x, b.weight("lm_head", dims.width, dims.vocab), to="logits")
    tokens = helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", "seq"])
    turns = [
        helper.make_tensor_value_info(n, dtype, ["batch", "seq", dims.head // 2]) for n in ("cosines", "sines")
    ]  # fmt: skip
    logits = helper.make_tensor_value_info("logits", dtype, ["batch", "seq", dims.vocab])
    graph = helper.make_graph(b.nodes, "llama", [tokens, *turns], [logits], b.tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def _norm(b: Builder, dims: Dims, x: str, name: str) -> str:
    return b.add("RMSNormalization", x, b.weight(f"{name}.norm", dims.width), to=f"{name}.normed", axis=-1)


def _layer(b: Builder, dims: Dims, x: str, name: str) -> str:
    h = _norm(b, dims, x, f"{name}.attn")
    q = _heads(b, dims, h, f"{name}.q", dims.heads, turn=True)
    k = _heads(b, dims, h, f"{name}.k", dims.kv_heads, turn=True)
    v = _heads(b, dims, h, f"{name}.v", dims.kv_heads, turn=False)
    y = b.add("Attention", q, k, v, to=f"{name}.attended", is_causal=1)
    y = b.add("Transpose", y, to=f"{name}.attended_t", perm=[0, 2, 1, 3])
    y = b.add("Reshape", y, b.constant("merged", [0, 0, dims.width]), to=f"{name}.merged")
    y = b.add("MatMul", y, b.weight(f"{name}.o", dims.width, dims.width), to=f"{name}.o_out")
    x = b.add("Add", x, y, to=f"{name}.after_attn")
    h = _norm(b, dims, x, f"{name}.mlp")
    gate = b.add("MatMul", h, b.weight(f"{name}.gate", dims.width, dims.mlp), to=f"{name}.gate_out")
    gate = b.add("Mul", gate, b.add("Sigmoid", gate, to=f"{name}.sigmoid"), to=f"{name}.silu")
    up = b.add("MatMul", h, b.weight(f"{name}.up", dims.width, dims.mlp), to=f"{name}.up_out")
    y = b.add("Mul", gate, up, to=f"{name}.act")
    y = b.add("MatMul", y, b.weight(f"{name}.down", dims.mlp, dims.width), to=f"{name}.down_out")
    return b.add("Add", x, y, to=f"{name}.out")


def _heads(b: Builder, dims: Dims, h: str, name: str, heads: int, *, turn: bool) -> str:
    y = b.add("MatMul", h, b.weight(f"{name}_w", dims.width, heads * dims.head), to=f"{name}_out")
    shape = b.constant(f"split_{heads}", [0, 0, heads, dims.head])
    y = b.add("Reshape", y, shape, to=f"{name}_split")
    y = b.add("Transpose", y, to=f"{name}_heads", perm=[0, 2, 1, 3])
    return b.add("RotaryEmbedding", y, "cosines", "sines", to=f"{name}_turned") if turn else y


def write(path: Path, dims: Dims = Dims()) -> Path:
    """The model file; ``weights.bin`` beside it is never made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_model(llama(dims), str(path))
    return path


def main(data: str = "2", model: str = "4", batch: str = "8", seq: str = "4096", hardware: str = "tpu_v5e") -> None:
    """Plan the graph, and tell what the plan costs and what planning took."""
    from autoshard.api.session import plan_config
    from autoshard.config.load import load_config
    from autoshard.config.problem import build_problem

    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "llama.onnx")
        config = path.with_suffix(".yaml")
        config.write_text(
            f"model: {path.name}\nshapes: {{batch: {batch}, seq: {seq}}}\nmesh: {{data: {data}, model: {model}}}\n"
            f"hardware: {hardware}\nbaselines: []\n"
        )
        began, used = time.monotonic(), time.process_time()
        settings = load_config(config)
        plan = plan_config(settings, build_problem(settings))
        took, cpu = time.monotonic() - began, time.process_time() - used
        assert not (path.parent / "weights.bin").exists()
    print(
        f"{data} x {model} {hardware}, {batch} x {seq} tokens: {plan.objective_s * 1e3:.4g} ms, {plan.status}, "
        f"gap {plan.gap:.2%}; {took:.0f} s, {cpu:.0f} s of CPU"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
