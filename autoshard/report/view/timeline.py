"""A step in the order of its program: ops, and the collectives and copies around them.

The cost model knows an order and durations, no clock. `on_the_clock` reads them in two ways: *serial* (nothing
overlaps: the sum that the solver minimises) and *estimate* (of each collective only the share that the machine's
profile does not hide adds time; `costs.steptime`). A loop's body appears once, with the durations of all its trips.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from autoshard.costs.critical import MatmulOrder, Role, matmul_order
from autoshard.costs.exposure import hidden_share
from autoshard.costs.manual import ops_in_body
from autoshard.costs.price import CommRow, When
from autoshard.plan_record import PlanRecord
from autoshard.program.program import Block, Op


@dataclass(frozen=True, slots=True)
class Event:
    """An op, or a collective or copy around it.

    op: the id of the op (-1: at the borders of the program). row: index into the rows of the price (-1: the op itself).
    seconds: per step. hidden: the share of them that other work hides in the estimate. role: what a collective moves.
    """

    op: int
    row: int
    seconds: float
    hidden: float
    role: str

    @property
    def exposed_s(self) -> float:
        """Seconds that the event adds to the estimate."""
        return self.seconds * (1 - self.hidden)


@dataclass(frozen=True, slots=True)
class Placed:
    """An event on a clock: its exposed part from `start_s` to `stop_s`, its hidden part beside other work."""

    event: Event
    start_s: float
    stop_s: float
    hidden_from_s: float
    hidden_to_s: float


def events(plan: PlanRecord) -> list[Event]:
    """Every op that takes time, and every collective and copy, in the order in which they happen."""
    return list(_Order(plan).walk())


def on_the_clock(sequence: list[Event], *, overlapped: bool = True) -> list[Placed]:
    """The events one after another, each from when those before it have ended.

    What is hidden lies before an event that moves weights, which can be fetched early, and behind all others.
    overlapped: False for the serial reading, in which nothing is hidden.
    """
    now, placed = 0.0, []
    for event in sequence:
        hidden = event.seconds * event.hidden if overlapped else 0.0
        stop = now + event.seconds - hidden
        early = event.role == Role.WEIGHTS
        since, until = (max(0.0, now - hidden), now) if early else (stop, stop + hidden)
        placed.append(Placed(event, now, stop, since, until))
        now = stop
    return placed


class _Order:
    """One walk over the program of a plan, with the rows of the price by when they happen."""

    def __init__(self, plan: PlanRecord) -> None:
        self.plan, self.program = plan, plan.program
        self.roles: MatmulOrder = matmul_order(plan.program)
        self.start: list[int] = []
        self.end: list[int] = []
        self.shared: dict[int, list[int]] = {}
        self.around: dict[tuple[int, When], list[int]] = {}
        self.handed: dict[tuple[int, int], list[int]] = {}
        for index, row in enumerate(plan.cost.rows):
            if row.when is When.START:
                self.start.append(index)
            elif row.when is When.END:
                self.end.append(index)
            elif row.when is When.SHARED:
                self.shared.setdefault(row.value, []).append(index)
            elif row.when is When.BODY:
                self.handed.setdefault((row.op, row.region), []).append(index)
            else:
                self.around.setdefault((row.op, row.when), []).append(index)

    def walk(self) -> Iterator[Event]:
        yield from self._rows(self.start, -1)
        yield from self._block(self.program.body)
        yield from self._rows([index for value in list(self.shared) for index in self.shared.pop(value)], -1)
        yield from self._rows(self.end, -1)

    def _block(self, block: Block) -> Iterator[Event]:
        for op in block.ops:
            for value in op.operands:
                yield from self._rows(self.shared.pop(value, ()), op.id)
            yield from self._rows(self.around.get((op.id, When.BEFORE), ()), op.id)
            yield from self._op(op)
            yield from self._rows(self.around.get((op.id, When.AFTER), ()), op.id)
        for value in block.results:
            yield from self._rows(self.shared.pop(value, ()), -1)

    def _op(self, op: Op) -> Iterator[Event]:
        seconds = self.plan.cost.op_seconds.get(op.id, 0.0)
        if seconds > 0:
            yield Event(op.id, -1, seconds, 0.0, "")
        if op.kind == "shard_map":
            for inner in ops_in_body(op):
                yield from self._rows(self.around.get((inner.id, When.INSIDE), ()), op.id)
            return
        for number, region in enumerate(op.regions):
            yield from self._block(region)
            yield from self._rows(self.handed.get((op.id, number), ()), op.id)

    def _rows(self, indices: "list[int] | tuple[int, ...]", op: int) -> Iterator[Event]:
        for index in indices:
            row: CommRow = self.plan.cost.rows[index]
            role = self.roles.role(row).value if row.is_collective else ""
            hidden = hidden_share(self.plan.machine, row.kind, Role(role), row.behind) if role else 0.0
            yield Event(op, index, row.seconds * row.times, hidden, role)
