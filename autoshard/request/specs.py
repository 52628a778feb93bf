"""Baselines that are stated as shardings: pytrees of PartitionSpecs, or the constraints in the code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from autoshard.constraints import Pin
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
_CODE = "in_code"
"""Key of a baseline that has the shardings in the code too."""


def is_stated(baseline: Any) -> bool:
    """Whether a baseline is given as shardings of arguments, of results, or in the code."""
    return isinstance(baseline, Mapping) and any(key in baseline for key in (*_SIDES, _CODE))


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

    name, unknown = given.get("name"), sorted(set(given) - {"name", *_SIDES, _CODE})
    with_code = given.get(_CODE, False)
    if not isinstance(name, str) or not name or unknown or not isinstance(with_code, bool):
        found = f"the key {unknown[0]!r}" if unknown else f"the name {name!r}"
        found = found if isinstance(with_code, bool) else f"in_code {with_code!r}"
        raise InputError(
            f"a {what} of shardings is {{'name': 'mine', 'in_shardings': ..., 'out_shardings': ..., 'in_code': True}} "
            f"with pytrees of PartitionSpecs as of jax.jit, and perhaps with the shardings in the code, found {found}"
        )
    stated: list[Pin] = []
    for side, names, tree in zip(
        _SIDES, (program.input_names, program.output_names), (traced.in_tree, traced.out_tree), strict=True
    ):
        where = f"{what} {name}: {side}"
        told = given.get(side)
        if side == "out_shardings" and traced.call is not None and traced.call.updates.handed_back:
            told = (told, None)  # what is stated is the result that the user's function returns
        for path, spec in zip(names, spread_specs(told, tree, where), strict=True):
            if spec is not None:
                stated.append(Pin(path, spec, source=where))
    pins = list(match_jax_pins(stated, program, mesh))
    if with_code:
        pins += statements_in_code(replace(program, in_code="hard"), mesh)[0]
    return StatedShardings(name, tuple(pins))
