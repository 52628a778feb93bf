"""One node: do the placements of its inputs fit its rule, and where do its outputs lie then (S1.19 to S1.39)?

Inputs that share a factor must cut it alike. A part of the op is given by a shard o of the parallel factors and a shard
k of the reduced ones; the devices that can compute it are the intersection, over the inputs, of those that hold what it
needs. Output shard o lies on the union of these intersections over all k. Where one is empty, no device can compute it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from autoshard.onnx.graph import Dim
from autoshard.onnx.placement import Cut, Placement, canonical_cut, cut_shards, members, replicated, union
from autoshard.onnx.problems import ERROR, WARNING, Problem
from autoshard.onnx.rules.rule import Factors, OpRule

SHOWN_DEVICES = 12


@dataclass(frozen=True)
class Outcome:
    """What follows from the placements of the inputs.

    outputs: where every output lies as the op leaves it (partial results combined); None where that is not known.
    terms: for every shard of the first output the device sets that hold its parts, one for each shard of the reduced
    factors; empty where nothing is combined.
    """

    outputs: tuple[Placement | None, ...]
    problems: tuple[Problem, ...] = ()
    terms: tuple[tuple[int, ...], ...] = ()

    @property
    def fits(self) -> bool:
        """Whether no problem is an error."""
        return not any(p.severity == ERROR for p in self.problems)


def apply_rule(
    rule: OpRule,
    placements: Sequence[Placement | None],
    names: Sequence[str],
    devices: int,
    *,
    strict: bool = False,
) -> Outcome:
    """The outcome of a node with this rule.

    placements: of the inputs; None where an input is absent or its placement is not known. names: how messages call
    the inputs. devices: all devices of the configuration, on which the outputs of a node without inputs lie. strict:
    what proposal 0007 demands is an error where it fails, even if the op does not need it.
    """
    problems: list[Problem] = []
    readers = [(i, f, p) for i, (f, p) in enumerate(zip(rule.inputs, placements, strict=False)) if f and p]
    cuts: list[list[tuple[int, Cut]]] = [[] for _ in rule.sizes]  # of each factor: (input, cut)
    for operand, factors, placement in readers:
        problems += _factor_cuts(rule, operand, factors, placement, names, cuts)
    chosen: list[Cut] = []
    for factor, pieces in enumerate(cuts):
        cut, wrong = _agreed(rule, factor, pieces, names, strict)
        chosen.append(cut)
        problems += wrong
    if strict:
        problems += _strict_broadcasts(rule, placements, names)
    unknown = any(f is not None and p is None for f, p in zip(rule.inputs, placements, strict=False))
    if any(p.severity == ERROR and p.code != "needs-slice" for p in problems) or unknown:
        return Outcome((None,) * len(rule.outputs), tuple(problems))
    sources = [p for f, p in zip(rule.inputs, placements, strict=False) if p and f is not None]
    return _computed(rule, chosen, readers, sources, names, devices, problems)


def _factor_cuts(
    rule: OpRule,
    operand: int,
    factors: Factors,
    placement: Placement,
    names: Sequence[str],
    cuts: list[list[tuple[int, Cut]]],
) -> list[Problem]:
    """Add the cuts of one input to those of the factors; axes whose shards are no blocks of factors are problems."""
    problems = []
    for axis, parts in enumerate(factors):
        cut = placement.cut(axis)
        if not parts:
            continue  # the axis has one element, which is in shard 0
        split = split_cut(cut, [rule.sizes[f] for f in parts])
        if split is None:
            sizes = " x ".join(str(rule.sizes[f]) for f in parts)
            problems.append(
                Problem(
                    "not-blocks",
                    ERROR,
                    f"{names[operand]} is cut in {cut_shards(cut)} along axis {axis}, which the op reads as {sizes}: "
                    "its shards are no blocks of these",
                    f"cut it in a number of shards that divides {rule.sizes[parts[0]]}",
                    operand,
                    axis,
                )
            )
            continue
        for factor, piece in zip(parts, split, strict=True):
            cuts[factor].append((operand, piece))
            if piece and factor in rule.whole:
                problems.append(
                    Problem(
                        "whole-axis",
                        ERROR,
                        f"{names[operand]} is cut in {cut_shards(cut)} along axis {axis}, which the op needs whole",
                        "leave this axis whole for this use, or cut another one",
                        operand,
                        axis,
                    )
                )
    return problems


def split_cut(cut: Cut, sizes: Sequence[Dim]) -> list[Cut] | None:
    """The cut of an axis as cuts of the factors it is a product of; None where its shards are no blocks of them.

    >>> split_cut(((6, 2),), [2, 3]), split_cut(((6, 3),), [2, 3])
    ([((2, 2),), ()], None)
    """
    if len(sizes) == 1:
        return [((sizes[0] if sizes[0] is not None else cut[0][0], cut[0][1]),) if len(cut) == 1 else cut]
    if not cut:
        return [()] * len(sizes)
    known = [n for n in sizes if isinstance(n, int)]
    if len(known) != len(sizes):
        return None
    left: list[tuple[int, int]] = [(prod(known), cut[0][1])] if len(cut) == 1 else []
    if not left:
        left = [(n, m) for n, m in cut if isinstance(n, int)]
        if len(left) != len(cut):
            return None
    out: list[Cut] = []
    for size in known:
        mine: list[tuple[Dim, int]] = []
        need = size
        while need > 1 and left:
            n, m = left.pop(0)
            if n <= need:
                if need % n:
                    return None
                mine.append((n, m))
                need //= n
                continue
            if n % need:
                return None
            rest = n // need
            if need % m == 0:
                mine.append((need, m))
                left.insert(0, (rest, 1))
            elif m % need == 0 and rest % (m // need) == 0:
                mine.append((need, need))
                left.insert(0, (rest, m // need))
            else:
                return None
            need = 1
        out.append(canonical_cut(mine, size) if mine else ())
    return None if any(m > 1 for _, m in left) else out


def _agreed(
    rule: OpRule, factor: int, pieces: Sequence[tuple[int, Cut]], names: Sequence[str], strict: bool
) -> tuple[Cut, list[Problem]]:
    """The cut of a factor that all its inputs agree on, and where they do not."""
    cut_operands = [(operand, cut) for operand, cut in pieces if cut]
    if not cut_operands:
        return (), []
    first, cut = cut_operands[0]
    for operand, other in cut_operands[1:]:
        if other != cut:
            problem = Problem(
                "cut-differently",
                ERROR,
                f"{names[first]} is cut in {_shown(cut)} along axis {_axis(rule, first, factor)} and {names[operand]} "
                f"in {_shown(other)} along axis {_axis(rule, operand, factor)}, which is the same axis of the op",
                "cut both alike",
                operand,
                _axis(rule, operand, factor),
            )
            return cut, [problem]
    problems = []
    if factor not in rule.whole:
        for operand, other in pieces:
            if other:
                continue
            problems.append(
                Problem(
                    "needs-slice",
                    ERROR if strict else WARNING,
                    f"{names[first]} is cut in {_shown(cut)} along axis {_axis(rule, first, factor)} and "
                    f"{names[operand]} is whole along axis {_axis(rule, operand, factor)}: a slice is needed",
                    f"cut {names[operand]} alike",
                    operand,
                    _axis(rule, operand, factor),
                )
            )
    return cut, problems


def _axis(rule: OpRule, operand: int, factor: int) -> int:
    factors = rule.inputs[operand] or ()
    return next(a for a, parts in enumerate(factors) if factor in parts)


def _shown(cut: Cut) -> str:
    return " * ".join(str(m) + (f" of {n}" if len(cut) > 1 else "") for n, m in cut)


def _strict_broadcasts(rule: OpRule, placements: Sequence[Placement | None], names: Sequence[str]) -> list[Problem]:
    """What proposal 0007 demands: an axis of size 1 that is broadcast is on every device of the node (S1.24)."""
    result = rule.outputs[0] if rule.outputs else None
    if not rule.elementwise or result is None:
        return []
    devices = union(p.devices for p in placements if p)
    problems = []
    for operand, (axes, placement) in enumerate(zip(rule.broadcast, placements, strict=False)):
        factors = rule.inputs[operand]
        if placement is None or factors is None:
            continue
        first = len(result) - len(factors)
        problems += [
            Problem(
                "broadcast-replicated",
                ERROR,
                f"axis {axis} of {names[operand]} is broadcast and is not replicated on every device of the node "
                f"({devices_text(devices)})",
                "replicate it there",
                operand,
                axis,
            )
            for axis in axes
            if result[first + axis] and (placement.cut(axis) or placement.devices != devices)
        ]
    return problems


def _computed(
    rule: OpRule,
    cuts: Sequence[Cut],
    readers: Sequence[tuple[int, Factors, Placement]],
    sources: Sequence[Placement],
    names: Sequence[str],
    devices: int,
    problems: list[Problem],
) -> Outcome:
    """The outcome for inputs that fit: intersections and unions of device sets over all shards."""
    counts = [cut_shards(c) for c in cuts]
    parallel = [f for f, n in enumerate(counts) if n > 1 and f not in rule.reduced]
    reduced = [f for f, n in enumerate(counts) if n > 1 and f in rule.reduced]
    common = devices if not sources else ~0
    for placement in sources:
        if len(placement.holders) == 1:
            common &= placement.holders[0]
    moving = [(o, f, p) for o, f, p in readers if len(p.holders) > 1]
    index = [0] * len(counts)
    held: dict[tuple[int, ...], tuple[int, ...]] = {}
    took_part = 0
    missing: Problem | None = None
    for o in product(*(range(counts[f]) for f in parallel)):
        for f, i in zip(parallel, o, strict=True):
            index[f] = i
        sets = []
        for k in product(*(range(counts[f]) for f in reduced)):
            for f, i in zip(reduced, k, strict=True):
                index[f] = i
            meet = common
            for _, factors, placement in moving:
                meet &= placement.at(_shard(factors, placement, index, counts))
            if not meet and missing is None:
                missing = _nothing_meets(readers, index, counts, names)
            took_part |= meet
            sets.append(meet)
        held[o] = tuple(sets)
    if missing is not None:
        return Outcome((None,) * len(rule.outputs), (*problems, missing))
    idle = union(p.devices for p in sources) & ~took_part
    if idle:
        problems.append(
            Problem(
                "idle-devices",
                WARNING,
                f"the devices {devices_text(idle)} hold no complete set of shards and stay idle",
                "give them all that one part of the op needs, or leave them out",
            )
        )
    outputs = tuple(_output(rule, factors, cuts, counts, parallel, held) for factors in rule.outputs)
    terms = _terms(rule, counts, parallel, held) if reduced else ()
    return Outcome(outputs, tuple(problems), terms)


def _shard(factors: Factors, placement: Placement, index: Sequence[int], counts: Sequence[int]) -> tuple[int, ...]:
    """Which shard of an input holds what these shards of the factors need."""
    out = []
    for axis, total in enumerate(placement.counts):
        flat = 0
        if total > 1:
            for f in factors[axis]:
                flat = flat * counts[f] + index[f]
        out.append(flat)
    return tuple(out)


def _output(
    rule: OpRule,
    factors: Factors | None,
    cuts: Sequence[Cut],
    counts: Sequence[int],
    parallel: Sequence[int],
    held: Mapping[tuple[int, ...], tuple[int, ...]],
) -> Placement | None:
    if factors is None:
        return replicated(union(d for sets in held.values() for d in sets)) if not parallel else None
    joined = tuple(_joined_cut([(rule.sizes[f], cuts[f]) for f in parts]) for parts in factors)
    order = [f for parts in factors for f in parts if counts[f] > 1]
    place = {f: i for i, f in enumerate(parallel)}
    holders: dict[tuple[int, ...], int] = {}
    for o, sets in held.items():
        key = tuple(o[place[f]] for f in order)
        holders[key] = holders.get(key, 0) | union(sets)
    return Placement(joined, tuple(holders[key] for key in product(*(range(counts[f]) for f in order))))


def _terms(
    rule: OpRule, counts: Sequence[int], parallel: Sequence[int], held: Mapping[tuple[int, ...], tuple[int, ...]]
) -> tuple[tuple[int, ...], ...]:
    """The device sets that hold the parts of every shard of the first output, shards in its own order."""
    factors = rule.outputs[0] if rule.outputs else None
    order = [f for parts in factors or () for f in parts if counts[f] > 1]
    if sorted(order) != list(parallel):  # nothing is known of that output, or it has not all parallel factors
        return tuple(held.values())
    shards = product(*(range(counts[f]) for f in order))
    return tuple(held[tuple(shard[order.index(f)] for f in parallel)] for shard in shards)


def _joined_cut(parts: Sequence[tuple[Dim, Cut]]) -> Cut:
    """The cut of an axis from those of its factors."""
    if len(parts) == 1:
        return parts[0][1]
    if not any(cut for _, cut in parts):
        return ()
    return canonical_cut([entry for size, cut in parts for entry in (cut or ((size, 1),))])


def _nothing_meets(
    readers: Sequence[tuple[int, Factors, Placement]],
    index: Sequence[int],
    counts: Sequence[int],
    names: Sequence[str],
) -> Problem:
    parts = []
    for operand, factors, placement in readers:
        shard = _shard(factors, placement, index, counts)
        where = f" shard {list(shard)}" if len(placement.holders) > 1 else ""
        parts.append(f"{names[operand]}{where} on {devices_text(placement.at(shard))}")
    return Problem(
        "nothing-meets",
        ERROR,
        f"no device holds all that one part of the op needs: {'; '.join(parts)}",
        "put shards that belong together on common devices",
    )


def devices_text(devices: int) -> str:
    """A set of devices as text, ``{0,1,4}``."""
    numbers = members(devices)
    more = ",..." if len(numbers) > SHOWN_DEVICES else ""
    return "{" + ",".join(map(str, numbers[:SHOWN_DEVICES])) + more + "}"


def without_rule(placements: Sequence[Placement | None], outputs: int, devices: int) -> tuple[Placement | None, ...]:
    """Where outputs of an unknown op lie: with whole inputs, on the devices that hold all of them."""
    common = devices
    for placement in placements:
        if placement is None or not placement.is_whole:
            return (None,) * outputs
        common &= placement.holders[0]
    return (replicated(common) if common else None,) * outputs
