"""The program of a plan as the checker reads it, and the check that it is a valid program."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import dropwhile, takewhile
from math import prod
from typing import Any

PROGRAM_OP = -1
"""The op id that stands for the program itself, in uses by its outputs."""


class Findings(list[tuple[str, str]]):
    """What is wrong, as (topic, line)."""

    def add(self, topic: str, text: str) -> None:
        """Add what is wrong. topic: ``layouts``, ``cost``, ..."""
        self.append((topic, text))


def element_bytes(dtype: str) -> float:
    """Bytes of one element: the bits in the type's name, a byte for bool, two words for keys (four for rbg)."""
    if dtype == "bool":
        return 1.0
    if dtype == "float0":
        return 0.0
    if dtype.startswith("key<"):
        return 16.0 if "rbg" in dtype else 8.0
    bits = "".join(takewhile(str.isdecimal, dropwhile(lambda c: not c.isdecimal(), dtype)))
    if not bits:
        raise ValueError(f"unknown element type {dtype!r}")
    return int(bits) / 8


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value: id, name, shape, element type, where it comes from, literal or not."""

    id: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    origin: str
    tags: tuple[str, ...]
    literal: Any = None

    @property
    def is_literal(self) -> bool:
        """Whether it is a literal of the program."""
        return self.origin == "literal"

    @property
    def is_zero(self) -> bool:
        """Whether it is a literal zero; plan.json has complex numbers as pairs of texts."""
        number = self.literal
        if isinstance(number, dict):
            return [float(part) for part in number.get("complex", ())] == [0.0, 0.0]
        return self.is_literal and number == 0

    @property
    def is_inexact(self) -> bool:
        """Whether it holds floats or complex numbers."""
        return self.dtype.startswith(("float", "bfloat", "complex")) and self.dtype != "float0"

    @property
    def is_summable(self) -> bool:
        """Whether its type has an addition, so that it can be a partial sum."""
        return self.is_inexact or self.dtype.startswith(("int", "uint"))

    @property
    def elements(self) -> int:
        """How many elements the whole tensor has."""
        return prod(self.shape)

    @property
    def bytes(self) -> float:
        """Bytes of the whole tensor."""
        return self.elements * element_bytes(self.dtype)

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(slots=True)
class Node:
    """An op, with the regions it runs. times: executions per step of the program."""

    id: int
    kind: str
    operands: list[int]
    results: list[int]
    source: str
    attrs: dict[str, Any]
    rule: Any
    regions: list["Body"]
    times: float = 1.0

    @property
    def label(self) -> str:
        """The op's kind and id, for messages."""
        return f"{self.kind}:{self.id}"

    @property
    def is_manual(self) -> bool:
        """Whether it is a shard_map, whose region runs on local arrays without layouts."""
        return self.kind == "shard_map"

    @property
    def inner(self) -> list["Body"]:
        """The regions in which values have layouts of their own: none for a shard_map."""
        return [] if self.is_manual else self.regions


@dataclass(slots=True)
class Body:
    """A straight list of ops with arguments and results. times: executions per step of the program."""

    args: list[int]
    ops: list[Node]
    results: list[int]
    times: float = 1.0


@dataclass(slots=True)
class Graph:
    """A program. nodes: ops by id, in execution order, without those inside of a shard_map."""

    values: list[Tensor]
    body: Body
    input_names: list[str]
    output_names: list[str]
    donated: list[int]
    trips: int
    host_inputs: list[int] = field(default_factory=list)
    host_outputs: list[int] = field(default_factory=list)
    orders: list[Any] = field(default_factory=list)  # values in another order of the devices
    carried: list[list[int]] = field(default_factory=list)  # outputs, and the inputs whose next values they are
    nodes: dict[int, Node] = field(default_factory=dict)
    home: dict[int, Body] = field(default_factory=dict)  # the body that defines a value

    def bodies(self) -> Iterator[Body]:
        """The program's body and those of regions, outer ones first."""
        stack = [self.body]
        while stack:
            body = stack.pop()
            yield body
            stack += [r for op in reversed(body.ops) for r in reversed(op.inner)]

    def used(self, op: int, slot: int, region: int) -> int:
        """The value that a use consumes; KeyError or IndexError where there is no such use."""
        if slot < 0 or region < -1 or (op == PROGRAM_OP and region != -1):
            raise IndexError(slot)
        if op == PROGRAM_OP:
            return self.body.results[slot]
        node = self.nodes[op]
        return node.operands[slot] if region == -1 else node.inner[region].results[slot]


def read_graph(plan: Any, findings: Findings) -> Graph:
    """Read ``plan["program"]``. Faults go to `findings`; those that leave nothing to read raise."""
    data = plan["program"]
    if not isinstance(data["name"], str):
        findings.add("program", f"the name of the program is {data['name']!r}")
    values = []
    for index, v in enumerate(data["values"]):
        if v["id"] != index:
            findings.add("program", f"value number {index} has id {v['id']}")
        if any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in v["shape"]):
            findings.add("program", f"value {v['name']} has shape {v['shape']}")
        element_bytes(v["dtype"])
        values.append(
            Tensor(index, v["name"], tuple(v["shape"]), v["dtype"], v["origin"], tuple(v["tags"]), v["literal"])
        )
    trips = plan["trips"]
    graph = Graph(
        values, _body(data["body"]), list(data["input_names"]), list(data["output_names"]), list(data["donated"]),
        trips, list(data.get("host", {}).get("inputs", ())), list(data.get("host", {}).get("outputs", ())),
        list(data.get("orders", ())), list(data.get("carried", ())),
    )  # fmt: skip
    _enter(graph, graph.body, 1.0, findings)
    if len(graph.input_names) > len(graph.body.args):
        findings.add("program", f"{len(graph.input_names)} inputs are named, the program has {len(graph.body.args)}")
    if len(graph.output_names) != len(graph.body.results):
        findings.add(
            "program", f"{len(graph.output_names)} outputs are named, the program has {len(graph.body.results)}"
        )
    for name, value in zip(graph.input_names, graph.body.args, strict=False):
        if graph.values[value].name != name:
            findings.add("program", f"input {name} is value {value}, which is called {graph.values[value].name}")
    for what, numbers, names in (
        ("input", graph.host_inputs, graph.input_names),
        ("output", graph.host_outputs, graph.output_names),
    ):
        for k in numbers:
            if isinstance(k, bool) or not isinstance(k, int) or not 0 <= k < len(names):
                findings.add("program", f"{what} {k!r} is in host memory, there are {len(names)}")
    sizes = {"input": len(graph.input_names), "output": len(graph.output_names), "value": len(values)}
    for order in graph.orders:
        where, k = order["where"], order["index"]
        if where not in sizes or isinstance(k, bool) or not isinstance(k, int) or not 0 <= k < sizes[where]:
            findings.add("program", f"{where} {k!r} is in another order of the devices, there is no such")
        elif sorted(order["moves"]) != list(range(prod(plan["mesh"]["axes"].values()))):
            findings.add("program", f"an order of the devices, of {where} {k}, is no permutation: {order['moves']}")
    for pair in graph.carried:
        slot, number = pair
        if not (0 <= slot < len(graph.output_names) and 0 <= number < len(graph.input_names)):
            findings.add("program", f"output {slot} is the next value of input {number}, there are not as many")
            continue
        input_value, output_value = values[graph.body.args[number]], values[graph.body.results[slot]]
        if (input_value.shape, input_value.dtype) != (output_value.shape, output_value.dtype):
            findings.add(
                "program",
                f"output {slot} is the next value of input {number}: {output_value} has not its type {input_value}",
            )
    for k in graph.donated:
        if not 0 <= k < len(graph.input_names):
            findings.add("program", f"input number {k} is donated, there are {len(graph.input_names)}")
    return graph


def _body(data: Any) -> Body:
    ops = [
        Node(
            o["id"], o["kind"], list(o["operands"]), list(o["results"]), o["source"], dict(o["attrs"]), o["rule"],
            [_body(r) for r in o["regions"]],
        )
        for o in data["ops"]
    ]  # fmt: skip
    return Body(list(data["args"]), ops, list(data["results"]))


def trips_of(node: Node, region: int, unknown: int) -> int:
    """How often a region of an op runs: the length of a scan; the plan's guess for a while that does not tell.

    The condition of a while is tested once more than its body runs.
    """
    if node.kind == "scan":
        return int(node.attrs["length"])
    if node.kind == "while":
        told = node.attrs.get("trips")
        return (unknown if told is None else int(told)) + (1 if region == 0 else 0)
    return 1


def carries(op: Node) -> list[int]:
    """The arguments of a loop's body that are its carry."""
    if op.kind not in ("scan", "while"):
        return []
    skip = op.attrs["num_consts"] if op.kind == "scan" else op.attrs["body_nconsts"]
    return op.regions[-1].args[skip : skip + (op.attrs["num_carry"] if op.kind == "scan" else len(op.results))]


def manual_ops(op: Node, unknown: int) -> Iterator[tuple[Node, float]]:
    """The ops inside of a user's shard_map, those of nested regions too, and how often each runs in one execution."""
    stack = [(r, 1.0) for r in op.regions]
    while stack:
        body, times = stack.pop()
        for inner in body.ops:
            yield inner, times
            stack += [(r, times * trips_of(inner, k, unknown)) for k, r in enumerate(inner.regions)]


def _enter(graph: Graph, body: Body, times: float, findings: Findings) -> None:
    """Enter a body and those inside it; every value must be defined once, in the body that uses it and before that."""
    body.times = times
    values, known = graph.values, set()

    def define(value: int, what: str) -> None:
        if value in graph.home:
            findings.add("program", f"value {values[value].name} is defined twice, again by {what}")
        graph.home[value] = body
        known.add(value)

    def use(value: int, what: str) -> None:
        if not 0 <= value < len(values):
            raise IndexError(f"{what} uses value {value}, there are {len(values)}")
        if not values[value].is_literal and value not in known:
            findings.add("program", f"{what} uses {values[value].name} before or outside of where it is defined")

    for value in body.args:
        define(value, "a block argument")
    for op in body.ops:
        if op.id in graph.nodes:
            findings.add("program", f"two ops have the id {op.id}: {graph.nodes[op.id].kind} and {op.kind}")
        graph.nodes[op.id] = op
        op.times = times
        for k, value in enumerate(op.operands):
            use(value, f"operand {k} of {op.label}")
        for k, r in enumerate(op.inner):
            _enter(graph, r, times * trips_of(op, k, graph.trips), findings)
        for k, value in enumerate(op.results):
            define(value, f"result {k} of {op.label}")
        if op.regions:
            _region_types(graph, op, findings)
        elif op.rule is None:
            findings.add("program", f"{op.label} has neither a rule nor a region")
    for k, value in enumerate(body.results):
        use(value, f"result {k} of a block")


def _region_types(graph: Graph, op: Node, findings: Findings) -> None:
    """Check that the types of operands, block arguments, block results and results of a region op fit each other."""

    def differ(a: int, b: int, what: str, stacked: int | None = None) -> None:
        outer, inner = graph.values[a], graph.values[b]
        wanted = inner.shape if stacked is None else (stacked, *inner.shape)
        if outer.shape != wanted or outer.dtype != inner.dtype:
            findings.add("program", f"{what} of {op.label}: {outer} does not fit {inner}")

    if op.kind not in ("scan", "while", "cond", "shard_map"):
        findings.add("program", f"{op.label} has regions, which only scan, while, cond and shard_map have")
    for outer, inner, what, stacked in boundary_pairs(op):
        differ(outer, inner, what, stacked)


def boundary_pairs(op: Node) -> Iterator[tuple[int, int, str, int | None]]:
    """(outer value, inner value, where, length of the stack or None) for all that crosses into or out of a region.

    `ValueError` where the numbers of operands, arguments and results do not fit.
    """

    def paired(outer: list[int], inner: list[int], what: str) -> Iterator[tuple[int, int, str]]:
        if len(outer) != len(inner):
            raise ValueError(f"{op.label} has {len(outer)} {what}s outside, {len(inner)} inside")
        for k, (a, b) in enumerate(zip(outer, inner, strict=True)):
            yield a, b, f"{what} {k}"

    if op.kind == "scan":
        (body,) = op.regions
        flat = op.attrs["num_consts"] + op.attrs["num_carry"]
        for k, (a, b, what) in enumerate(paired(op.operands, body.args, "operand")):
            yield a, b, what, op.attrs["length"] if k >= flat else None
        for k, (a, b, what) in enumerate(paired(op.results, body.results, "result")):
            yield a, b, what, op.attrs["length"] if k >= op.attrs["num_carry"] else None
    elif op.kind == "while":
        cond, body = op.regions
        n_cond, n_body = op.attrs["cond_nconsts"], op.attrs["body_nconsts"]
        start = op.operands[n_cond + n_body :]
        for a, b, what in paired([*op.operands[:n_cond], *start], cond.args, "operand"):
            yield a, b, what, None
        for a, b, what in paired([*op.operands[n_cond : n_cond + n_body], *start], body.args, "operand"):
            yield a, b, what, None
        for a, b, what in paired(op.results, body.results, "result"):
            yield a, b, what, None
        if len(cond.results) != 1:
            raise ValueError(f"{op.label}: its condition has {len(cond.results)} results")
    elif op.kind == "cond":
        for region in op.regions:
            for a, b, what in paired(op.operands[1:], region.args, "operand"):
                yield a, b, what, None
            for a, b, what in paired(op.results, region.results, "result"):
                yield a, b, what, None
