"""Ensembles of decision trees: every row goes down all trees at once, one level a step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from autoshard.onnx.ops.control import MOST_UNROLLED
from autoshard.onnx.ops.registry import ML, Node, op

_MEMBER = 6
_COMPARE: Sequence[Callable[[Any, Any], Any]] = (
    jnp.less_equal, jnp.less, jnp.greater_equal, jnp.greater, jnp.equal, jnp.not_equal
)  # fmt: skip
"""By the number of a mode; one more, `_MEMBER`, asks whether a number is in a set."""
_AVERAGE, _SUM, _MIN, _MAX = range(4)


@dataclass(frozen=True)
class _Trees:
    """Tables of the places in all trees: nodes first, then leaves, which lead to themselves.

    nodes: how many. yes, no: the place after one. sets: for every place a row of `members`, which NaN fills up. depth:
    how many steps lead from any root to a leaf. targets, weights: of leaves.
    """

    nodes: int
    roots: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    features: np.ndarray
    splits: np.ndarray
    modes: np.ndarray
    missing: np.ndarray
    sets: np.ndarray
    members: np.ndarray
    depth: int
    targets: np.ndarray
    weights: np.ndarray


@op("TreeEnsemble", since=5, domain=ML)
def tree_ensemble(node: Node, x: Any) -> Any:
    """TreeEnsemble of ai.onnx.ml: rows [N, F] to what the leaves that they come to add to every target."""
    if x.ndim != 2:
        raise node.malformed(f"its input is rows of features [N, F], found rank {x.ndim}")
    count, aggregate, after = node["n_targets"], node["aggregate_function"], node["post_transform"]
    if count is None or count < 1:
        raise node.malformed(f"n_targets is at least 1, found {count}")
    if aggregate not in (_AVERAGE, _SUM, _MIN, _MAX) or after not in _TRANSFORMS:
        raise node.malformed(
            f"aggregate_function is 0 to 3 and post_transform 0 to 4, found {aggregate} and {after}"
        )  # fmt: skip
    trees = _trees(node, x.shape[1], count)
    at = jnp.broadcast_to(jnp.asarray(trees.roots), (x.shape[0], len(trees.roots)))
    if trees.depth <= MOST_UNROLLED:
        for _ in range(trees.depth):
            at = _step(trees, x, at)
    else:
        at = lax.scan(lambda places, _: (_step(trees, x, places), None), at, length=trees.depth)[0]
    wide = jnp.promote_types(x.dtype, jnp.float32)
    leaf = at - trees.nodes
    weights = jnp.asarray(_as(wide, trees.weights))[leaf][..., None]
    chosen = jnp.asarray(trees.targets)[leaf][..., None] == np.arange(count, dtype=np.int32)
    scores = _aggregated(aggregate, weights, chosen, float(jnp.finfo(x.dtype).max))
    return _TRANSFORMS[after](scores).astype(x.dtype)


def _step(trees: _Trees, x: Any, at: Any) -> Any:
    """The places after those in `at`, one a row and tree."""

    def of(table: np.ndarray) -> Any:
        return jnp.asarray(table)[at]

    value = jnp.take_along_axis(x, of(trees.features), axis=1)
    holds = None
    for number in sorted(set(trees.modes[: trees.nodes].tolist())):
        if number == _MEMBER:
            members = jnp.asarray(_as(x.dtype, trees.members))[of(trees.sets)]
            says = jnp.any(members == value[..., None], axis=-1)
        else:
            says = _COMPARE[number](value, of(_as(x.dtype, trees.splits)))
        holds = says if holds is None else jnp.where(of(trees.modes) == number, says, holds)
    assert holds is not None  # there is a node, or no step
    if trees.missing.any():
        holds = holds | (of(trees.missing) & jnp.isnan(value))
    return jnp.where(holds, of(trees.yes), of(trees.no))


def _as(dtype: Any, numbers: np.ndarray) -> np.ndarray:
    """In the type that is computed in; what lies beyond it is infinite there, and compares as it did."""
    with np.errstate(over="ignore"):
        return numbers.astype(dtype)


def _aggregated(function: int, weights: Any, chosen: Any, largest: float) -> Any:
    """Per row and target, over trees; a target to which no leaf adds is 0, or the `largest` number for a minimum and
    its negative for a maximum, as in ONNX's reference implementation.
    """
    if function in (_MIN, _MAX):
        none = largest if function == _MIN else -largest
        return (jnp.min if function == _MIN else jnp.max)(jnp.where(chosen, weights, none), axis=1)
    total = jnp.sum(jnp.where(chosen, weights, 0), axis=1)
    return total / chosen.shape[1] if function == _AVERAGE else total


def _softmax_zero(scores: Any) -> Any:
    """Softmax of the scores that are not 0; the others stay 0, and where all are, each is a half."""
    exponential = jnp.where(jnp.abs(scores) > 1e-7, jnp.exp(scores - jnp.max(scores, -1, keepdims=True)), 0)
    total = jnp.sum(exponential, axis=-1, keepdims=True)
    return jnp.where(total == 0, 0.5, exponential / jnp.where(total == 0, 1, total))


_TRANSFORMS: dict[int, Callable[[Any], Any]] = {
    0: lambda scores: scores,
    1: lambda scores: jax.nn.softmax(scores, axis=-1),
    2: jax.nn.sigmoid,
    3: _softmax_zero,
    4: lambda scores: sqrt(2) * lax.erf_inv(2 * scores - 1),
}
"""NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO, PROBIT: over the targets of a row."""


# -- reading the attributes ------------------------------------------------------------------------------------------


def _trees(node: Node, features: int, targets: int) -> _Trees:
    nodes, leaves = len(node["nodes_featureids"] or ()), len(node["leaf_targetids"] or ())

    def table(key: str, count: int, below: int) -> np.ndarray:
        stated = node[key]
        numbers = np.asarray(() if stated is None else stated, np.int64)
        if numbers.shape != (count,) or (count and not (numbers.min() >= 0 and numbers.max() < below)):
            text = f" from {numbers.min()} to {numbers.max()}" if numbers.size else ""
            raise node.malformed(
                f"{key} has {count} numbers, each at least 0 and below {below}, found {numbers.size}{text}"
            )
        return numbers.astype(np.int32)

    def branch(way: str) -> np.ndarray:
        ends = table(f"nodes_{way}leafs", nodes, 2)
        to = table(f"nodes_{way}nodeids", nodes, max(nodes, leaves))
        if np.any(to >= np.where(ends, leaves, nodes)):
            raise node.malformed(f"nodes_{way}nodeids leads to a node or leaf that is not there ({nodes} and {leaves})")
        return np.concatenate([np.where(ends, nodes + to, to), nodes + np.arange(leaves)]).astype(np.int32)

    def padded(values_of_nodes: np.ndarray) -> np.ndarray:
        return np.concatenate([values_of_nodes, np.zeros(leaves, values_of_nodes.dtype)])

    roots = table("tree_roots", len(node["tree_roots"] or ()), nodes)
    yes, no = branch("true"), branch("false")
    modes = table("nodes_modes", nodes, _MEMBER + 1)
    missing = node["nodes_missing_value_tracks_true"]
    sets, members = _members(node, modes)
    if not len(roots):
        raise node.malformed("tree_roots is empty; an ensemble has at least one tree")
    return _Trees(
        nodes, roots, yes, no, padded(table("nodes_featureids", nodes, features)),
        padded(_numbers(node, "nodes_splits", nodes)), padded(modes),
        padded(table("nodes_missing_value_tracks_true", nodes, 2).astype(bool) if missing else np.zeros(nodes, bool)),
        padded(sets), members, _depth(node, roots.tolist(), yes.tolist(), no.tolist(), nodes),
        table("leaf_targetids", leaves, targets), _numbers(node, "leaf_weights", leaves),
    )  # fmt: skip


def _numbers(node: Node, key: str, count: int) -> np.ndarray:
    stated = node[key]
    numbers = np.asarray(() if stated is None else stated)
    if numbers.shape != (count,):
        raise node.malformed(f"{key} has {count} numbers, found {numbers.size}")
    return numbers


def _members(node: Node, modes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For every node the row of its set, and the sets, which stand in the order of the nodes that ask for one."""
    stated = node["membership_values"]
    values = np.asarray(() if stated is None else stated, np.float64).reshape(-1)
    ends = np.flatnonzero(np.isnan(values))
    sets = [part[~np.isnan(part)] for part in np.split(values, ends + 1)]
    if not len(sets[-1]):
        sets.pop()  # after the last delimiter
    asking = modes == _MEMBER
    if len(sets) != asking.sum():
        raise node.malformed(
            f"membership_values has a set, delimited by NaN, for each of the {asking.sum()} nodes that ask for one, "
            f"found {len(sets)}"
        )
    members = np.full((max(len(sets), 1), max([1, *map(len, sets)])), np.nan)
    for row, its in zip(members, sets, strict=False):
        row[: len(its)] = its
    return np.where(asking, np.cumsum(asking) - 1, 0).astype(np.int32), members


def _depth(node: Node, roots: Sequence[int], yes: Sequence[int], no: Sequence[int], nodes: int) -> int:
    """How many steps lead from a root to a leaf, at most."""
    steps = [-1] * nodes + [0] * (len(yes) - nodes)  # -1: not known yet
    opened = [False] * len(yes)
    todo = list(roots)
    while todo:
        at = todo[-1]
        if steps[at] >= 0:
            todo.pop()
            continue
        below = (yes[at], no[at])
        if opened[at]:
            steps[at] = 1 + max(steps[b] for b in below)
            continue
        opened[at] = True
        for b in below:
            if steps[b] < 0:
                if opened[b]:
                    raise node.malformed(f"nodes_truenodeids and nodes_falsenodeids lead from node {b} back to it")
                todo.append(b)
    return max(steps[r] for r in roots)
