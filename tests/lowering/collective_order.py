"""Are the collectives of a compiled program ordered by what they compute from each other? Read from HLO text alone."""

import re

from autoshard.verify.runs.hlo import _callees, _Computation, _Instruction, _parse

COMMUNICATES = re.compile(
    r"(all-gather|all-reduce|reduce-scatter|all-to-all|ragged-all-to-all|collective-permute)(-start)?$"
)


def unordered_collectives(text: str) -> list[tuple[str, str]]:
    """Pairs of collectives, or loops, branches and calls with some inside, neither of which waits for the other.

    Instructions wait for their operands only: an element of a loop that its body hands on as it is waits for what the
    loop was given, not for the loop. A call is one thing: what it is made of is looked at on its own.
    """
    computations, entry = _parse(text)
    found: list[tuple[str, str]] = []
    seen: set[str] = set()
    todo = [entry]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        computation = computations[name]
        found += _unordered(computations, computation)
        todo += [c for i in computation.instructions.values() for c, _ in _callees(i, ()) if _talks(computations, c)]
    return found


def _unordered(computations: dict[str, _Computation], computation: _Computation) -> list[tuple[str, str]]:
    number: dict[str, int] = {}
    before: dict[str, int] = {}  # as bits: the numbers of those an instruction waits for
    out: list[tuple[str, str]] = []
    for name, instruction in computation.instructions.items():  # operands come first
        waits = 0
        for operand in _waited_for(computations, computation, instruction):
            waits |= before[operand]
        if _is_one(computations, instruction):
            out += [(other, name) for other, k in number.items() if not waits >> k & 1]
            number[name] = len(number)
            waits |= 1 << number[name]
        before[name] = waits
    return out


def _waited_for(
    computations: dict[str, _Computation], computation: _Computation, instruction: _Instruction
) -> list[str]:
    operands = [o for o in instruction.operands if o in computation.instructions]
    if instruction.opcode != "get-tuple-element":
        return operands
    (source,) = operands
    loop, index = computation.instructions[source], int(re.findall(r"index=(\d+)", instruction.rest)[0])
    if loop.opcode == "tuple":
        return [loop.operands[index]]
    if loop.opcode != "while":
        return operands
    body = computations[re.findall(r"body=%?([\w.\-]+)", loop.rest)[0]]
    handed = body.instructions[body.root].operands[index] if body.instructions[body.root].opcode == "tuple" else ""
    given = body.instructions.get(handed)
    if given is None or given.opcode != "get-tuple-element" or f"index={index}" not in re.split(r"[, ]", given.rest):
        return operands
    return list(loop.operands) if body.instructions[given.operands[0]].opcode == "parameter" else operands


def _is_one(computations: dict[str, _Computation], instruction: _Instruction) -> bool:
    if COMMUNICATES.match(instruction.opcode):
        return True
    return any(_talks(computations, called) for called, _ in _callees(instruction, ()))


def _talks(computations: dict[str, _Computation], name: str) -> bool:
    return any(_is_one(computations, i) for i in computations[name].instructions.values())
