"""What is changed: good inputs of every reader, made once by autoshard itself into a folder.

python corpus.py FOLDER
"""

import contextlib
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

MODULE = """\
import jax
import jax.numpy as jnp

def mlp(x, w, v):
    return jnp.tanh(x @ w) @ v

def step(params, x):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean((jnp.tanh(x @ p["w"]) @ p["v"]) ** 2))(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss
"""
"""The functions that configs name; they lie beside them."""

CONFIGS = {
    "mlp": """\
function: fuzzed:mlp
args: {x: "float32[16,32]", w: "float32[32,64]", v: {shape: [64, 32], dtype: bfloat16}}
mesh: {data: 2, model: 4}
hardware: tpu_v5e
pins:
  - {pattern: w, sharding: '[{}, {"model"}]'}
  - {pattern: x, sharding: '[{"data"}, {?}]', priority: 1}
same_sharding: [[x, out]]
memory_limit: 90%
baselines: [data, {name: mine, rules: {batch: data, mlp: model}}]
logical_axes: {x: [batch, embed], w: [embed, mlp], v: [mlp, embed]}
solver: {effort: 0.1, seed: 1}
""",
    "step": """\
function: fuzzed:step
args:
  params: {w: "float32[32,64]", v: "float32[64,8]"}
  x: float32[16,32]
donate: [params]
mesh: {data: {size: 4}, model: {size: 2, link: ici}}
hardware: tpu_v5e
carry: {out/0: params}
in_code: hints
share_repeats: false
strategy: greedy
time_limit: 2s
""",
    "searched": """\
function: fuzzed:mlp
args: {x: "float32[16,32]", w: "float32[32,64]", v: "float32[64,32]"}
mesh: {devices: 8, axes: [a, b]}
hardware: h100
objective: overlap
memory_limit: {device: 1GB, pinned_host: 50MiB}
""",
    "small": """\
model: {name: mlp, layers: 2}
mesh: {data: 2, model: 2}
hardware: cpu_sim
priorities: [data, tensor]
""",
    "onnx": "model: plain.onnx\nshapes: {batch: 32}\nmesh: {a: 2, b: 2}\nhardware: tpu_v5e\n",
    "annotated": "model: mlp.onnx\nshapes: {batch: 32}\nannotations: pins\nmesh: {a: 2, b: 2}\nhardware: tpu_v5e\n",
}

MLIR = {
    "matmul": """\
sdy.mesh @mesh = <["x"=2, "y"=4]>
func.func @main(%a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {?}]>}, %b: tensor<16x32xf32>)
    -> (tensor<8x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y":(1)2, ?}p1]>}) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %1 = sdy.sharding_constraint %0 <@mesh, [{"x"}, {"y"}], replicated={}> : tensor<8x32xf32>
  %2 = stablehlo.tanh %1 : tensor<8x32xf32>
  %3 = stablehlo.reshape %2 : (tensor<8x32xf32>) -> tensor<8x4x8xf32>
  %4 = stablehlo.reshape %3 : (tensor<8x4x8xf32>) -> tensor<8x32xf32>
  return %4 : tensor<8x32xf32>
}
""",
    "loop": """\
sdy.mesh @mesh = <["x"=2, "y"=2]>
func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}, {?}]>}, %b: tensor<8x8xf32>)
    -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %w:2 = stablehlo.while(%u = %a, %v = %b) : tensor<8x8xf32>, tensor<8x8xf32>
  cond {
    %p = stablehlo.constant dense<false> : tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %n = stablehlo.negate %u : tensor<8x8xf32>
    %m = sdy.manual_computation(%n) in_shardings=[<@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>]
        manual_axes={"x"} (%z: tensor<4x8xf32>) {
      %t = stablehlo.add %z, %z : tensor<4x8xf32>
      sdy.return %t : tensor<4x8xf32>
    } : (tensor<8x8xf32>) -> tensor<8x8xf32>
    stablehlo.return %m, %v : tensor<8x8xf32>, tensor<8x8xf32>
  }
  return %w#0, %w#1 : tensor<8x8xf32>, tensor<8x8xf32>
}
""",
    "call": """\
sdy.mesh @mesh = <["x"=2]>
func.func @main(%a: tensor<4x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> tensor<4x4xf32> {
  %0 = stablehlo.custom_call @mine(%a)
      {sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([i, j]) {i=4, j=4}, custom>}
      : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = call @f(%0) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %1 : tensor<4x4xf32>
}
func.func private @f(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
""",
}


def make(folder: Path) -> None:
    """Write all inputs into the folder."""
    from autoshard.cli import main

    folder.mkdir(parents=True)
    for room in ("configs", "autoshard/examples"):
        for file in sorted((ROOT / room).glob("*.yaml")):
            (folder / file.name).write_bytes(file.read_bytes())
    for name, text in CONFIGS.items():
        (folder / f"{name}.yaml").write_text(text)
    (folder / "fuzzed.py").write_text(MODULE)
    for name, text in MLIR.items():
        (folder / f"{name}.mlir").write_text(text)
    for file in sorted((ROOT / "experiments/propagation_diff/faults").glob("*.mlir")):
        (folder / file.name).write_bytes(file.read_bytes())
    _models(folder)
    with contextlib.chdir(folder):
        sys.path.insert(0, str(folder))
        for name in ("mlp", "step", "searched", "small", "onnx"):
            assert main(["solve", f"{name}.yaml", "-o", f"plans/{name}", "-q"]) == 0, name
        assert main(["solve", "quickstart.yaml", "verify=false", "run=null", "-o", "plans/quickstart", "-q"]) == 0
        assert (
            main(["lower", "plans/mlp/plan.json", "--target", "mlir", "--no-report", "--output", "lowered.mlir"]) == 0
        )
        _networks(folder)


def _models(folder: Path) -> None:
    """The models of docs/onnx.md, as binary files, as text and as JSON."""
    import onnx
    from google.protobuf import json_format, text_format

    text = (ROOT / "docs/onnx.md").read_text()
    (snippet,) = [code for code in re.findall(r"```python\n(.*?)```", text, re.S) if "crossed.onnx" in code]
    with contextlib.chdir(folder):
        exec(
            compile(
                snippet.replace("64, 256", "8, 16").replace("256, 64", "16, 8").replace(", 64]", ", 8]"), "m", "exec"
            ),
            {},
        )
    for name in ("plain", "mlp"):
        model = onnx.load(str(folder / f"{name}.onnx"))
        (folder / f"{name}.textproto").write_text(text_format.MessageToString(model))
        (folder / f"{name}_model.json").write_text(json_format.MessageToJson(model))


def _networks(folder: Path) -> None:
    import random

    from autoshard.cli import main

    nets = folder / "networks"
    nets.mkdir()
    (nets / "example.json").write_bytes((ROOT / "tests/solver/example_iopddl.json").read_bytes())
    rng = random.Random(7)
    counts = [rng.randrange(1, 4) for _ in range(7)]
    edges = [(a, b) for a in range(7) for b in range(a + 1, 7) if rng.random() < 0.4]
    problem = {
        "name": "seven",
        "nodes": {
            "intervals": [[n, n + 4] for n in range(7)],
            "costs": [[rng.randrange(50) for _ in range(c)] for c in counts],
            "usages": [[rng.randrange(30) for _ in range(c)] for c in counts],
        },
        "edges": {
            "nodes": edges,
            "costs": [[rng.randrange(40) for _ in range(counts[a] * counts[b])] for a, b in edges],
        },
        "usage_limit": 90,
    }
    (nets / "seven.json").write_text(json.dumps({"problem": problem, "solution": {"usage": 0}}))
    for name in ("example", "seven"):
        file = str(nets / f"{name}.json")
        written = ["--output", str(nets / f"{name}.sol.json"), "--certificate", str(nets / f"{name}.cert.json")]
        assert main(["network", "solve", file, "--effort", "0.1", *written]) == 0


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve())
