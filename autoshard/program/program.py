"""The program: values, ops and regions, as every front end delivers it.

Value ids are unique over the whole program, bodies of regions included; so are op ids. The ops of a
block are in execution order.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from autoshard.program.rule import ShardingRule
from autoshard.program.types import TensorType


class Origin(StrEnum):
    """Where a value comes from."""

    INPUT = "input"  # an argument of the program
    CONST = "const"  # an array the program closes over
    LITERAL = "literal"  # a scalar written into the program
    ARG = "arg"  # an argument of a region's block
    OP = "op"  # the result of an op


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the program.

    name: pytree path for inputs (``state/params/layers/wq``); for others unique and readable.
    tags: names given by the user (``checkpoint_name``), without the ``@``.
    literal: the Python scalar of a LITERAL.
    """

    id: int
    name: str
    type: TensorType
    origin: Origin
    tags: tuple[str, ...] = ()
    literal: bool | int | float | complex | None = None

    def __eq__(self, other: object) -> bool:
        """Field by field as tuples are, also where Python (3.13) would ask whether a NaN is equal to itself."""
        if not isinstance(other, Value):
            return NotImplemented
        own = (self.id, self.name, self.type, self.origin, self.tags, self.literal)
        return own == (other.id, other.name, other.type, other.origin, other.tags, other.literal)


@dataclass(frozen=True, slots=True)
class Block:
    """A straight list of ops with arguments and results (value ids)."""

    args: tuple[int, ...]
    ops: tuple["Op", ...]
    results: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Op:
    """One operation.

    kind: the primitive's name in the front end's vocabulary (JAX: ``dot_general``).
    rule: None for region ops (scan, while, cond), which are tied by data-flow edges instead.
    source: ``file.py:123 (function)`` where known.
    attrs: plain data, see docs/architecture.md: for region ops their counts; ``zero`` when the
        result is all zeros; ``barrier_group`` on members of one optimization barrier.
    """

    id: int
    kind: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    rule: ShardingRule | None
    source: str = ""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    regions: tuple[Block, ...] = ()

    @property
    def sent(self) -> tuple[int, ...]:
        """Of a collective in the user's `shard_map`, the operands that travel; of a ragged one, the first one."""
        return self.operands[:1] if self.attrs.get("ragged") else self.operands


@dataclass(frozen=True, slots=True)
class OtherOrder:
    """A value that is stated to lie on a mesh over the same devices in an order that no axes of the plan's mesh follow.

    where: ``input`` (number `index`, permuted when it comes in), ``output`` (permuted as it leaves) or ``value`` (id
    `index`, brought there and back).
    sharding: its closed sharding in the order of the plan's mesh. moves: the block of the device at each position of
    that mesh (row-major) lies at the device at position ``moves[position]``.
    mesh, stated: the other mesh and the sharding on it, as text.
    """

    where: str
    index: int
    sharding: str
    moves: tuple[int, ...]
    mesh: str
    stated: str


IN_CODE = ("hard", "hints", "ignore")
"""What shardings that are stated in the code may be."""
ALIKE = "alike"
"""The attribute of an op whose result is in the sharding group of this number."""
BORDER = "border"
"""The attribute of a constraint that a `jax.jit` around the whole program states of an argument (``in_shardings``) or
of a result (``out_shardings``)."""
_ALIKE_TAG = "shard_alike:"


def alike_tag(group: int) -> str:
    """The tag of a value in a sharding group that has no op there, such as ``a`` of ``_, b = shard_alike(a, b)``."""
    return f"{_ALIKE_TAG}{group}"


def is_alike_tag(tag: str) -> bool:
    """Whether a tag is one that `alike_tag` makes."""
    return tag.startswith(_ALIKE_TAG) and tag.removeprefix(_ALIKE_TAG).isdecimal()


@dataclass(frozen=True)
class Program:
    """A whole program.

    inputs are the first ``len(input_names)`` of ``body.args`` in order; closed-over constants follow.
    outputs are ``body.results``; their names are ``out/...`` pytree paths.
    donated: indices into inputs whose buffers the program may reuse.
    host_inputs, host_outputs: indices into inputs and outputs that live in host memory between calls.
    orders: what is stated to lie in another order of the devices than the plan's.
    carried: (output slot, input index) of state that comes back in the layout in which it comes in.
    in_code: what shardings in the code are: ``hard`` statements, ``hints`` or to be ignored (``ignore``).
    loop_parts: in how many parts each loop runs that can run in parts; empty where all run as they stand.
    warnings: what the front end wants the user to know (unknown primitives and the like).
    """

    name: str
    values: tuple[Value, ...]
    body: Block
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    donated: frozenset[int] = frozenset()
    warnings: tuple[str, ...] = ()
    host_inputs: frozenset[int] = frozenset()
    host_outputs: frozenset[int] = frozenset()
    orders: tuple[OtherOrder, ...] = ()
    carried: tuple[tuple[int, int], ...] = ()
    in_code: str = "hard"
    loop_parts: tuple[int, ...] = ()

    def type_of(self, value: int) -> TensorType:
        """Shape and dtype of a value, given its id."""
        return self.values[value].type

    def walk(self) -> Iterator[tuple[Op, tuple[Op, ...]]]:
        """Every op in execution order with the region ops around it, outermost first."""

        def visit(block: Block, outer: tuple[Op, ...]) -> Iterator[tuple[Op, tuple[Op, ...]]]:
            for op in block.ops:
                yield op, outer
                for region in op.regions:
                    yield from visit(region, (*outer, op))

        return visit(self.body, ())

    @cached_property
    def ops(self) -> dict[int, Op]:
        """Every op by id, bodies of regions included."""
        return {op.id: op for op, _ in self.walk()}
