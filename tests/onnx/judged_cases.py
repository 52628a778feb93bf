"""Single-node models of the library's own test suite under random annotations, for the judge."""

import random
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import device_judge
import numpy as np
import onnx
from device_judge import JudgeError
from onnx import numpy_helper

from autoshard.onnx.check import check
from autoshard.onnx.files import load
from autoshard.onnx.infer import infer

MESH = (2, 2, 3)
NOT_LOCAL = frozenset({"Shape", "Size", "Constant", "ConstantOfShape", "Dropout", "QLinearMatMul"})
"""Ops whose blocks an op on blocks cannot show: what they read is no block, or random, or rounded after the sum."""


@dataclass
class Tally:
    """Outcomes by name, and what went wrong."""

    counts: Counter = field(default_factory=Counter)
    ops: Counter = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


@cache
def small_cases() -> list[Any]:
    """Cases of the library with one node, arrays for all inputs and few elements."""
    import warnings

    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    kept = []
    for case in found:
        graph = case.model.graph
        if len(graph.node) != 1 or case.model.functions or any(a.HasField("g") for a in graph.node[0].attribute):
            continue
        if graph.node[0].domain or graph.node[0].op_type in NOT_LOCAL:
            continue
        inputs, outputs = case.data_sets[0]
        arrays = [*inputs, *outputs]
        if all(isinstance(a, np.ndarray) and a.dtype.kind in "biuf" and a.size <= 5000 for a in arrays):
            kept.append(case)
    return sorted(kept, key=lambda c: c.name)


def annotated(case: Any, rng: random.Random) -> Any:
    """The case with small inputs as weights, and a random spec on every input: axes of one size are cut alike."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.ir_version = 11
    model.configuration.add(name="c", num_devices=int(np.prod(MESH)))
    node = model.graph.node[0]
    arrays = dict(zip([i.name for i in model.graph.input], case.data_sets[0][0], strict=True))
    for name, array in arrays.items():
        if array.dtype.kind == "i" and array.ndim <= 1:  # axes and shapes: constants, as in exported files
            model.graph.initializer.append(numpy_helper.from_array(array, name))
    sizes = sorted({n for a in arrays.values() for n in a.shape})
    by_size = {n: rng.choice([None, None, 0, 1, 2]) for n in sizes}
    one = node.device_configurations.add(configuration_id="c")
    for name in dict.fromkeys(n for n in node.input if n):
        random_spec(one, name, arrays[name].shape, by_size, rng)
    return model, arrays


def random_spec(target: Any, name: str, shape: tuple[int, ...], by_size: dict[int, int | None], rng: Any) -> None:
    """Cuts axes over axes of the mesh, every axis of the mesh at most once; the rest of the mesh holds copies."""
    used: list[tuple[int, int]] = []
    for axis, n in enumerate(shape):
        along = by_size[n]
        if n > 1 and along is not None and along not in [a for _, a in used] and rng.random() < 0.9:
            used.append((axis, along))
    spec = target.sharding_spec.add(tensor_name=name)
    ids = np.arange(int(np.prod(MESH))).reshape(MESH)
    rest = [a for a in range(len(MESH)) if a not in [b for _, b in used]]
    rows = ids.transpose([a for _, a in used] + rest).reshape(int(np.prod([MESH[a] for _, a in used], initial=1)), -1)
    for at, row in enumerate(rows):
        if len(row) == 1:
            spec.device.append(int(row[0]))
        else:
            spec.device.append(-1 - at)
            spec.index_to_device_group_map.add(key=-1 - at, value=[int(d) for d in row])
    for axis, along in used:
        cut = spec.sharded_dim.add(axis=axis - len(shape) if rng.random() < 0.2 else axis)
        cut.simple_sharding.add(num_shards=MESH[along])


def judge_case(case: Any, seed: int, tally: Tally) -> None:
    """One case under one random annotation: what the check lets pass must compute what the model computes."""
    model, arrays = annotated(case, random.Random(f"{case.name} {seed}"))
    node = model.graph.node[0]
    loaded = load(model)
    found = check(loaded)
    cut = any(s.sharded_dim for c in node.device_configurations for s in c.sharding_spec)
    codes = {f.code for f in found.findings}
    bad = {f.code for f in found.findings if f.severity != "warning" and "it fits" not in f.message}
    if bad or "needs-slice" in codes:
        tally.counts["refused: " + ", ".join(sorted(bad or {"needs-slice"}))] += 1
        return
    done = infer(loaded)
    specs = {s.tensor_name: s for c in done.proto.graph.node[0].device_configurations for s in c.sharding_spec}
    expected = dict(zip([o.name for o in model.graph.output], case.data_sets[0][1], strict=True))
    missing = [o for o in expected if o not in specs]
    if missing:
        tally.counts["open"] += 1
        return
    try:
        device_judge.run_node(node, model.opset_import, arrays, specs, expected)
    except JudgeError as error:
        tally.counts["WRONG"] += 1
        tally.wrong.append(f"{case.name} seed {seed}: {error}")
        return
    except Exception as error:  # the reference evaluator has gaps
        tally.counts["reference evaluator failed"] += 1
        tally.wrong.append(f"(reference) {case.name} seed {seed}: {type(error).__name__} {error}"[:200])
        return
    tally.counts["right, cut" if cut else "right, whole"] += 1
    if cut:
        tally.ops[node.op_type] += 1


def judge_all(seeds: range) -> Tally:
    """Every case under every seed."""
    tally = Tally()
    for case in small_cases():
        for seed in seeds:
            judge_case(case, seed, tally)
    return tally
