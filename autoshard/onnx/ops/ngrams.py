"""N-grams: how often those of a pool are found in sequences of whole numbers."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from autoshard.onnx.ops.registry import Node, op

_MODES: dict[str, Callable[[Any, np.ndarray], Any]] = {
    "TF": lambda counts, weights: counts.astype(weights.dtype),
    "IDF": lambda counts, weights: jnp.where(counts > 0, weights, jnp.zeros((), weights.dtype)),
    "TFIDF": lambda counts, weights: counts * weights,
}


@dataclass(frozen=True)
class _Grams:
    """The n-grams of one size, one a row, with their coordinates in the result and their weights."""

    numbers: np.ndarray
    coordinates: np.ndarray
    weights: np.ndarray


@op("TfIdfVectorizer", since=9)
def tfidf_vectorizer(node: Node, x: Any) -> Any:
    """TfIdfVectorizer of whole numbers: every n-gram of the pool is compared at every place, at every skip.

    A weight is that of an n-gram of the pool, as ONNX says and onnxruntime computes; its reference implementation takes
    it for that of a coordinate of the result.
    """
    if node["pool_strings"]:
        raise node.unsupported("pool_strings: strings cannot be computed with; number the words and give pool_int64s")
    if x.ndim not in (1, 2):
        raise node.malformed(f"its input is one row [C] or rows [N, C], found rank {x.ndim}")
    if node["mode"] not in _MODES:
        raise node.malformed(f"mode is one of {', '.join(_MODES)}, found {node['mode']!r}")
    shortest, longest, skips = node["min_gram_length"], node["max_gram_length"], node["max_skip_count"]
    if not (1 <= shortest <= longest and skips >= 0):
        raise node.malformed(
            f"n-grams of {shortest} to {longest} numbers with up to {skips} skipped are none: min_gram_length is at "
            "least 1 and at most max_gram_length, max_skip_count at least 0"
        )
    pool, size = _pool(node)
    result = jnp.zeros((*x.shape[:-1], size), jnp.float32)
    for grams in pool:
        if len(grams.numbers) and shortest <= grams.numbers.shape[1] <= longest:
            values = _MODES[node["mode"]](_counts(x, grams.numbers, skips), grams.weights)
            result = result.at[..., grams.coordinates].add(values)
    return result


def _counts(x: Any, grams: np.ndarray, skips: int) -> Any:
    """How often each of `grams` (one a row) is in `x`, its numbers `step` places apart; steps are all the same for one
    number.
    """
    size = grams.shape[1]
    x = x.astype(grams.dtype)
    total = jnp.zeros((*x.shape[:-1], len(grams)), jnp.int32)
    for step in range(1, 2 if size == 1 else skips + 2):
        starts = x.shape[-1] - step * (size - 1)
        if starts <= 0:
            break
        matches: Any = None
        for k in range(size):
            here = lax.slice_in_dim(x, k * step, k * step + starts, axis=-1)[..., None] == grams[:, k]
            matches = here if matches is None else matches & here
        total = total + jnp.sum(matches, axis=-2, dtype=jnp.int32)
    return total


def _pool(node: Node) -> tuple[list[_Grams], int]:
    """The pool by size of n-gram, and how many coordinates the result has."""
    numbers = np.asarray(node["pool_int64s"] or (), np.int64)
    coordinates = np.asarray(node["ngram_indexes"] or (), np.int64)
    weights = np.asarray(node["weights"] or np.ones(len(coordinates)), np.float32)
    limits = np.iinfo(jax.dtypes.canonicalize_dtype(np.int64))
    if numbers.size and (numbers.min() < limits.min or numbers.max() > limits.max):
        raise node.unsupported(
            f"pool_int64s from {numbers.min()} to {numbers.max()} do not fit into {limits.dtype}; set jax_enable_x64"
        )
    pool, first = [], 0
    for grams in _by_size(node, numbers.astype(limits.dtype)):
        its = slice(first, first + len(grams))
        pool.append(_Grams(grams, coordinates[its].astype(np.int32), weights[its]))
        first += len(grams)
    if not first or len(coordinates) != first or coordinates.min() < 0:
        raise node.malformed(
            f"ngram_indexes has one coordinate, at least 0, for each of the {first} n-grams of the pool, found "
            f"{len(coordinates)}{f' from {coordinates.min()} on' if len(coordinates) else ''}"
        )
    if len(weights) != first:
        raise node.malformed(f"weights has one for each of the {first} n-grams of the pool, found {len(weights)}")
    if node["mode"] == "IDF" and len(np.unique(coordinates)) != first:
        raise node.unsupported("n-grams share a coordinate, and ONNX does not say which of them counts in mode IDF")
    return pool, int(coordinates.max()) + 1


def _by_size(node: Node, numbers: np.ndarray) -> list[np.ndarray]:
    """The 1-grams, the 2-grams and so on of the pool."""
    bounds = [*(node["ngram_counts"] or ()), len(numbers)]
    pools = []
    for size, (start, end) in enumerate(pairwise(bounds), 1):
        if not 0 <= start <= end <= len(numbers) or (end - start) % size:
            raise node.malformed(
                f"ngram_counts takes numbers {start} to {end} of the {len(numbers)} of pool_int64s for {size}-grams; "
                "it has the place of the first 1-gram, 2-gram and so on, whole n-grams apart"
            )
        grams = numbers[start:end].reshape(-1, size)
        if len(np.unique(grams, axis=0)) != len(grams):
            raise node.malformed(f"a {size}-gram is in pool_int64s twice; every one has one coordinate")
        pools.append(grams)
    return pools
