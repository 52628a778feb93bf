"""Striping of context parallelism: an order of the sequence in which every shard does the same causal work.

With n shards the sequence is cut in 2n chunks and shard i holds chunks i and 2n-1-i (S3.19; MaxText,
docs/guides/optimization/ sharding.md). It is a permutation of the program's input, done once and not per layer
(S3.20); positions and causal masks must be those of the permuted tokens. A causal mask computed as ``column <= row``
prices and runs the whole square either way, so plans of such programs gain nothing by it; kernels that skip masked
blocks do.
"""

import numpy as np

from autoshard.errors import InputError


def striped_order(seq: int, shards: int) -> np.ndarray:
    """Positions of the sequence in the order in which they are laid out over `shards`; `take` it along the sequence.

    >>> striped_order(8, 2).tolist()
    [0, 1, 6, 7, 2, 3, 4, 5]
    """
    if shards < 1 or seq < 1 or seq % (2 * shards):
        raise InputError(f"a sequence of {seq} cannot be striped over {shards} shards: 2 x {shards} must divide it")
    chunks = np.arange(seq).reshape(2 * shards, -1)
    return np.concatenate([chunks[[i, 2 * shards - 1 - i]].ravel() for i in range(shards)])


def unstriped_order(seq: int, shards: int) -> np.ndarray:
    """The inverse order: taking `striped_order` and then this one gives the sequence back.

    >>> unstriped_order(8, 2).tolist()
    [0, 1, 4, 5, 6, 7, 2, 3]
    """
    return np.argsort(striped_order(seq, shards), kind="stable")
