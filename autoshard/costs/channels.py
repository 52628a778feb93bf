"""How much of the matrix unit the channels of a convolution fill.

A convolution is a matmul at each place of its window: input by output channels, which the unit takes in whole tiles.
Of its two sides the one with fewer channels fills the unit's tile (`matmul_tile` of the profile), the other one lanes
of 128; the gradient of a kernel sums over places, and only the side with more channels has to fill a tile. It holds on
machines whose profile says so (`pads_channels` of `CompiledWork`, docs/costmodels.md).
"""

import numpy as np

from autoshard.costs.tiles import LANES
from autoshard.program.rule import ShardingRule


def share_of_unit(rule: ShardingRule, sizes: np.ndarray, tile: int) -> np.ndarray:
    """[placement] the share of the matrix unit that the channels of a convolution fill; 1 with groups.

    sizes: [placement, factor] on one device. tile: the unit's, in elements.
    """
    ones = np.ones(len(sizes))
    left, kernel, result = ({f for dim in tensor for f in dim} for tensor in (*rule.operands, *rule.results))
    if any(rule.factor_sizes[f] > 1 for f in left & kernel & result):
        return ones

    def channels(factors: set[int]) -> np.ndarray:
        return sizes[:, sorted(factors)].prod(axis=1) if factors else ones

    features = channels(kernel & result)
    if is_of_kernel(rule):
        return _filled(np.maximum(channels((left & result) - kernel), features), tile)
    taken = channels((left & kernel) - result)
    return _filled(np.minimum(taken, features), tile) * _filled(np.maximum(taken, features), min(tile, LANES))


def is_of_kernel(rule: ShardingRule) -> bool:
    """Whether a convolution is the gradient of a kernel: its window is the image, or larger than what it makes."""
    left, kernel, result = ({f for dim in tensor for f in dim} for tensor in (*rule.operands, *rule.results))
    summed = [dim for dim in rule.operands[1] if dim and left.issuperset(dim) and result.isdisjoint(dim)]
    if sum(np.prod([rule.factor_sizes[f] for f in dim]) > 1 for dim in summed) > 1:
        return True
    own = (left - kernel - result, kernel - left - result, result - left - kernel)
    image, window, made = (np.prod([rule.factor_sizes[f] for f in factors]) for factors in own)
    return bool(image > 1 and window > made)


def _filled(channels: np.ndarray, tile: int) -> np.ndarray:
    """The share of its tiles that channels fill; 1 where there are none to fill."""
    return np.where(channels > 0, channels / np.maximum(np.ceil(channels / tile) * tile, 1), 1.0)
