"""The order in which ops and reshards run, and the check that program and schedule fit each other.

Lowering and the list of planned collectives both follow `events`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from autoshard.errors import InputError
from autoshard.program.program import Block, Op, Program
from autoshard.program.schedule import PROGRAM, Schedule, Use
from autoshard.sharding.layout import Layout
from autoshard.sharding.steps import Reshard


@dataclass(frozen=True, slots=True)
class Share:
    """Compute the shared form of a value."""

    value: int
    reshard: Reshard


@dataclass(frozen=True, slots=True)
class Take:
    """Bring a value into the layout that one use needs; `reshard` is None for literals."""

    value: int
    use: Use
    reshard: Reshard | None


@dataclass(frozen=True, slots=True)
class Run:
    """Execute an op."""

    op: Op


Event = Share | Take | Run


def events(block: Block, schedule: Schedule, owner: tuple[int, int] = (PROGRAM, -1)) -> Iterator[Event]:
    """The ops and reshards of a block, in order; bodies of region ops are not entered.

    owner: (op id, region index) of the region that `block` is; the program's own body by default.
    """
    shared: set[int] = set()

    def take(value: int, use: Use) -> Iterator[Event]:
        if value in schedule.shared and value not in shared:
            shared.add(value)
            yield Share(value, schedule.shared[value])
        yield Take(value, use, schedule.uses.get(use))

    for op in block.ops:
        for slot, value in enumerate(op.operands):
            yield from take(value, Use(op.id, slot))
        yield Run(op)
    for slot, value in enumerate(block.results):
        yield from take(value, Use(owner[0], slot, owner[1]))


def argument_slots(op: Op, region: int) -> list[int]:
    """For each block argument of a region, the operand of the region op that feeds it first.

    The consts of a `while` are given to one of its two regions only.
    """
    if op.kind == "while":
        cond, body = int(op.attrs["cond_nconsts"]), int(op.attrs["body_nconsts"])
        consts = range(cond) if region == 0 else range(cond, cond + body)
        return [*consts, *range(cond + body, len(op.operands))]
    if op.kind == "cond":
        return list(range(1, len(op.operands)))
    return list(range(len(op.operands)))


def stacked_operands(op: Op) -> int:
    """Index of the first operand of a scan that is stacked along dimension 0."""
    return int(op.attrs["num_consts"]) + int(op.attrs["num_carry"])


def stack(layout: Layout) -> Layout:
    """The layout of a stack of such tensors: a leading dimension that is not cut."""
    return Layout(((), *layout.dims), layout.unreduced)


def check_schedule(program: Program, schedule: Schedule) -> None:
    """Raise `InputError` unless every value and use has a layout and all of them fit together."""
    checker = _Checker(program, schedule)
    body = program.body
    for value in body.args:
        checker.definition(value)
    checker.block(body, (PROGRAM, -1))
    for slot, value in enumerate(body.results):
        target = checker.use(value, Use(PROGRAM, slot))
        if target is not None and target.unreduced:
            raise InputError(f"{checker.name(value)}, output {slot}, is still a partial sum: {checker.text(target)}")


@dataclass(frozen=True)
class _Checker:
    program: Program
    schedule: Schedule

    def name(self, value: int) -> str:
        return f"value {self.program.values[value].name!r}"

    def text(self, layout: Layout) -> str:
        return layout.text(self.schedule.mesh)

    def definition(self, value: int) -> Layout:
        layout = self.schedule.definitions.get(value)
        if layout is None:
            raise InputError(f"the schedule does not say in which layout {self.name(value)} is defined")
        if len(layout.dims) != self.program.type_of(value).rank:
            raise InputError(
                f"{self.name(value)} has type {self.program.type_of(value)} but layout {self.text(layout)}"
            )
        return layout

    def use(self, value: int, use: Use) -> Layout | None:
        """Where the reshard of a use leads; None for literals."""
        if self.program.values[value].literal is not None:
            return None
        reshard = self.schedule.uses.get(use)
        if reshard is None:
            raise InputError(f"the schedule does not say how {use} takes {self.name(value)}")
        self.definition(value)
        self.reshard(value, reshard, self.schedule.form_before_use(value), str(use))
        return reshard.target

    def reshard(self, value: int, reshard: Reshard, source: Layout, what: str) -> None:
        if reshard.source != source:
            raise InputError(
                f"{what} of {self.name(value)} starts from {self.text(reshard.source)}, "
                f"the value is {self.text(source)}"
            )
        try:
            reshard.check()
        except ValueError as error:
            raise InputError(f"{what} of {self.name(value)}: {error}") from None

    def same(self, found: Layout | None, wanted: Layout, what: str) -> None:
        if found is not None and found != wanted:
            raise InputError(f"{what} is in {self.text(found)}, wanted {self.text(wanted)}")

    def block(self, block: Block, owner: tuple[int, int]) -> None:
        for op in block.ops:
            targets = [self.use(value, Use(op.id, slot)) for slot, value in enumerate(op.operands)]
            results = [self.definition(value) for value in op.results]
            if op.rule is None:
                self.region_op(op, targets, results)
                continue
            placement = self.schedule.placements.get(op.id)
            if placement is None:
                raise InputError(f"the schedule does not place op {op.id} ({op.kind})")
            for slot, target in enumerate(targets):
                wanted = placement.operand(op.rule, slot)
                self.same(target, wanted, f"operand {slot} of op {op.id} ({op.kind})")
                if self.program.values[op.operands[slot]].literal and wanted.unreduced:
                    raise InputError(
                        f"operand {slot} of op {op.id} ({op.kind}) is a literal, it cannot be a partial sum"
                    )
            for slot, result in enumerate(results):
                self.same(result, placement.result(op.rule, slot), f"result {slot} of op {op.id} ({op.kind})")
        for value, shared in self.schedule.shared.items():
            if value in block.args or any(value in op.results for op in block.ops):
                self.reshard(value, shared, self.definition(value), "the shared form")

    def region_op(self, op: Op, targets: list[Layout | None], results: list[Layout]) -> None:
        if op.kind == "shard_map":  # its body works on local arrays; no layouts inside
            return
        for region, block in enumerate(op.regions):
            arguments = [self.definition(value) for value in block.args]
            slots = argument_slots(op, region)
            for slot, argument in zip(slots, arguments, strict=True):
                wanted = stack(argument) if op.kind == "scan" and slot >= stacked_operands(op) else argument
                self.same(targets[slot], wanted, f"operand {slot} of op {op.id} ({op.kind})")
            self.block(block, (op.id, region))
            crossing = [self.use(value, Use(op.id, slot, region)) for slot, value in enumerate(block.results)]
            where = f"of region {region} of op {op.id} ({op.kind})"
            if op.kind == "while" and region == 0:
                self.same(crossing[0], Layout(()), f"the predicate {where}")
                continue
            carries = int(op.attrs["num_carry"]) if op.kind == "scan" else len(crossing)
            for slot, (layout, result) in enumerate(zip(crossing, results, strict=True)):
                if slot >= carries and layout is not None:
                    layout = stack(layout)
                self.same(layout, result, f"result {slot} {where}")
            if op.kind in ("scan", "while"):
                for slot, argument in enumerate(
                    arguments[len(arguments) - len(crossing) :]
                    if op.kind == "while"
                    else arguments[int(op.attrs["num_consts"]) :][:carries]
                ):
                    self.same(crossing[slot], argument, f"carry {slot} {where}")
        if op.kind == "cond":
            self.same(targets[0], Layout(()), f"the index of op {op.id} (cond)")
