"""When each value is held: half-open intervals over the program in execution order.

Time counts ops, bodies of loops included (one pass stands for every iteration). A value in memory is held until its
last reader runs; a fused reader runs together with the op that it is fused into. Values that a loop reads from outside
are held for the whole loop. Stacked results exist from the start of the loop and are written in place, so a slice that
only goes onto a stack needs no memory of its own. A carry lives from the start of the body to its last reader there.

With a schedule, a copy made by a reshard ends the life of the array that it is made from (compilers move communication
so that memory is freed). A copy no larger than the definition is made together with the value, a larger one when it is
first read; an all-reduce works in place, but not where its result is sliced. An output that replaces a donated input
and is gathered is gathered into memory of its own. An input that is cut unevenly is held as JAX has it, and the block
that is cut out of it is a copy (see `costs.border`).

Without a schedule, the intervals hold under every schedule: a definition is held for at least this long, and is first
read at this time at the latest. So a region op counts as reading its operand when it begins, since it may make a copy
then; and what a virtual value is computed from counts as read when that value could first be made, since later ops may
read a copy of it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from autoshard.costs.apart import apart_under
from autoshard.costs.border import stored_layout
from autoshard.costs.conversions import narrowed_bytes, share_of_form
from autoshard.costs.fusion import Fusion, pointwise
from autoshard.costs.host import sent
from autoshard.costs.places import places_of
from autoshard.costs.work import is_update
from autoshard.program.program import Block, Op, Origin, Program
from autoshard.program.schedule import PROGRAM, Schedule, Use
from autoshard.program.ties import donated_ties, reused_inputs
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.steps import Reshard, StepKind

Interval = tuple[int, int]
Size = Callable[[int, Layout], int]
"""(value, layout) -> bytes on one device."""


@dataclass(frozen=True)
class Liveness:
    """When values are held, by points of time.

    time[op id]: when the op runs. span[op id]: first and last time of the op and its bodies (inclusive).
    interval[value]: when the *definition* of a materialised value is held; absent for virtual values and for arguments
    of bodies that are read in place. reads[value]: first and last time the value is read, through virtual values.
    points: number of points in time. fusion: which values are in memory at all. made[value]: when results of ops are
    made. in_place: results that may take the memory of an operand. shared[value], private[use]: when the
    copies of a schedule are held. cut[value]: when the block of an input that is cut unevenly is.
    """

    time: dict[int, int]
    span: dict[int, Interval]
    interval: dict[int, Interval]
    reads: dict[int, Interval]
    points: int
    fusion: Fusion
    made: dict[int, int] = field(default_factory=dict)
    in_place: set[int] = field(default_factory=set)
    shared: dict[int, Interval] = field(default_factory=dict)
    private: dict[Use, Interval] = field(default_factory=dict)
    cut: dict[int, Interval] = field(default_factory=dict)


def analyse(
    program: Program,
    fusion: Fusion,
    schedule: Schedule | None = None,
    size: Size | None = None,
) -> Liveness:
    """Liveness of every value of `program`: under a schedule (with the bytes of its layouts), or under all of them."""
    return _Pass(program, fusion, schedule, size).run()


class _Pass:
    """One backward pass over the program."""

    def __init__(self, program: Program, fusion: Fusion, schedule: Schedule | None, size: Size | None) -> None:
        self.program, self.fusion, self.schedule, self.size = program, fusion, schedule, size
        self.held = set(fusion.held)
        if schedule is not None:  # a collective reads from memory, so its operand is not fused
            moved = [value for value, reshard in schedule.shared.items() if reshard.steps]
            moved += [use.value_in(program) for use, reshard in schedule.uses.items() if reshard.steps]
            moved += [order.index for order in program.orders if order.where == "value"]
            self.held.update(v for v in (*moved, *apart_under(program, schedule, fusion.updates)) if v in fusion)
        self.sent = frozenset(sent(program))
        self.held.update(v for v in (program.body.results[k] for k in self.sent) if v in fusion)
        self.time: dict[int, int] = {}
        self.span: dict[int, Interval] = {}
        self.interval: dict[int, Interval] = {}
        self.reads: dict[int, Interval] = {}
        self.shared: dict[int, Interval] = {}
        self.private: dict[Use, Interval] = {}
        self.cut: dict[int, Interval] = {}
        self.made: dict[int, int] = {}
        self.in_place: set[int] = set()
        self.handed: dict[int, int] = {}
        self.stacked: dict[int, list[Use]] = {}
        self.only_use = only_uses(program) if schedule is not None else {}

    def run(self) -> Liveness:
        program = self.program
        points = self._number(program.body, 1) + 1  # time 0 is before all ops, the last point after all ops
        for slot, value in enumerate(program.body.results):
            if slot not in program.host_outputs:
                self._read(value, points - 1, points - 1, Use(PROGRAM, slot))
        self._block(program.body)
        for slot in sorted(self.sent):  # copied to the host when it is made
            use = Use(PROGRAM, slot)
            if self._private(use) is not None:
                made = self.made.get(program.body.results[slot], points - 1)
                self.private[use] = (made, made + 1)
        outputs = set(program.body.results)
        gathered, reused = self._gathered_over(), reused_inputs(program)
        for index, value in enumerate(program.body.args):
            first, last = self.reads.get(value, (0, 0))
            if index in program.host_inputs:
                if value not in self.reads:
                    continue
                self.interval[value] = (first, last + 1)
            else:
                freed = index in reused and value not in outputs and value not in gathered
                self.interval[value] = (0, last + 1 if freed else points)
            stop = self._copy(value, first, last)
            if value in self.reads and self._stored(value) is not None:
                self.cut[value] = (first, stop)
        self._take_over()
        return Liveness(
            self.time, self.span, self.interval, self.reads, points, self.fusion, self.made, self.in_place, self.shared,
            self.private, self.cut,
        )  # fmt: skip

    def _stored(self, value: int) -> Layout | None:
        """The layout that JAX has an input in, where that is not the planned one."""
        if self.schedule is None:
            return None
        layout = self.schedule.definitions[value]
        stored = stored_layout(self.program, self.schedule.mesh, value, layout)
        return None if stored == layout else stored

    def _gathered_over(self) -> set[int]:
        """Donated inputs that outputs replace which are gathered: each into memory of its own when it is made, and from
        there over the input, which is held to the end.
        """
        program, gathered = self.program, set()
        if self.schedule is None:
            return gathered
        for slot, value in replaced_inputs(program).items():
            made, use = program.body.results[slot], Use(PROGRAM, slot)
            reshard = self._private(use)
            moved = reshard or self.schedule.shared.get(made)
            if moved is None or not moved.steps:
                continue
            before, after = self._bytes(made, moved.source), self._bytes(made, moved.target)
            if before < after == self._bytes(value, self._stored(value) or self.schedule.definitions[value]):
                gathered.add(value)
                if reshard is not None:
                    self.private[use] = (self.made[made], self.made[made] + 1)
        return gathered

    def _number(self, block: Block, now: int) -> int:
        for op in self.fusion.order(block):
            self.time[op.id] = now
            start, now = now, now + 1
            if op.kind != "shard_map":
                for region in op.regions:
                    now = self._number(region, now)
                now += op.kind in ("scan", "while")  # what a loop hands on is in place when its last op has run
            self.span[op.id] = (start, now - 1)
        return now

    # -- the backward pass ---------------------------------------------------------------------------

    def _read(self, value: int, first: int, last: int, use: Use) -> None:
        if self.program.values[value].origin is Origin.LITERAL:
            return
        reshard = self._private(use)
        if reshard is not None:
            self.private[use] = (first, last + 1)
            if value in self.held and self._bytes(value, reshard.target) >= self._bytes(value, reshard.source):
                last = first  # later reads are of the copy; the value is read only to make it
        old = self.reads.get(value)
        self.reads[value] = (first, last) if old is None else (min(old[0], first), max(old[1], last))

    def _private(self, use: Use) -> Reshard | None:
        reshard = self.schedule.uses.get(use) if self.schedule is not None else None
        return reshard if reshard is not None and reshard.steps else None

    def _bytes(self, value: int, layout: Layout) -> int:
        assert self.size is not None
        return self.size(value, layout)

    def _block(self, block: Block) -> None:
        for op in reversed(self.fusion.order(block)):
            start, last = self.span[op.id]
            begin, through = [], last
            for index, result in enumerate(op.results):
                needed = self._defined(result, made_at(op, index, start, last), last)
                virtual = result not in self.held
                begin.append(needed[0] if virtual else start)
                through = max(through, needed[1]) if virtual else through
            since = max(start, min(begin, default=start))
            if op.regions and op.kind != "shard_map":
                self._regions(op, start, last)
            copies = self.schedule is None and bool(op.regions) and op.kind != "shard_map"
            for slot, value in enumerate(op.operands):
                # the initial value of a carry is copied into the loop's buffer, and not needed any more
                brief = copies or starts_carry(op, slot)
                self._read(value, since, start if brief else through, Use(op.id, slot))

    def _defined(self, value: int, made: int, default: int) -> Interval:
        """Hold a definition; returns the interval for which it is needed itself, copies of it apart."""
        self.made[value] = made
        for use in self.stacked.get(value, ()):
            if self._private(use) is not None:
                self.private[use] = (made, made + 1)
        if value in self.stacked and value not in self.reads:
            return made, made
        first, last = self.reads.get(value, (default, default))
        last = max(last, default)
        if self.schedule is None and value not in self.held:
            return first, made
        if value not in self.held and self.schedule is not None and not self.schedule.definitions[value].unreduced:
            self._copy(value, first, last)  # its operands may have other readers, so the copy does not free them
            return first, last
        stop = min(self._copy(value, first, last, made), self.handed.get(value, last + 1))
        if value in self.held and made < stop:
            self.interval[value] = (made, stop)
        until = max(made, stop - 1)
        return min(first, until), until

    def _copy(self, value: int, first: int, last: int, made: int | None = None) -> int:
        """Hold the shared copy of a value, if it has one; returns the end of the definition."""
        if self.schedule is None:
            return last + 1
        reshard, use = self.schedule.shared.get(value), None
        if reshard is None and made is not None and self.schedule.definitions[value].unreduced:
            use = self.only_use.get(value)
            reshard = self._private(use) if use is not None and use in self.private else None
        if reshard is None or not reshard.steps:
            return last + 1
        if value in self.schedule.as_used:  # made when it is first read, beside what others have as it is defined
            self.shared[value] = (first, last + 1)
            return last + 1
        before, after = self._bytes(value, reshard.source), self._bytes(value, reshard.target)
        at = made if made is not None and after <= before else first
        if use is None:
            self.shared[value] = (at, last + 1)
        else:
            self.private[use] = (at, self.private[use][1])
        in_place = after <= before and [step.kind for step in reshard.steps] == [StepKind.ALL_REDUCE]
        return at if in_place else at + 1

    def _regions(self, op: Op, start: int, last: int) -> None:
        stacks = op.attrs["num_carry"] if op.kind == "scan" else None
        for number, region in enumerate(op.regions):
            for slot, value in enumerate(region.results):
                use = Use(op.id, slot, number)
                if stacks is None or slot < stacks:
                    self._read(value, last, last, use)
                    self.handed[value] = last  # after that it is held as the result of the op
                    if use in self.private:
                        self.private[use] = (last, last)
                else:
                    self.stacked.setdefault(value, []).append(use)  # written into the stack when it is made
                    if value in region.args and self._private(use) is not None:
                        self.private[use] = (last, last + 1)
            self._block(region)
            for arg in region.args:
                if arg in self.reads:
                    self._copy(arg, *self.reads[arg])
        if op.kind in ("scan", "while"):
            skip = op.attrs["num_consts"] if op.kind == "scan" else op.attrs["body_nconsts"]
            carries = op.attrs["num_carry"] if op.kind == "scan" else len(op.results)
            for arg in op.regions[-1].args[skip : skip + carries]:
                copied = arg in self.shared and (self.schedule is None or arg not in self.schedule.as_used)
                stop = self.shared[arg][0] + 1 if copied else self.reads.get(arg, (start, start))[1] + 1
                if start + 1 < stop:
                    self.interval[arg] = (start + 1, stop)

    # -- in place ------------------------------------------------------------------------------------

    def _take_over(self) -> None:
        """Let results take the memory of an operand of their size that is read there for the last time."""
        inputs, ends = frozenset(self.program.body.args), places_of(self.program)
        behind: dict[int, tuple[int, ...]] = {}  # virtual pointwise value -> values in memory that it is computed from
        for op, _ in self.program.walk():
            if (over := written_over(op, self.program, self.fusion)) is None:
                continue
            read: dict[int, None] = {}
            for value in over.operands:
                if value in self.reads and (value not in behind or value in self.shared or self.schedule is None):
                    read[value] = None
                if value not in self.shared:
                    read.update(dict.fromkeys(behind.get(value, ())))
            for result in op.results:
                if result not in self.held:
                    behind[result] = tuple(read)
                elif result in self.interval:
                    alone = (v for v in read if ends.is_free(v, result))
                    places = tuple(v for v in alone if self.fusion.calls is None or v in inputs)
                    self._replace(places, result, self.time[op.id], over)

    def _replace(self, read: tuple[int, ...], result: int, now: int, over: "Rewritten") -> None:
        if self.schedule is None:  # whether their layouts have the same bytes is not known yet
            if any(self.reads[value][1] == now for value in read):
                self.in_place.add(result)
            return
        if over.is_in_copy(self.schedule.definitions[result], self.schedule.mesh):
            return
        for value in read:
            table = self.shared if value in self.shared else self.cut if value in self.cut else self.interval
            if table is self.cut and self.fusion.calls is not None:
                continue  # no donated input
            held = table.get(value)
            if held is not None and held[1] == now + 1 and held[0] < now and self._same(value, result):
                table[value] = (held[0], now)
                return

    def _same(self, value: int, result: int) -> bool:
        assert self.schedule is not None and self.size is not None
        share = share_of_form(self.schedule, value, self.fusion.narrowed)
        form = narrowed_bytes(self.size(value, self.schedule.form_before_use(value)), share)
        return form == self.size(result, self.schedule.definitions[result])


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The operands that results of an op may be written over.

    part: of a `dynamic_update_slice`, dimension that it does not fill -> how long the part is that it writes there.
    shape: of the array.
    """

    operands: tuple[int, ...]
    part: Mapping[int, int] = field(default_factory=dict)
    shape: tuple[int, ...] = ()

    def is_in_copy(self, form: Layout, mesh: AtomMesh) -> bool:
        """Whether a device writes into a copy of its block, which is shorter than the part along a cut dimension."""
        local = form.local_shape(self.shape, mesh) if self.part else ()
        return any(form.dims[d] and local[d] < size for d, size in self.part.items())


def written_over(op: Op, program: Program, fusion: Fusion) -> Rewritten | None:
    """All operands of a pointwise op, and the array of which an update writes a part, if that is not what is written;
    None for other ops.
    """
    if op.regions or op.rule is None:
        return None
    if pointwise(op):
        return Rewritten(op.operands)
    if not is_update(op) or op.results[0] not in fusion or op.operands[0] in op.operands[1:]:
        return None
    pairs = zip(*op.rule.operands[:2], strict=True) if op.kind == "dynamic_update_slice" else ()
    shape, sizes = (program.type_of(v).shape for v in op.operands[:2])
    part = {d: sizes[d] for d, (array, cut) in enumerate(pairs) if array != cut}
    return Rewritten(op.operands[:1], part, shape)


def replaced_inputs(program: Program) -> dict[int, int]:
    """Output slot -> the donated input in the device's memory that it replaces, where an op makes the output."""
    args = {value: k for k, value in enumerate(program.body.args)}
    return {
        slot: value for slot, value in donated_ties(program).items()
        if program.body.results[slot] not in args and slot not in program.host_outputs
        and args[value] not in program.host_inputs and program.values[program.body.results[slot]].literal is None
    }  # fmt: skip


def only_uses(program: Program) -> Mapping[int, Use]:
    """Values with a single use, and this use."""
    uses: dict[int, tuple[int, ...] | None] = {}  # None from the second use on
    for slot, value in enumerate(program.body.results):
        uses[value] = None if value in uses else (PROGRAM, slot)
    for op, _ in program.walk():
        for slot, value in enumerate(op.operands):
            uses[value] = None if value in uses else (op.id, slot)
        for number, region in enumerate(op.regions):
            for slot, value in enumerate(region.results):
                uses[value] = None if value in uses else (op.id, slot, number)
    return {value: Use(*use) for value, use in uses.items() if use is not None}


def starts_carry(op: Op, slot: int) -> bool:
    """Whether an operand of a loop is the initial value of a carry."""
    if op.kind == "scan":
        return 0 <= slot - op.attrs["num_consts"] < op.attrs["num_carry"]
    return op.kind == "while" and slot >= op.attrs["cond_nconsts"] + op.attrs["body_nconsts"]


def made_at(op: Op, index: int, start: int, last: int) -> int:
    """When result `index` of an op is made: at `start`, or, for carries and results of other region ops, at `last`."""
    if op.kind == "scan":
        return last if index < op.attrs["num_carry"] else start
    return last if op.regions else start
