"""Propagated shardings as per-node data for a graph viewer (S2.54)."""

from typing import Any

from autoshard.program.program import Program
from autoshard.propagation.program.propagate import Propagated


def overlay(program: Program, found: Propagated) -> dict[str, dict[str, Any]]:
    """For every value by name: shape, sharding, the op that makes it and, where traced, the origin of each axis.

    Plain data, ready for ``json.dumps``; a viewer lays it over the nodes of the same names.
    """
    maker = {result: op for op in program.ops.values() for result in op.results}
    out: dict[str, dict[str, Any]] = {}
    for value, sharding in found.values.items():
        entry: dict[str, Any] = {
            "shape": list(program.type_of(value).shape),
            "sharding": str(sharding),
            "op": maker[value].kind if value in maker else program.values[value].origin.value,
        }
        if found.provenance is not None:
            entry["origins"] = {
                str(p.axis): program.values[p.origin].name if p.origin >= 0 else "output"
                for p in found.provenance.get(value, ())
            }
        out[program.values[value].name] = entry
    return out
