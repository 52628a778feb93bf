"""Arrays that are copied before a part of them is written, because they are still the caller's.

An update (``dynamic_update_slice``, a scatter) writes into the memory of its operand. That of an input that is not
donated stays as it was, so that compilers copy all of it first: each time, or where the array is carried through a loop
once, before the first trip. What a scan takes apart (its ``xs``) stays as it was, too, donated or not: a trip that
writes into its slice copies the slice. Where it is a donated input and the slices make up an output (``ys``), which
then has to lie where it lay, all of it is copied there once more when the scan is done. A copy is not fused with
anything: it reads and writes all bytes at the memory's rate.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from autoshard.costmodels.compiled import WorkKind
from autoshard.costmodels.machine import Machine
from autoshard.costs.critical import entries_of
from autoshard.costs.trips import body_trips
from autoshard.costs.work import element_bytes, is_update, local_elements
from autoshard.program.program import Block, Op, Program

TOLD_FROM: Final = 0.01
"""Share of a step from which on copies are told."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """What stays as it was. input: its number, None for an array of the program's own. copies: for each update of it.

    sliced: whether it is a slice of what a scan takes apart.
    """

    input: int | None
    copies: float = 1.0
    sliced: bool = False


def copies_of_inputs(program: Program) -> dict[int, float]:
    """Op -> how often, in each execution of it, its first operand is copied: less than once for one in a loop."""
    return {op: kept.copies for op, kept in _copied(program).items()}


def notes_on_copies(program: Program, op_seconds: Mapping[int, float]) -> list[str]:
    """A sentence for each array whose copies take a part of the step that is worth telling. op_seconds: by op."""
    taken: dict[tuple[bool, int], float] = {}
    for op, kept in _copied(program).items():
        which = (kept.sliced, -1 if kept.input is None else kept.input)
        taken[which] = taken.get(which, 0.0) + op_seconds.get(op, 0.0)
    whole = sum(op_seconds.values())
    told = [(*which, seconds / whole) for which, seconds in sorted(taken.items()) if seconds >= TOLD_FROM * whole > 0]
    return [
        f"{program.input_names[number] if number >= 0 else 'an array of the program'} is scanned over and written in "
        f"part: each trip of the scan copies its slice, {share:.0%} of the work; carrying the array through the scan "
        "and writing there into the whole of it spares that"
        if sliced
        else f"{program.input_names[number]} is written in part and not donated: each step copies all of it first, "
        f"{share:.0%} of the work; donating it (donate_argnums, `donate` of a config) spares that where the "
        "caller does not need the old one"
        for sliced, number, share in told
    ]


def _copied(program: Program) -> dict[int, _Kept]:
    """Op -> what it writes in part, with its copies in each execution."""
    own = {*program.donated, *program.host_inputs}  # what comes from the host is a copy already
    found: dict[int, _Kept] = {}
    names: dict[int, int] = {value: number for number, value in enumerate(program.body.args)}
    waiting: list[tuple[Block, dict[int, _Kept]]] = [
        (program.body, {value: _Kept(number) for value, number in names.items() if number not in own})
    ]
    while waiting:
        block, kept = waiting.pop()
        for op in block.ops:
            if is_update(op) and op.operands[0] in kept:
                found[op.id] = kept[op.operands[0]]
            if not op.regions or op.kind == "shard_map":
                continue
            entries = entries_of(op)
            inside = {inner: kept[outer] for outer, inner in entries if outer in kept}
            names |= {inner: names[outer] for outer, inner in entries if outer in names}
            for number, region in enumerate(op.regions):
                entered = {
                    arg: replace(inside[arg], copies=inside[arg].copies * share)
                    for place, arg in enumerate(region.args)
                    if arg in inside and (share := _share(op, number, place))
                }
                entered |= _slices(op, region, names, program)
                if entered:
                    waiting.append((region, entered))
    return found


def _slices(op: Op, region: Block, names: Mapping[int, int], program: Program) -> dict[int, _Kept]:
    """The slices of what a scan takes apart: copied once in a trip, twice where they go back to a donated input."""
    if op.kind != "scan":
        return {}
    first = op.attrs["num_consts"] + op.attrs["num_carry"]
    stacked = [program.type_of(v) for v in op.results[op.attrs["num_carry"] :] if v in program.body.results]
    back = [
        v in program.body.args and names[v] in program.donated and program.type_of(v) in stacked
        for v in op.operands[first:]
    ]
    return {
        arg: _Kept(names.get(arg), 2.0 if twice else 1.0, sliced=True)
        for arg, twice in zip(region.args[first:], back, strict=True)
    }


def _share(op: Op, region: int, place: int) -> float:
    """Copies of an argument of a region for each time that it runs, where the region writes into it: slices of a scan
    are told apart (`_slices`), and how often a loop runs may not be known.
    """
    if op.kind == "scan":
        constants, carries = op.attrs["num_consts"], op.attrs["num_carry"]
        if place < constants:
            return 1.0
        return 1.0 / max(1, body_trips(op, region)) if place < constants + carries else 0.0
    if op.kind == "while":
        constants = op.attrs["body_nconsts"] if region else op.attrs["cond_nconsts"]
        trips = body_trips(op, region, 0)
        return 1.0 if place < constants else 1.0 / trips if region and trips else 0.0
    return 1.0


def copied_bytes(op: Op, program: Program, sizes: np.ndarray, copies: float) -> np.ndarray:
    """[placement] bytes that cross memory for the copies that one execution of an update stands for."""
    assert op.rule is not None
    return 2.0 * copies * local_elements(op.rule.operands[0], sizes) * element_bytes(program, op.operands[0])


def copied_s(op: Op, program: Program, sizes: np.ndarray, copies: float, machine: Machine) -> np.ndarray:
    """[placement] seconds of these copies, which nothing hides."""
    moved = copied_bytes(op, program, sizes, copies)
    return np.asarray(machine.work_s(WorkKind.KERNEL, 0.0, moved, program.type_of(op.operands[0]).dtype), np.float64)
