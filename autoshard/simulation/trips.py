"""How often a compiled loop runs: as the compiler notes it, or read off its counter."""

import re

from autoshard.simulation.scheduled import Computation, Instruction, Module

_THROUGH = frozenset({"copy", "bitcast", "convert", "copy-done", "copy-start"})


def trips_of(loop: Instruction, within: Computation, module: Module) -> int | None:
    """Executions of the body; None where neither a note nor a counter from a constant to a constant says so."""
    if loop.trips is not None:
        return loop.trips
    condition, body = (
        module.computations.get((loop.attribute(key) or "").lstrip("%")) for key in ("condition", "body")
    )
    if condition is None or body is None:
        return None
    test = condition.root
    if test.opcode == "fusion" and test.called:  # a condition that was fused: its operands are those of the fusion
        inner = module.computations.get(test.called[0])
        if inner is None or inner.root.opcode != "compare":
            return None
        outer = [_behind(o, condition) for o in test.operands]
        sides = [_through_fusion(o, inner, outer) for o in inner.root.operands]
        direction = inner.root.attribute("direction")
    else:
        sides = [_behind(o, condition) for o in test.operands]
        direction = test.attribute("direction")
    if test.opcode not in ("compare", "fusion") or len(sides) != 2:
        return None
    if direction in ("GT", "GE"):
        sides, direction = sides[::-1], {"GT": "LT", "GE": "LE"}[direction]
    counter, limit = sides[0], _constant(sides[1])
    if counter is None or counter.opcode != "get-tuple-element" or limit is None or direction not in ("LT", "LE"):
        return None
    slot = int(counter.attribute("index") or 0)
    start, step = _start(loop, within, slot), _step(body, slot)
    if start is None or not step or step < 0:
        return None
    return max(0, -(-(limit + (direction == "LE") - start) // step))


def _behind(name: str, within: Computation) -> Instruction | None:
    instruction = within.instructions.get(name)
    while instruction is not None and instruction.opcode in _THROUGH and instruction.operands:
        instruction = within.instructions.get(instruction.operands[0])
    return instruction


def _through_fusion(name: str, inner: Computation, outer: list[Instruction | None]) -> Instruction | None:
    source = _behind(name, inner)
    if source is not None and source.opcode == "parameter":
        number = int(source.operands[0])
        return outer[number] if number < len(outer) else None
    return source


def _constant(instruction: Instruction | None) -> int | None:
    if instruction is None or instruction.opcode != "constant" or not instruction.operands:
        return None
    text = instruction.operands[0]
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def _start(loop: Instruction, within: Computation, slot: int) -> int | None:
    """The counter before the first trip."""
    made = _behind(loop.operands[0], within) if loop.operands else None
    if made is None or made.opcode != "tuple" or slot >= len(made.operands):
        return None
    return _constant(_behind(made.operands[slot], within))


def _step(body: Computation, slot: int) -> int | None:
    """What one trip adds to the counter."""
    root = body.root
    if root.opcode != "tuple" or slot >= len(root.operands):
        return None
    total, at = 0, _behind(root.operands[slot], body)
    for _ in range(8):  # an unrolled body adds several times
        if at is None:
            return None
        if at.opcode == "get-tuple-element":
            return total if int(at.attribute("index") or 0) == slot else None
        if at.opcode != "add" or len(at.operands) != 2:
            return None
        sides = [_behind(o, body) for o in at.operands]
        constants = [_constant(s) for s in sides]
        known = next((k for k, c in enumerate(constants) if c is not None), None)
        if known is None:
            return None
        total += constants[known] or 0
        at = sides[1 - known]
    return None
