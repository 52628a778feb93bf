"""Hints spread through a whole graph by autoshard's propagation, and the result written as specs.

The graph becomes a `Program` whose ops have the rules of `autoshard.onnx.rules`, every spec an open sharding over axes
of a mesh. Ops without a rule, and control flow, pass nothing on.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from math import prod
from typing import TYPE_CHECKING

from autoshard.errors import InputError, ShardingError, UnsupportedError
from autoshard.onnx.axes import placement_of_sharding, sharding_of
from autoshard.onnx.check import chosen_configurations, require_sound
from autoshard.onnx.files import ModelFile
from autoshard.onnx.graph import UNKNOWN, ValueType
from autoshard.onnx.infer import Completed, add_specs, infer, written_dims
from autoshard.onnx.installed import onnx_library
from autoshard.onnx.placement import Placement, spec_of
from autoshard.onnx.rules.rule import Factors, OpRule
from autoshard.onnx.specs import Configuration, ShardingSpec
from autoshard.onnx.walk import Visit, Walk
from autoshard.program.program import Block, Op, Origin, Program, Value
from autoshard.program.rule import ShardingRule, TensorFactors
from autoshard.program.types import TensorType
from autoshard.sharding.axis import MOST_DIGITS
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import DimensionSharding, TensorSharding

if TYPE_CHECKING:
    from autoshard.propagation.program.propagate import Propagated

MAX_ORDERS = 720
"""How many orders of the prime factors of the number of devices are tried for a mesh."""


def spread(model: ModelFile, *, configuration: str | None = None, mesh: Mesh | None = None) -> Completed:
    """Propagate the specs of a configuration in both directions, and write specs for what had none.

    mesh: over whose axes the specs are read; without one it comes from the names of the devices
    (``data=0,model=3``), or is made of the prime factors of their number. `UnsupportedError` where shapes are not all
    known, `InputError` where the specs contradict each other or are none over axes of the mesh.
    """
    checked = require_sound(model, configuration)
    chosen = chosen_configurations(model, configuration)
    if len(chosen) != 1:
        names = ", ".join(c.name or "" for c in chosen) or "none"
        raise InputError(f"{model.name}: hints are spread for one configuration; it has {names}: name one")
    visits = [v for v in Walk(model, chosen[0]).run() if not v.path]
    hinted = _given(visits)
    over = _mesh(chosen[0], hinted, mesh)
    reader = _Reader(visits, model)
    program = reader.program()
    from autoshard.propagation.program.propagate import propagate

    hints = {}
    for (index, name), (placed, rank) in hinted.items():
        hints.setdefault(
            reader.ids[name], _opened(sharding_of(placed, over, rank, what=f"the spec of {name!r} at node #{index}"))
        )
    propagated = propagate(program, over, hints)
    copy = onnx_library().ModelProto()
    copy.CopyFrom(model.proto)
    added = 0
    for visit in visits:
        specs = list(_specs(model, visit, reader, propagated, over))
        add_specs(copy.graph.node[visit.index], chosen[0], specs)
        added += len(specs)
    rest = infer(ModelFile(copy, model.path, model.shapes), configuration=chosen[0].name)
    return Completed(rest.proto, added + rest.added, rest.left, checked.notes)


def _given(visits: Sequence[Visit]) -> dict[tuple[int, str], tuple[Placement, int]]:
    """Every spec of the main graph; those at outputs first, because they say how a value is kept."""
    hints: dict[tuple[int, str], tuple[Placement, int]] = {}
    for use_outputs in (True, False):
        for visit in visits:
            for use in visit.outputs if use_outputs else visit.inputs:
                rank = visit.type(use.tensor).rank
                if use.spec is not None and use.placed is not None and rank is not None:
                    hints[visit.index, use.tensor] = (use.placed, rank)
    return hints


def _opened(sharding: TensorSharding) -> TensorSharding:
    return TensorSharding(None, tuple(DimensionSharding(d.axes, True) for d in sharding.dims))


# -- the mesh ----------------------------------------------------------------------------------------------------------


def _mesh(configuration: Configuration, hinted: Mapping, mesh: Mesh | None) -> Mesh:
    """The first mesh over which all specs are shardings."""
    count = configuration.num_devices or 1
    if mesh is not None and mesh.size != count:
        raise InputError(f"mesh {mesh} has {mesh.size} devices, configuration {configuration.name!r} has {count}")
    named = _named_mesh(configuration)
    candidates = [mesh] if mesh is not None else [*([named] if named else []), *_prime_meshes(count)]
    failure: ShardingError | None = None
    for each in candidates:
        try:
            for (index, name), (placed, rank) in hinted.items():
                sharding_of(placed, each, rank, what=f"the spec of {name!r} at node #{index}")
            return each
        except ShardingError as error:
            failure = failure or error
    raise InputError(f"the specs of {configuration.name!r} are no shardings over axes of a mesh: {failure}")


def _named_mesh(configuration: Configuration) -> Mesh | None:
    """The mesh that device names such as ``data=0,model=3`` spell out; None where they spell none."""
    sizes: dict[str, int] = {}
    names = []
    for device in configuration.devices:
        parts = [part.partition("=") for part in device.split(",")]
        if not all(axis and number.isdecimal() and len(number) <= MOST_DIGITS for axis, _, number in parts):
            return None
        names.append(tuple((axis, int(number)) for axis, _, number in parts))
        for axis, number in names[-1]:
            sizes[axis] = max(sizes.get(axis, 0), number + 1)
    if not names or prod(sizes.values()) != len(names):
        return None
    mesh = Mesh.from_dict(sizes)
    for position, coordinates in enumerate(names):
        if [axis for axis, _ in coordinates] != list(sizes):
            return None
        flat = 0
        for (_, number), size in zip(coordinates, sizes.values(), strict=True):
            flat = flat * size + number
        if flat != position:
            return None
    return mesh


def _prime_meshes(count: int) -> Iterator[Mesh]:
    """Meshes of prime axes, in every order of the primes."""
    primes, left, p = [], count, 2
    while left > 1:
        while left % p == 0:
            primes.append(p)
            left //= p
        p += 1
    for order in islice(_orders(Counter(primes)), MAX_ORDERS):
        yield Mesh.from_dict({f"axis_{i}": n for i, n in enumerate(order)})


def _orders(primes: Counter[int]) -> Iterator[tuple[int, ...]]:
    """Every order of these primes, each once, however often one of them occurs.

    >>> list(_orders(Counter([2, 2, 3])))
    [(2, 2, 3), (2, 3, 2), (3, 2, 2)]
    """
    if not primes:
        yield ()
    for first in sorted(primes):
        for rest in _orders(primes - Counter([first])):
            yield (first, *rest)


# -- the program -------------------------------------------------------------------------------------------------------


class _Reader:
    """The main graph as a program. ids: number of every value by name."""

    def __init__(self, visits: Sequence[Visit], model: ModelFile) -> None:
        self.visits = visits
        self.types: dict[str, ValueType] = dict(model.types)
        self.values: list[Value] = []
        self.ids: dict[str, int] = {}
        self.slots: dict[int, tuple[list[str], list[str]]] = {}
        self.model = model

    def program(self) -> Program:
        inputs = [*self.model.inputs, *self.model.initializers]
        args = tuple(self._define(name, Origin.INPUT) for name in inputs)
        ops = tuple(self._op(visit.index, visit) for visit in self.visits)
        results = tuple(self.ids[name] for name in self.model.outputs)
        body = Block(args, ops, results)
        return Program(
            self.model.graph.name or "graph", tuple(self.values), body, tuple(inputs), tuple(self.model.outputs)
        )

    def _define(self, name: str, origin: Origin) -> int:
        kind = self.types.get(name, UNKNOWN)
        shape = kind.shape
        if shape is None:
            known = "unknown" if kind.dims is None else str(list(kind.dims))
            raise UnsupportedError(
                f"{self.model.name}: spreading needs the shapes of all values; that of {name!r} is {known}: give sizes "
                "of symbolic dimensions (--shape DIM=N)"
            )
        self.ids[name] = len(self.values)
        self.values.append(Value(self.ids[name], name, TensorType(shape, kind.dtype), origin))
        return self.ids[name]

    def _op(self, number: int, visit: Visit) -> Op:
        ins = [n for n in visit.node.input if n]
        outs = [n for n in visit.node.output if n]
        operands = tuple(self.ids[n] for n in ins)
        results = tuple(self._define(n, Origin.OP) for n in outs)
        self.slots[number] = (ins, outs)
        rule = sharding_rule(visit, [self.values[v].type.shape for v in (*operands, *results)])
        kind = visit.node.op_type
        passes = kind in ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten")
        named = kind.lower() if passes else "constant" if kind == "Constant" else f"onnx.{kind}"
        attrs = {"elementwise": bool(visit.rule and visit.rule.elementwise)}
        return Op(number, named, operands, results, rule, visit.name, attrs)


def sharding_rule(visit: Visit, shapes: Sequence[tuple[int, ...]]) -> ShardingRule:
    """The rule of a node in the planner's form, without factors of size 1; an op without a rule needs everything whole.

    shapes: of the present inputs and outputs.
    """
    rule = visit.rule
    ins = [i for i, name in enumerate(visit.node.input) if name]
    outs = [i for i, name in enumerate(visit.node.output) if name]
    tensors: list[Factors | None] = [None] * len(shapes)
    if rule is not None:
        tensors = [*(rule.inputs[i] for i in ins), *(rule.outputs[i] for i in outs)]
    sizes: list[int] = []
    numbers: dict[int, int] = {}
    whole: set[int] = set()

    def number(rule: OpRule, factor: int, size: int) -> int:
        if factor not in numbers:
            numbers[factor] = len(sizes)
            sizes.append(size)
            if factor in rule.whole:
                whole.add(numbers[factor])
        return numbers[factor]

    mapped: list[TensorFactors] = []
    for factors, shape in zip(tensors, shapes, strict=True):
        dims: list[tuple[int, ...]] = []
        for axis, n in enumerate(shape):
            if n == 1:
                dims.append(())
            elif rule is None or factors is None or not factors[axis]:
                sizes.append(n)
                whole.add(len(sizes) - 1)
                dims.append((len(sizes) - 1,))
            elif len(factors[axis]) == 1:
                dims.append((number(rule, factors[axis][0], n),))
            else:
                parts = [(f, s) for f in factors[axis] if isinstance(s := rule.sizes[f], int) and s > 1]
                dims.append(tuple(number(rule, f, s) for f, s in parts))
        mapped.append(tuple(dims))
    reduced = frozenset(numbers[f] for f in (rule.reduced if rule else ()) if f in numbers)
    return ShardingRule(tuple(sizes), tuple(mapped[: len(ins)]), tuple(mapped[len(ins) :]), reduced, frozenset(whole))


# -- back to specs -----------------------------------------------------------------------------------------------------


def _specs(
    model: ModelFile, visit: Visit, reader: _Reader, propagated: "Propagated", mesh: Mesh
) -> Iterator[ShardingSpec]:
    """A spec for every tensor of a node that has none: inputs as the op uses them, outputs as the value is kept."""
    number = visit.index
    ins, outs = reader.slots[number]
    rule = sharding_rule(visit, [reader.values[reader.ids[n]].type.shape for n in (*ins, *outs)])
    axes = propagated.factors[number]
    stated = {u.tensor for u in (*visit.inputs, *visit.outputs) if u.spec is not None}
    done: set[str] = set()
    for name, factors in zip(ins, rule.operands, strict=True):
        if name in stated or name in done:
            continue
        done.add(name)
        dims = tuple(DimensionSharding(tuple(a for f in d for a in axes[f])) for d in factors)
        yield _spec(model, name, TensorSharding(None, dims), mesh, reader)
    for name in outs:
        if name not in stated:
            kept = propagated.values[reader.ids[name]]
            closed = TensorSharding(None, tuple(DimensionSharding(d.axes) for d in kept.dims))
            yield _spec(model, name, closed, mesh, reader)


def _spec(model: ModelFile, name: str, sharding: TensorSharding, mesh: Mesh, reader: _Reader) -> ShardingSpec:
    kind = reader.types[name]
    placed = placement_of_sharding(sharding, mesh, kind.dims or ())
    return spec_of(placed, name, written_dims(model, placed, kind.dims))
