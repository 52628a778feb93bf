"""Collectives in compiled HLO text, as ``compiled.as_text()`` prints it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from autoshard.errors import InputError
from autoshard.verify.runs.collectives import FoundCollective, FoundLoop

_KINDS = {
    "all-gather": "all_gather",
    "all-reduce": "all_reduce",
    "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all",
    "ragged-all-to-all": "all_to_all",
    "collective-permute": "permute",
    "collective-broadcast": "collective_broadcast",
}
_COMBINERS = {"add": "add", "maximum": "max", "minimum": "min", "or": "max", "and": "min"}

_QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
_OLDER_EMITTERS = {"xla_cpu_use_fusion_emitters": False}
"""Options of XLA for CPU for a program that is read and not run: code is made in a hurry, collectives are the same.
Both together take a quarter of the time; not every version has all of them."""


def compiled_text(staged: Any, options: Mapping[str, Any] | None = None) -> str:
    """What XLA compiles a lowered program to, under options of one's own and those that make it quick on a CPU."""
    import jax

    own = dict(options or {})
    tries = [own | _QUICK | _OLDER_EMITTERS, own | _QUICK] if jax.default_backend() == "cpu" else []
    for wanted in tries:
        try:
            return staged.compile(compiler_options=wanted).as_text() or ""
        except jax.errors.JaxRuntimeError:  # an option that this version does not have
            continue
    return staged.compile(compiler_options=own or None).as_text() or ""


@dataclass(slots=True)
class _Instruction:
    opcode: str
    elements: int  # over all parts of a tuple
    dtype: str  # of its first part
    operands: list[str]
    rest: str  # attributes


@dataclass(slots=True)
class _Computation:
    instructions: dict[str, _Instruction] = field(default_factory=dict)
    root: str = ""


def hlo_collectives(text: str) -> list[FoundCollective]:
    """Every collective that the module executes from its entry computation, in the order of its schedule.

    An operation with several operands (XLA combines collectives so) counts as one collective for each of them, but an
    all-to-all in its tuple form as one. A start counts, its done does not. Trip counts are those that the compiler
    noted. Raises `InputError` where the text is not an HLO module.
    """
    computations, entry = _parse(text)
    devices = prod(int(n) for n in re.findall(r"(?:num_partitions|replica_count)=(\d+)", text.split("\n", 1)[0]))
    return list(_walk(computations, entry, (), devices))


def _parse(text: str) -> tuple[dict[str, _Computation], str]:
    computations: dict[str, _Computation] = {}
    entry = ""
    current: _Computation | None = None
    for line in text.splitlines():
        if current is None:
            head = re.match(r"(ENTRY )?%?([\w.\-]+) .*\{$", line)
            if head and not line.startswith(("HloModule", " ")):
                current = computations.setdefault(head[2], _Computation())
                entry = head[2] if head[1] else entry
        elif line.startswith("}"):
            current = None
        else:
            _instruction(line, current)
    if not entry:
        raise InputError("this is no HLO module: it has no ENTRY computation")
    return computations, entry


def _instruction(line: str, into: _Computation) -> None:
    match = re.match(r"\s*(ROOT )?%?([\w.\-]+) = (.*)$", line)
    if match is None:
        return
    is_root, name, rest = match.groups()
    if rest.startswith("("):
        end = _closing(rest, 0) + 1
        kind, rest = rest[:end], rest[end:].lstrip()
    else:
        kind, _, rest = rest.partition(" ")
    opcode = re.match(r"[\w\-]+", rest)
    if opcode is None:
        return
    begin = opcode.end()
    end = _closing(rest, begin) if rest[begin : begin + 1] == "(" else begin
    parts = re.findall(r"(\w+)\[([^\]]*)\]", kind)
    elements = sum(prod(int(re.sub(r"\D", "", n)) for n in dims.split(",") if n) for _, dims in parts)
    operands = [re.sub(r"/\*.*?\*/", "", o).split()[-1].lstrip("%") for o in _split(rest[begin + 1 : end])]
    dtype = _dtype(parts[0][0]) if parts else ""
    into.instructions[name] = _Instruction(opcode[0], elements, dtype, operands, rest[end + 1 :])
    if is_root:
        into.root = name


def _closing(text: str, begin: int) -> int:
    """Position of the parenthesis that closes the one at `begin`."""
    depth = 0
    for k in range(begin, len(text)):
        depth += {"(": 1, ")": -1}.get(text[k], 0)
        if depth == 0:
            return k
    raise InputError(f"unbalanced parentheses in HLO text: {text[begin : begin + 80]}")


def _split(text: str) -> list[str]:
    """Operands at the top level of a comma-separated list (their types may hold commas)."""
    out, depth, last = [], 0, 0
    for k, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            out.append(text[last:k])
            last = k + 1
    return [part.strip() for part in (*out, text[last:]) if part.strip()]


def _walk(
    computations: dict[str, _Computation], name: str, loops: tuple[FoundLoop, ...], devices: int
) -> Iterator[FoundCollective]:
    if name not in computations:
        raise InputError(f"HLO text calls computation {name!r}, which it does not contain")
    for instruction in computations[name].instructions.values():
        kind = _KINDS.get(instruction.opcode.removesuffix("-start"))
        if kind is not None:
            yield from _collectives(instruction, kind, computations, name, loops, devices)
            continue
        for callee, inner in _callees(instruction, loops):
            yield from _walk(computations, callee, inner, devices)


def _callees(instruction: _Instruction, loops: tuple[FoundLoop, ...]) -> Iterator[tuple[str, tuple[FoundLoop, ...]]]:
    rest = instruction.rest
    if instruction.opcode == "while":
        noted = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', rest)
        trips = int(noted[1]) if noted else None
        for key, n in (("condition", None if trips is None else trips + 1), ("body", trips)):
            called = re.search(key + r"=%?([\w.\-]+)", rest)
            if called:
                yield called[1], (*loops, FoundLoop("loop", n))
    elif instruction.opcode == "conditional":
        branches = re.search(r"branch_computations=\{([^}]*)\}", rest)
        names = branches[1].split(",") if branches else re.findall(r"(?:true|false)_computation=(%?[\w.\-]+)", rest)
        for called in names:
            yield called.strip().lstrip("%"), (*loops, FoundLoop("branch", None))
    elif instruction.opcode in ("call", "fusion", "async-start", "custom-call"):
        for called in re.findall(r"(?:to_apply|calls|called_computations)=\{?%?([\w.\-]+)", rest):
            yield called, loops


def _collectives(
    instruction: _Instruction,
    kind: str,
    computations: dict[str, _Computation],
    where: str,
    loops: tuple[FoundLoop, ...],
    devices: int,
) -> Iterator[FoundCollective]:
    known = computations[where].instructions
    operands = [known[o] for o in instruction.operands]
    groups = device_groups(instruction.rest, devices)
    combiner = ""
    if called := re.search(r"to_apply=%?([\w.\-]+)", instruction.rest):
        reducer = computations[called[1]]
        opcode = reducer.instructions[reducer.root].opcode
        combiner = _COMBINERS.get(opcode, opcode)
    if instruction.opcode.startswith("ragged"):  # the others say where its slices are
        operands = operands[:1]
    if kind == "all_to_all":
        yield FoundCollective(kind, groups, sum(g.elements for g in operands), operands[0].dtype, loops)
        return
    for operand in operands:
        yield FoundCollective(kind, groups, operand.elements, operand.dtype, loops, combiner)


def device_groups(rest: str, devices: int) -> tuple[tuple[int, ...], ...]:
    """Groups in any of HLO's notations: listed, an iota reshaped and transposed, or axes of a mesh.

    >>> device_groups("replica_groups=[2,2]<=[2,2]T(1,0), x", 4)
    ((0, 2), (1, 3))
    >>> device_groups("replica_groups=mesh['a'=2,'b'=2] {'a'}", 4)
    ((0, 2), (1, 3))
    """
    if match := re.search(r"(?:replica_groups|source_target_pairs)=\{((?:\{[\d,]*\},?)+)\}", rest):
        return tuple(tuple(int(d) for d in g.split(",")) for g in re.findall(r"\{([\d,]+)\}", match[1]))
    if match := re.search(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", rest):
        shape, tiles, order = (tuple(int(n) for n in part.split(",")) if part else () for part in match.groups())
        return _rows(_iota(tiles, order).reshape(shape))
    if match := re.search(
        r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\((\[.*?\]T?(?:\([\d,]+\))?|[\d,]+)\))? ?\{([^}]*)\}", rest
    ):
        return _mesh_groups(*match.groups())
    if re.search(r"replica_groups=\{\}", rest) or "replica_groups" not in rest:
        return (tuple(range(devices)),)
    raise InputError(f"cannot read the groups of a collective: {rest[:200]}")


def _iota(tiles: tuple[int, ...], order: tuple[int, ...]) -> np.ndarray:
    ids = np.arange(prod(tiles)).reshape(tiles)
    return ids.transpose(order) if order else ids


def _rows(ids: np.ndarray) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(d) for d in row) for row in ids.reshape(-1, ids.shape[-1]))


def _mesh_groups(axes: str, device_ids: str | None, over: str) -> tuple[tuple[int, ...], ...]:
    """Groups over axes such as ``'a', 'b':(1)2`` of a mesh ``'a'=2,'b'=4`` with device ids in any order."""
    sizes = {name: int(n) for name, n in re.findall(r"'([^']+)'=(\d+)", axes)}
    total = prod(sizes.values())
    if device_ids is None:
        ids = np.arange(total)
    elif iota := re.match(r"\[([\d,]+)\](?:T\(([\d,]+)\))?", device_ids):
        tiles, order = (tuple(int(n) for n in part.split(",")) if part else () for part in iota.groups())
        ids = _iota(tiles, order).reshape(-1)
    else:
        ids = np.array([int(n) for n in device_ids.split(",")])
    chosen = re.findall(r"'([^']+)'(?::\((\d+)\)(\d+))?", over)
    shape: list[int] = []
    at: dict[tuple[str, str], int] = {}
    for name, size in sizes.items():
        parts = sorted((int(pre), int(n), pre) for axis, pre, n in chosen if axis == name and pre)
        if not parts:
            at[name, ""] = len(shape)
            shape.append(size)
            continue
        done = 1
        for pre, n, key in parts:
            shape.append(pre // done)
            at[name, key] = len(shape)
            shape.append(n)
            done = pre * n
        shape.append(size // done)
    picked = [at[name, pre] for name, pre, _ in chosen]
    rest = [k for k in range(len(shape)) if k not in picked]
    return _rows(ids.reshape(shape).transpose(*rest, *picked).reshape(-1, prod(shape[k] for k in picked)))


def _dtype(name: str) -> str:
    """``f32`` -> ``float32``, ``pred`` -> ``bool``, ``s8`` -> ``int8``, ``c64`` -> ``complex64``."""
    if name == "pred":
        return "bool"
    for short, full in (
        ("bf", "bfloat"),
        ("f8", "float8_"),
        ("f", "float"),
        ("s", "int"),
        ("u", "uint"),
        ("c", "complex"),
    ):
        if name.startswith(short) and name[len(short) : len(short) + 1].isalnum():
            return full + name[len(short) :]
    return name
