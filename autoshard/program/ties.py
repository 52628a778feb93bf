"""Carried state: outputs that the next call takes as inputs, because they replace donated inputs or are alike."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from autoshard.program.program import Program
from autoshard.program.types import TensorType

_LONGEST_PREFIX = 4
"""Keys of an output's name, ``out`` included, that may come before the path that it shares with an input."""


def donated_ties(program: Program) -> dict[int, int]:
    """Output slot -> the donated input it replaces: same type, and the same path behind some output prefix.

    A train step ``(state, batch) -> (state, metrics)`` gives its new state back in the layouts of the old one.
    """
    return _pairs(program, sorted(program.donated))


def reused_inputs(program: Program) -> frozenset[int]:
    """Numbers of the donated inputs in the device's memory that may be written over: those that an output replaces.

    JAX hands the memory of a donated array on to an output of its size, each output's once. What is left over stays
    where it is to the end, as if it were not donated ("Some donated buffers were not usable").
    """
    number = {value: k for k, value in enumerate(program.body.args)}
    slots = {slot for slot in range(len(program.body.results)) if slot not in program.host_outputs}
    tied = {slot: number[value] for slot, value in donated_ties(program).items() if slot in slots}
    reused = {k for k in tied.values() if k not in program.host_inputs}
    free = Counter(_size(program, program.body.results[slot]) for slot in slots - tied.keys())
    for k in sorted(program.donated - reused - program.host_inputs):
        size = _size(program, program.body.args[k])
        if free[size]:
            free[size] -= 1
            reused.add(k)
    return frozenset(reused)


def _size(program: Program, value: int) -> tuple[int, float]:
    kind = program.type_of(value)
    return kind.elements, kind.bytes


def carried_state(program: Program) -> dict[int, int]:
    """Output slot -> the input whose next value the output seems to be; donated inputs as in `donated_ties`.

    An argument that is one array must have its name in the name of the output (``out/w``), or be donated, or have its
    place in a row of arguments that are all carried (`_in_place`), or hold random keys (`_keys`): equal types alone say
    little.
    """
    others = (number for number in range(len(program.input_names)) if number not in program.donated)
    pairs = _pairs(program, [*sorted(program.donated), *others])
    pairs = pairs | _in_place(program, pairs)
    return pairs | _keys(program, pairs)


def with_carried(program: Program) -> Program:
    """The program with every pair of `carried_state` noted whose input is not donated (donated ones count anyway)."""
    number = {value: k for k, value in enumerate(program.body.args)}
    pairs = sorted((slot, number[value]) for slot, value in carried_state(program).items())
    return replace(program, carried=tuple(p for p in pairs if p[1] not in program.donated))


def layout_ties(program: Program) -> dict[int, int]:
    """Output slot -> the input whose layout it takes where no statement says otherwise: donated, or carried."""
    return donated_ties(program) | {slot: program.body.args[number] for slot, number in program.carried}


def _pairs(program: Program, inputs: Iterable[int]) -> dict[int, int]:
    """Of each argument in the order of `inputs` the prefix of outputs that most of its leaves are found behind.

    Where several have as many: one that ends in the argument's name, then the shortest, then the first. An output
    belongs to one argument. Arguments of one array that only a name can tell come last: it may be that of a leaf too.
    """
    by_path: dict[str, list[tuple[str, int]]] = {}
    for slot, name in enumerate(program.output_names):
        for prefix in _prefixes(name):
            by_path.setdefault(name[len(prefix) :], []).append((prefix, slot))
    arguments: dict[str, dict[str, int]] = {}
    for number in inputs:
        argument, slash, rest = program.input_names[number].partition("/")
        arguments.setdefault(argument, {})[slash + rest] = number
    out: dict[int, int] = {}
    by_name = {argument for argument, leaves in arguments.items() if leaves.get("") not in {None, *program.donated}}
    for argument, leaves in sorted(arguments.items(), key=lambda item: item[0] in by_name):
        behind: dict[str, dict[int, int]] = {}
        for path, number in leaves.items():
            value = program.body.args[number]
            for prefix, slot in by_path.get(path, ()):
                named = prefix.rpartition("/")[2] == argument
                fits = program.type_of(program.body.results[slot]) == program.type_of(value)
                if fits and slot not in out and (path or named or number in program.donated):
                    behind.setdefault(prefix, {})[slot] = value
        if behind:
            out |= min(behind.items(), key=lambda item: _rank(*item, argument))[1]
    return out


def _in_place(program: Program, pairs: dict[int, int]) -> dict[int, int]:
    """Arguments of one array whose next values are the outputs at their places in a row: ``(cache, token) -> (cache,
    token)``, or behind arguments that stay as they are, ``(weights, cache, token) -> (cache, token, ...)``.
    """
    slots = {name: slot for slot, name in enumerate(program.output_names)}
    arguments: dict[str, list[int]] = {}
    for name, value in zip(program.input_names, program.body.args, strict=False):
        arguments.setdefault(name.split("/", 1)[0], []).append(value)
    single = set(program.input_names)
    rows = [(name in single, values) for name, values in arguments.items()]
    for first in range(len(rows)):
        found = _row(program, rows[first:], pairs, slots)
        if found is not None:
            return found
    return {}


def _row(
    program: Program, arguments: Sequence[tuple[bool, Sequence[int]]], pairs: dict[int, int], slots: Mapping[str, int]
) -> dict[int, int] | None:
    """What is carried of arguments that return as ``out/0``, ``out/1`` and so on, until one does not.

    arguments: whether each is one array, and its values. One of them must be known of `pairs` to return at its place:
    a tree, or an array that is donated or named; otherwise None.
    """
    found: dict[int, int] = {}
    seen = False
    for place, (single, values) in enumerate(arguments):
        returned = {value for slot, value in pairs.items() if _at(program.output_names[slot], place)}
        if returned:
            if not returned & set(values):
                break
            seen = True
            continue
        slot = slots.get(f"out/{place}") if single else None
        if slot is None or values[0] in pairs.values():
            break
        if program.type_of(program.body.results[slot]) != program.type_of(values[0]):
            break
        found[slot] = values[0]
    return found if seen else None


def _at(output: str, place: int) -> bool:
    """Whether an output belongs to the result at a place."""
    return f"{output}/".startswith(f"out/{place}/")


def _keys(program: Program, pairs: dict[int, int]) -> dict[int, int]:
    """Random keys that a step returns beside its state, anywhere: of a type that one argument has and one output."""
    inputs: dict[TensorType, list[int]] = {}
    outputs: dict[TensorType, list[int]] = {}
    for name, value in zip(program.input_names, program.body.args, strict=False):
        if "/" not in name and value not in pairs.values() and _is_key(program.type_of(value)):
            inputs.setdefault(program.type_of(value), []).append(value)
    for slot, (name, value) in enumerate(zip(program.output_names, program.body.results, strict=True)):
        if name.count("/") == 1 and slot not in pairs:
            outputs.setdefault(program.type_of(value), []).append(slot)
    one = {kind: values for kind, values in inputs.items() if len(values) == len(outputs.get(kind, ())) == 1}
    return {outputs[kind][0]: value for kind, (value,) in one.items()} if pairs else {}


def _is_key(kind: TensorType) -> bool:
    """Whether an array is of random keys: typed, or one of threefry as `jax.random.PRNGKey` makes it."""
    return kind.dtype.startswith("key<") or (kind.dtype == "uint32" and kind.shape == (2,))


def _rank(prefix: str, found: dict[int, int], argument: str) -> tuple[int, bool, int, int]:
    keys = prefix.split("/")
    return -len(found), keys[-1] != argument, len(keys), min(found)


def _prefixes(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:k]) for k in range(1, min(len(parts), _LONGEST_PREFIX) + 1)]
