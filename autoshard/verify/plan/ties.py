"""Outputs that take the place of donated inputs."""

from collections.abc import Iterable, Mapping
from math import prod

from autoshard.verify.plan.program import Graph, carries, element_bytes
from autoshard.verify.plan.rules import Rule


def donated_ties(graph: Graph) -> dict[int, int]:
    """Output slot -> the donated input whose place it takes: the same path behind a prefix, and the same type.

    Arguments are taken by position. Each gets the prefix of output names (up to four steps) that ties most of the still
    free outputs to it; of several such prefixes the one that ends in its name, then the shortest, then the first.
    """
    ties: dict[int, int] = {}
    values, results = graph.values, graph.body.results
    leaves: dict[str, dict[str, int]] = {}
    for k in sorted(graph.donated):
        argument, slash, rest = graph.input_names[k].partition("/")
        leaves.setdefault(argument, {})[slash + rest] = graph.body.args[k]
    for argument, paths in leaves.items():
        candidates: dict[tuple[str, ...], dict[int, int]] = {}
        for slot, name in enumerate(graph.output_names):
            steps = name.split("/")
            for n in range(1, min(len(steps), 4) + 1):
                source = paths.get("".join(f"/{step}" for step in steps[n:]))
                if source is not None and slot not in ties:
                    a, b = values[source], values[results[slot]]
                    if a.shape == b.shape and a.dtype == b.dtype:
                        candidates.setdefault(tuple(steps[:n]), {})[slot] = source
        best = sorted(candidates, key=lambda p: (-len(candidates[p]), p[-1] != argument, len(p), min(candidates[p])))
        ties.update(candidates[best[0]] if best else {})
    return ties


def written_over(graph: Graph) -> set[int]:
    """Donated inputs, by number, whose memory an output on the device gets; the others stay as they are to the end.

    Inputs whose place an output takes by its path come first. Of the rest each gets, in order, an output of as many
    elements of as many bytes that no other input has.
    """

    def size(v: int) -> tuple[int, float]:
        return prod(graph.values[v].shape), element_bytes(graph.values[v].dtype)

    results, ties = graph.body.results, donated_ties(graph)
    waiting = {v: k for k, v in enumerate(graph.body.args) if k in graph.donated and k not in graph.host_inputs}
    out, left = set[int](), list[tuple[int, float]]()
    for slot, v in enumerate(results):
        if slot in graph.host_outputs:
            continue
        if slot not in ties:
            left.append(size(v))
        elif ties[slot] in waiting:
            out.add(waiting.pop(ties[slot]))
    for v, k in waiting.items():
        if size(v) in left:
            left.remove(size(v))
            out.add(k)
    return out


def next_values(graph: Graph) -> dict[int | None, set[int]]:
    """Donated inputs and carries of loops -> the values that lie there in the end; under None all that are handed on.

    Results of the program and of bodies of loops are handed on, but for what a scan stacks.
    """
    ties = donated_ties(graph)
    found: dict[int | None, set[int]] = {None: set(graph.body.results)}
    pairs = [(ties[k], v) for k, v in enumerate(graph.body.results) if k in ties and k not in graph.host_outputs]
    for op in graph.nodes.values():
        if places := carries(op):
            handed = op.regions[-1].results[: len(places)]
            found[None] |= set(handed)
            pairs += zip(places, handed, strict=True)
    for place, v in pairs:
        found.setdefault(place, set()).add(v)
    return found


def open_places(next_of: Mapping[int | None, set[int]], arrays: Iterable[int], result: int) -> list[int]:
    """The arrays that a result may be written over: where it is handed on, none in whose place another has to lie."""
    return [v for v in arrays if v not in next_of or result in next_of[v] or result not in next_of[None]]


def rolled_again(graph: Graph, rules: Mapping[int, Rule]) -> set[int]:
    """Rolls of arrays that are rolled along the same dimension twice or more; each lies in two parts."""
    rolls = [op for op in graph.nodes.values() if op.kind == "roll" and op.id in rules]
    along = [(op.operands[0], rules[op.id].uncut) for op in rolls]
    return {op.results[0] for op, where in zip(rolls, along, strict=True) if along.count(where) > 1}
