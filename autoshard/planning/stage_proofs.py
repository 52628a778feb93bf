"""What each stage was proved about: the placements that it was decided under, told in the plan and made of it again.

A stage takes as given what its statements propagate, without what could not be kept (``left_out``), and what stages
before it placed (``placed``). So whoever has the statements and the stages of a plan can make the network of each
stage again, and have the certificate of its bound judged on it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autoshard.errors import InputError, in_words
from autoshard.formulation.fixed import Cut, Fixed
from autoshard.formulation.pieces import Left, Piece, part_of, pieces_of
from autoshard.plan_record import StageRecord
from autoshard.planning.problem import Problem

_FIELDS = (
    ("inputs", "values"), ("boundaries", "values"), ("shared", "forms"), ("outputs", "outputs"), ("ops", "ops"),
)  # fmt: skip
"""How plan.json names the fields of `Fixed`; those of inputs and of arguments of regions apart."""


def placed_words(now: Fixed, problem: Problem, before: Sequence[Fixed] = ()) -> dict[str, Any]:
    """Placements as they stand in plan.json: atoms by dimension of values, by factor of ops; without those that stand
    in `before` just so.
    """
    program, names = problem.program, problem.mesh.names
    args = set(program.body.args)

    def text(what: str, cuts: Mapping[int, Cut]) -> dict[str, list[list[str]]]:
        return {
            str(key): [[names[a] for a in atoms] for atoms in cut]
            for key, cut in sorted(cuts.items())
            if all(getattr(earlier, what).get(key) != cut for earlier in before)
        }

    inputs = {v: cut for v, cut in now.values.items() if v in args}
    return {
        "inputs": text("values", inputs),
        "boundaries": text("values", {v: c for v, c in now.values.items() if v not in inputs}),
        "shared": text("forms", now.forms),
        "outputs": text("outputs", now.outputs),
        "ops": text("ops", now.ops),
    }


def placed_of(words: Mapping[str, Any], problem: Problem) -> Fixed:
    """The inverse of `placed_words`. `InputError` where the words cannot be read."""
    atoms = {name: k for k, name in enumerate(problem.mesh.names)}
    cuts: dict[str, dict[int, Cut]] = {what: {} for _, what in _FIELDS}
    try:
        for kind, what in _FIELDS:
            for key, lists in (words.get(kind) or {}).items():
                cuts[what][int(key)] = tuple(tuple(atoms[name] for name in names) for names in lists)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"what a stage of the plan placed cannot be read: {in_words(error)}") from None
    return Fixed(**cuts)


def left_out(left: Left, wanted: Fixed, kept: Fixed, problem: Problem) -> dict[str, Any]:
    """What the model decides of the placements that a stage wanted, and that are not kept; nothing where all are."""
    have = set(pieces_of(kept))
    lost = [piece for piece in pieces_of(wanted) if left.decides(piece) and piece not in have]
    return placed_words(part_of(wanted, lost), problem) if lost else {}


def fixed_by_stage(
    left: Left, given: Sequence[Fixed], stages: Sequence[StageRecord], problem: Problem
) -> Iterator[tuple[Fixed, ...]]:
    """The placements that each stage of a plan was decided under. given: what its statements propagate, by stage."""
    fixed: list[Fixed] = []
    for wanted, stage in zip(given, stages, strict=True):
        lost = set(pieces_of(placed_of(stage.left_out, problem)))
        kept = [piece for piece in pieces_of(wanted) if left.decides(piece) and piece not in lost]
        fixed.append(part_of(wanted, kept))
        yield tuple(fixed)
        fixed.append(placed_of(stage.placed, problem))


def untold(stages: Sequence[StageRecord], number: int, problem: Problem) -> list[Piece]:
    """What a stage left out and neither it nor one before it tells as relaxed."""
    told = {piece for stage in stages[: number + 1] for entry in stage.relaxed for piece in relaxed_of(entry, problem)}
    return [piece for piece in pieces_of(placed_of(stages[number].left_out, problem)) if piece not in told]


def relaxed_of(entry: Mapping[str, Any], problem: Problem) -> list[Piece]:
    """The places that an entry of ``relaxed`` speaks of. `InputError` where it cannot be read."""
    try:
        what, atom = dict(_FIELDS)[entry["what"]], problem.mesh.names.index(entry["axes"][-1])
        return [Piece(what, int(key), int(entry["on"]), atom) for key in entry["keys"]]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InputError(f"what a stage could not keep cannot be read: {in_words(error)}") from None
