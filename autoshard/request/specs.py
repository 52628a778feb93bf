"""Baselines that are stated as shardings: pytrees of PartitionSpecs, or the constraints in the code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from autoshard.constraints import MatchedPin, Pin
from autoshard.constraints.in_code import statements_in_code
from autoshard.errors import InputError
from autoshard.program.program import Program
from autoshard.request.arguments import match_jax_pins
from autoshard.sharding.mesh import Mesh
from autoshard.strategies.stated import StatedShardings

if TYPE_CHECKING:
    from autoshard.frontends.jax.function import TracedFunction

IN_CODE = "in code"
"""Name of the baseline made of the shardings in the code, where these are hints."""

_SIDES = ("in_shardings", "out_shardings")


def is_stated(baseline: Any) -> bool:
    """Whether a baseline is given as shardings of arguments or results."""
    return isinstance(baseline, Mapping) and any(side in baseline for side in _SIDES)


def with_stated(baselines: Sequence[Any], traced: TracedFunction, program: Program, mesh: Mesh) -> list[Any]:
    """The baselines, with PartitionSpecs read as shardings, and behind them the hints in the code.

    program: that of `traced`, with the request's changes to it. Raises `InputError` where a tree does not fit the
    arguments or the result, `ShardingError` where a sharding does not fit: names of axes, ranks, sizes.
    """
    read = [read_stated(baseline, traced, program, mesh) if is_stated(baseline) else baseline for baseline in baselines]
    if program.in_code == "hints":
        pins, _ = statements_in_code(replace(program, in_code="hard"), mesh)
        read += [StatedShardings(IN_CODE, pins)] if pins else []
    return read


def read_stated(
    given: Mapping[str, Any], traced: TracedFunction, program: Program, mesh: Mesh, what: str = "baseline"
) -> StatedShardings:
    """What is given as pytrees of PartitionSpecs; raises as `with_stated` does. what: its name in messages."""
    from autoshard.interop.jax import spread_specs

    name, unknown = given.get("name"), sorted(set(given) - {"name", *_SIDES})
    if not isinstance(name, str) or not name or unknown:
        what = f"found the key {unknown[0]!r}" if unknown else f"found the name {name!r}"
        raise InputError(
            f"a {what} of shardings is {{'name': 'mine', 'in_shardings': ..., 'out_shardings': ...}} with pytrees of "
            f"PartitionSpecs as of jax.jit, {what}"
        )
    pins: list[MatchedPin] = []
    for side, names, tree in zip(
        _SIDES, (program.input_names, program.output_names), (traced.in_tree, traced.out_tree), strict=True
    ):
        where = f"{what} {name}: {side}"
        for path, spec in zip(names, spread_specs(given.get(side), tree, where), strict=True):
            if spec is not None:
                pins += match_jax_pins([Pin(path, spec, source=where)], program, mesh)
    return StatedShardings(name, tuple(pins))
