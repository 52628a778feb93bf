"""Plans made from configs, which say everything that may be stated, and from Python."""

import json
from pathlib import Path
from typing import Any

from autoshard.api.session import plan_config
from autoshard.config.load import config_from_document
from autoshard.config.problem import build_problem
from autoshard.config.yaml_text import load_yaml

Json = dict[str, Any]

MODULE = """
import jax
import jax.numpy as jnp

def step(state, x):
    def loss(w):
        with jax.named_scope("first"):
            h = jnp.tanh(x @ w["w1"])
        return jnp.square(h @ w["w2"]).sum()

    grads = jax.grad(loss)(state["w"])
    m = jax.tree.map(lambda m, g: 0.9 * m + g, state["m"], grads)
    return {"w": jax.tree.map(lambda w, m: w - 0.1 * m, state["w"], m), "m": m}
"""
PROGRAM = """
function: asked_step:step
args:
  state: {w: {w1: "float32[64,128]", w2: "float32[128,64]"}, m: {w1: "float32[64,128]", w2: "float32[128,64]"}}
  x: float32[256,64]
donate: [state]
hardware: tpu_v5e
"""
STATED = (
    PROGRAM
    + """
mesh: {x: 2, y: 4, z: 1}
pins:
  - {pattern: x, sharding: '[{"x"}, {}]'}
  - {pattern: state/*/w1, sharding: '[{?}, {"y", ?}]', priority: 1}
same_sharding: [[state/w/w2, state/m/w2]]
replicated: [{pattern: x, axes: [y]}]
axis_only: {z: [x]}
no_collective: [{axis: x, pattern: tanh}]
max_reshards: 60
barriers: [{pattern: tanh, direction: backward}]
memory_kinds: {state/m/**: pinned_host, out/m/**: pinned_host}
memory_limit: {device: 90%, pinned_host: 1GiB}
"""
)
NAMED = (
    PROGRAM
    + """
mesh: {data: 2, model: 2}
priorities: [data, {name: columns, rules: {mlp: [model]}}]
logical_axes: {x: [batch, embed], state/*/w1: [embed, mlp], state/*/w2: [mlp, embed]}
baselines: [data, {name: rows, rules: {batch: [data]}}]
"""
)
MANUAL = (
    PROGRAM
    + """
mesh: {x: 2, y: 2}
strategy: greedy
share_repeats: false
manual_computations:
  - {region: 'scope:first', axes: [x], in_shardings: {x: '[{"x"}, {?}]', state/w/w1: replicated},
     out_shardings: ['[{"x"}, {?}]', '[{"x"}, {?}]']}
"""
)


def plain(data: Any) -> Any:
    return json.loads(json.dumps(data))


def planned_from(text: str, folder: Path) -> Json:
    """The plan.json of a config, beside the module that it names."""
    (folder / "asked_step.py").write_text(MODULE)
    config = config_from_document(load_yaml(text, str(folder / "plan.yaml")))
    return plain(plan_config(config, build_problem(config)).to_dict())
