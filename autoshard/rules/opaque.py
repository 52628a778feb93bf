"""Primitives that are known and must run whole; there is no warning, because no user can change that.

Collectives occur only in the body of a user's `shard_map`, whose types are local already and which
is never sharded again.
"""

from autoshard.program.rule import ShardingRule
from autoshard.rules.build import Call
from autoshard.rules.registry import rule

_COLLECTIVES = (
    "all_gather", "all_gather_invariant", "all_gather_reduced", "all_to_all", "axis_index", "pbroadcast", "pmax",
    "pmin", "ppermute", "preduced", "psum", "psum2", "psum_invariant", "ragged_all_to_all", "reduce_scatter",
    "reduced_vary_cast_p", "unreduced_psum", "unreduced_reduce_scatter", "vary_unreduced_cast_p",
)  # fmt: skip


@rule(*_COLLECTIVES)
def collective(call: Call) -> ShardingRule:
    """A collective of the user on local values: every dimension whole."""
    return call.conservative()


@rule("platform_index", "dce_sink")
def without_data(call: Call) -> ShardingRule:
    """Ops whose result is a scalar or empty: every dimension whole."""
    return call.conservative()
