"""Outputs that take the place of donated inputs."""

from autoshard.verify.plan.program import Graph


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
