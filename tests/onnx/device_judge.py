"""An interpreter of annotations that shares no code with the product: every device runs the op on its own blocks.

It reads the messages themselves. A node's inputs are cut from whole arrays by its specs, the reference evaluator runs
the node on every device's blocks, parts of reductions are combined, and what comes out must be the blocks of the
unsharded result that the output specs say.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

Block = tuple[np.ndarray, ...]  # the indices along every axis

ADDED_ONCE = {"Gemm": 2, "Conv": 2, "ConvTranspose": 2}  # the operand that every part of the sum would add again


class JudgeError(AssertionError):
    """The annotations do not compute what the model computes."""


def blocks_of(spec: Any, shape: Sequence[int]) -> dict[int, list[Block]]:
    """What every device holds by one ShardingSpecProto."""
    groups = {g.key: list(g.value) for g in spec.index_to_device_group_map}
    rank = len(shape)
    cuts = []
    for dim in spec.sharded_dim:
        axis = dim.axis + rank if dim.axis < 0 else dim.axis
        parts = [
            (p.dim_value if p.WhichOneof("dim") == "dim_value" else None, p.num_shards) for p in dim.simple_sharding
        ]
        if len(parts) == 1:
            parts = [(shape[axis], parts[0][1])]
        cuts.append((axis, parts))
    shards = list(product(*(product(*(range(m) for _, m in parts)) for _, parts in cuts)))
    entries = list(spec.device)
    if not cuts:
        shards = [()] * len(entries)
    assert len(entries) == len(shards)
    held: dict[int, list[Block]] = {}
    for entry, index in zip(entries, shards, strict=True):
        block = [np.arange(n) for n in shape]
        for (axis, parts), digits in zip(cuts, index, strict=True):
            block[axis] = elements(parts, digits)
        for device in groups.get(entry, [entry]):
            held.setdefault(device, []).append(tuple(block))
    return held


def elements(parts: Sequence[tuple[int, int]], digits: Sequence[int]) -> np.ndarray:
    """The elements of an axis in one shard: the digits say which block of every part."""
    whole = np.arange(int(np.prod([n for n, _ in parts]))).reshape([n for n, _ in parts])
    for axis, ((n, m), digit) in enumerate(zip(parts, digits, strict=True)):
        size = -(-n // m)
        whole = np.take(whole, np.arange(min(digit * size, n), min((digit + 1) * size, n)), axis=axis)
    return whole.reshape(-1)


def key_of(block: Block) -> tuple[bytes, ...]:
    return tuple(axis.tobytes() for axis in block)


def combine(op: str, parts: list[np.ndarray], weights: list[int]) -> np.ndarray:
    """Parts of one result as one."""
    stack = np.stack(parts)
    if op == "ReduceMax" or op == "GlobalMaxPool":
        return stack.max(0)
    if op == "ReduceMin":
        return stack.min(0)
    if op == "ReduceProd":
        return stack.prod(0)
    if op == "ReduceMean" or op == "GlobalAveragePool":
        return (stack * np.reshape(weights, [-1] + [1] * (stack.ndim - 1))).sum(0) / sum(weights)
    if op == "ReduceL2":
        return np.sqrt((stack**2).sum(0))
    if op in ("ReduceLogSum", "ReduceLogSumExp"):
        return np.log(np.exp(stack).sum(0))
    return stack.sum(0, dtype=stack.dtype)


# complexity: one branch for each op of the formalism, so that the judge reads as the formalism does
def run_node(
    node: Any, opsets: Any, arrays: dict[str, np.ndarray], specs: dict[str, Any], expected: dict[str, np.ndarray]
) -> None:
    """`JudgeError` where some device gets something else than its block of the expected outputs.

    specs: for every tensor of the node; those of outputs as the op leaves them.
    """
    names = [n for n in dict.fromkeys(node.input) if n]
    held = {name: blocks_of(specs[name], arrays[name].shape) for name in names}
    results = {name: blocks_of(specs[name], value.shape) for name, value in expected.items() if name in specs}
    for output, by_device in results.items():
        at = list(node.output).index(output)
        groups: dict[tuple[bytes, ...], dict[tuple, list[int]]] = {}
        blocks: dict[tuple[bytes, ...], Block] = {}
        for device, mine in by_device.items():
            assert len(mine) == 1, "the judge knows devices with one shard only"
            key = key_of(mine[0])
            blocks[key] = mine[0]
            have = [held[name].get(device, []) for name in names]
            if any(len(h) != 1 for h in have):
                raise JudgeError(f"{node.op_type}: device {device} lacks an input of {output}")
            seen = tuple(key_of(h[0]) for h in have)
            groups.setdefault(key, {}).setdefault(seen, []).append(device)
        covered = np.zeros(expected[output].shape, bool)
        for key, by_inputs in groups.items():
            block = blocks[key]
            want = expected[output][np.ix_(*block)] if block else expected[output]
            covered[np.ix_(*block) if block else ()] = True
            parts, weights = [], []
            for devices in by_inputs.values():
                local = {name: local_array(arrays[name], held[name][devices[0]][0]) for name in names}
                if node.op_type in ("Reshape", "Expand"):
                    local[node.input[1]] = np.array(want.shape, np.int64)
                empty = any(a.size == 0 for a in local.values())
                if want.size == 0 or (empty and len(by_inputs) > 1):
                    continue
                again = ADDED_ONCE.get(node.op_type)
                if parts and again is not None and len(node.input) > again and node.input[again]:
                    local[node.input[again]] = np.zeros_like(local[node.input[again]])
                parts.append(np.asarray(evaluate(with_local_groups(node, local, want.shape), opsets, local)[at]))
                weights.append(max((a.size for a in local.values()), default=1))
            if want.size == 0 or not parts:
                continue
            got = parts[0] if len(parts) == 1 else combine(node.op_type, parts, weights)
            if got.shape != want.shape:
                raise JudgeError(f"{node.op_type}: {output} has the block {got.shape}, expected {want.shape}")
            if not same(got, want):
                raise JudgeError(f"{node.op_type}: {output} differs")
        if not covered.all():
            raise JudgeError(f"{node.op_type}: nobody has a part of {output}")


def with_local_groups(node: Any, local: dict[str, np.ndarray], result: Sequence[int]) -> Any:
    """A device of a grouped convolution may hold some of the groups only."""
    if node.op_type not in ("Conv", "ConvTranspose"):
        return node
    x, w = local[node.input[0]], local[node.input[1]]
    groups = x.shape[1] // max(w.shape[1], 1) if node.op_type == "Conv" else result[1] // max(w.shape[1], 1)
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for attribute in copy.attribute:
        if attribute.name == "group":
            attribute.i = max(groups, 1)
    return copy


def local_array(array: np.ndarray, block: Block) -> np.ndarray:
    return array[np.ix_(*block)] if block else array


def same(got: np.ndarray, want: np.ndarray) -> bool:
    if want.dtype.kind in "fc":
        return bool(np.allclose(got, want, rtol=2e-3, atol=1e-4, equal_nan=True))
    if want.dtype.kind in "biu":
        return bool(np.array_equal(got, want))
    return bool((np.asarray(got, object) == np.asarray(want, object)).all())


def evaluate(node: Any, opsets: Any, arrays: dict[str, np.ndarray]) -> list[Any]:
    """One node on arrays, by the reference evaluator."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.device_configurations[:]
    names = [n for n in dict.fromkeys(node.input) if n]
    inputs = [
        onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(arrays[n].dtype), None)
        for n in names
    ]
    outputs = [onnx.ValueInfoProto(name=o) for o in node.output if o]
    graph = onnx.helper.make_graph([copy], "one", inputs, outputs)
    model = onnx.ModelProto(ir_version=11, graph=graph)
    model.opset_import.extend(opsets)
    found = dict(zip([o for o in node.output if o], ReferenceEvaluator(model).run(None, arrays), strict=True))
    return [found.get(o) for o in node.output]
