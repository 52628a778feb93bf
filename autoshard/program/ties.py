"""Outputs that take the place of donated inputs."""

from autoshard.program.program import Program


def donated_ties(program: Program) -> dict[int, int]:
    """Output slot -> the donated input it replaces: same type, and the same path behind some output prefix.

    A train step ``(state, batch) -> (state, metrics)`` gives its new state back in the layouts of the old one.
    """
    inputs = dict(zip(program.input_names, program.body.args, strict=False))
    donated = {program.input_names[i] for i in program.donated}
    out: dict[int, int] = {}
    for argument in sorted({name.split("/", 1)[0] for name in donated}):
        suffixes = {n[len(argument) :]: inputs[n] for n in sorted(donated) if n.split("/", 1)[0] == argument}
        best: dict[int, int] = {}
        for prefix in sorted({p for name in program.output_names for p in _prefixes(name)}):
            found: dict[int, int] = {}
            for slot, name in enumerate(program.output_names):
                value = suffixes.get(name[len(prefix) :]) if name.startswith(prefix) else None
                if value is not None and program.type_of(program.body.results[slot]) == program.type_of(value):
                    found[slot] = value
            if len(found) > len(best):
                best = found
        out.update({slot: value for slot, value in best.items() if slot not in out})
    return out


def _prefixes(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:k]) for k in range(1, min(len(parts), 4) + 1)]
