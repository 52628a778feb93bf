"""Words that the Python API, JAX, Shardy, MaxText and others have for what a config says: the keys that are meant.

Such a word is refused as any unknown key is, but with the key to write; words that are only misspelled are left to the
nearest known key.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

from autoshard.config.yaml_text import KeyPath

_PIN = """'pins', such as pins: {batch/x: '[{"data"}, {}]'}"""
_OUT_PIN = """'pins' on results, such as pins: {out/0: '[{"data"}, {}]'}"""
_SIZES = "'mesh' with a size for each axis, such as mesh: {data: 2, model: 4}"
_SEARCHED = "'mesh' with a size for each axis, or mesh: {devices: 8, axes: [data, model]} to have the sizes searched"
_STATIC = "a 'function' that has its static arguments already, by functools.partial say; 'args' are arrays"
_PARALLELISM = re.compile(r"(?P<level>ici|dcn)_(?P<axis>\w+)_parallelism")

_AT_TOP: tuple[tuple[str, str], ...] = (
    # the Python API
    ("constraints", _PIN + "; other statements have keys of their own (docs/statements.md)"),
    ("donate_argnums donate_argnames", "'donate' with names or numbers, such as donate: [state]"),
    ("static_argnums static_argnames", _STATIC),
    ("roles", "'logical_axes', such as logical_axes: {params/w1: [embed, mlp]}"),
    ("effort seed accepted_gap", "'solver', such as solver: {effort: 2, seed: 1, accepted_gap: 0.01}"),
    ("solver_memory", "'solver', such as solver: {memory: 8GB}"),
    ("price_sharing", "'share_repeats: price'"),
    # JAX
    ("in_shardings in_specs in_axis_resources shardings sharding pin partition_specs partition_spec", _PIN),
    ("with_sharding_constraint arg_shardings activation_shardings data_sharding statements", _PIN),
    ("out_shardings out_specs out_axis_resources", _OUT_PIN),
    ("mesh_shape axis_shapes axis_sizes axis_names mesh_axes axes sizes", _SIZES),
    ("num_devices n_devices device_count num_chips num_gpus world_size", _SEARCHED),
    ("fn func fun f callable step_fn step entry", "'function', such as function: my_package.train:step"),
    ("inputs input_specs arguments example_args", "'args', such as args: {x: 'float32[8, 128]'}"),
    ("remat scan batch seq layers batch_size per_device_batch_size", "an option of 'model', such as "
     "model: {name: transformer, batch: 8, remat: full}"),
    # Shardy
    ("manual_axes shard_map manual_computation", "'manual_computations' (docs/statements.md)"),
    ("sharding_group sharding_groups groups group tied",
     "'same_sharding', such as same_sharding: [[state/w, out/0/w]]"),
    ("priority stages", "'priorities', such as priorities: [data, tensor]"),
    ("propagation_barrier", "'barriers' (docs/statements.md)"),
    # MaxText and others
    ("rules axis_rules sharding_rules logical_rules",
     "'logical_axis_rules', such as logical_axis_rules: {batch: data}"),
    ("model_name model_config architecture", "'model', such as model: {name: transformer, dims: llama3_8b}"),
    ("steps num_steps train_steps", "'run', such as run: {steps: 20}"),
    ("machine device device_type device_kind accelerator chip chips platform backend topology compile_topology profile",
     "'hardware', such as hardware: tpu_v5e (`autoshard hardware` lists the machines)"),
    ("memory hbm hbm_limit memory_budget max_memory budget device_memory",
     "'memory_limit', such as memory_limit: 14GiB or 90%"),
    ("host_memory offload", "'memory_kinds' for values in the host's memory, 'memory_limit: {pinned_host: 64GiB}' "
     "for its limit"),
    ("timeout time max_time time_budget", "'time_limit', such as time_limit: 60s"),
    ("strategies compare", "'baselines', such as baselines: [data, fsdp+tensor]"),
    ("out output_dir base_output_directory out_dir", "'output', such as output: out/step"),
)  # fmt: skip
_AT_TOP_BY_WORD = {word: meant for words, meant in _AT_TOP for word in words.split()}

_WITHIN: Mapping[str, Mapping[str, str]] = {
    "mesh": {"devices": "size", "length": "size", "n": "size", "network": "link", "level": "link"},
    "pins": {
        "name": "pattern", "value": "pattern", "path": "pattern", "tensor": "pattern",
        "spec": "sharding", "partition_spec": "sharding", "dims": "sharding", "axes": "sharding",
    },
    "solver": {"gap": "accepted_gap", "solver_memory": "memory", "memory_limit": "memory"},
    "run": {"num_steps": "steps", "train_steps": "steps"},
    "memory_limit": {"hbm": "device", "gpu": "device", "tpu": "device", "host": "pinned_host", "cpu": "pinned_host"},
}  # fmt: skip


def meant_by(path: KeyPath, value: Any, known: Collection[str]) -> str | None:
    """The key to write in place of an unknown one, in words; None where it is a word of nobody.

    value: what stands under it. known: the keys that may stand there.

    >>> meant_by(("constraints",), [], ["pins"])
    'write \\'pins\\', such as pins: {batch/x: \\'[{"data"}, {}]\\'}; other statements have keys of their own ...'
    >>> meant_by(("ici_fsdp_parallelism",), 4, ["mesh"]), meant_by(("pins", 0, "spec"), "", ["sharding"])
    ("write 'mesh' with an axis of this size: mesh: {fsdp: 4}", "write 'sharding'")
    """
    section, word = path[:-1], str(path[-1]).replace("-", "_").lower()
    if not section:
        meant = _of_parallelism(word, value) or _AT_TOP_BY_WORD.get(word)
        return None if meant is None else f"write {meant}"
    key = _WITHIN.get(str(section[0]), {}).get(word)
    return None if key is None or key not in known else f"write {key!r}"


def _of_parallelism(word: str, value: Any) -> str | None:
    """An axis of a mesh as MaxText writes its size."""
    found = _PARALLELISM.fullmatch(word)
    if found is None:
        return None
    size = value if isinstance(value, int) and value > 0 else "N"
    axis = f"{{size: {size}, link: dcn}}" if found["level"] == "dcn" else size
    return f"'mesh' with an axis of this size: mesh: {{{found['axis']}: {axis}}}"


def meant_beside(path: KeyPath, value: Any) -> str:
    """What is added to the fault of a known key whose value others write under a key of this name; empty for none."""
    if path == ("devices",) and isinstance(value, int | list):
        return f"; the number of devices is that of the mesh: {_SEARCHED}"
    if path == ("mesh",) and isinstance(value, list):
        return "; write mesh: {data: 2, model: 4}, the name of each axis with its size"
    return ""
