"""What the simulation of a schedule holds, as quantities that depend on the decisions of the network.

This is `costs.liveness` under all schedules at once. The backward pass over the program is the same. But a result that
depends on a layout, on which values are copied or on how large a copy is, is a `Quantity`: it has a value for each
choice of the few decisions behind it.
"""

from dataclasses import dataclass
from typing import Any

from autoshard.costs.apart import is_apart
from autoshard.costs.fusion import Fusion
from autoshard.costs.host import sent
from autoshard.costs.liveness import Liveness, made_at, only_uses, starts_carry, written_over
from autoshard.costs.padding import Tile
from autoshard.costs.places import places_of
from autoshard.formulation.chosen import ChosenLayouts
from autoshard.formulation.collect import Collected
from autoshard.formulation.encode import Encoded
from autoshard.formulation.held_inputs import hold_inputs, stored_form
from autoshard.formulation.held_orders import hold_copied_outputs, hold_other_orders, hold_turned_arrays
from autoshard.formulation.quantities import FREE, Quantities, Quantity
from autoshard.formulation.repeats import Repeats
from autoshard.program.program import Block, Op, Origin, Program
from autoshard.program.schedule import PROGRAM, Use
from autoshard.sharding.layout import AtomMesh, Layout

Span = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Holding:
    """An array that may be held: `held` is (start, stop, bytes), or None where a plan does not hold it."""

    what: str
    held: Quantity


def holdings(
    program: Program,
    fusion: Fusion,
    liveness: Liveness,
    collected: Collected,
    encoded: Encoded,
    repeats: Repeats,
    mesh: AtomMesh,
    tile: Tile | None,
    quantities: Quantities,
) -> list[Holding]:
    """All arrays that the simulation of some plan of this network may hold."""
    return Lifetimes(program, fusion, liveness, collected, encoded, repeats, mesh, tile, quantities).run()


class Lifetimes:
    """One backward pass; see `costs.liveness._Pass`, which it follows step by step."""

    def __init__(
        self,
        program: Program,
        fusion: Fusion,
        liveness: Liveness,
        collected: Collected,
        encoded: Encoded,
        repeats: Repeats,
        mesh: AtomMesh,
        tile: Tile | None,
        q: Quantities,
    ) -> None:
        self.program, self.fusion, self.mesh, self.q = program, fusion, mesh, q
        self.time, self.span, self.points = liveness.time, liveness.span, liveness.points
        self.layouts = ChosenLayouts(program, collected, encoded, repeats, mesh, tile, fusion, q)
        self.defined, self.inputs = set(collected.definition), frozenset(program.body.args)
        self.sent = frozenset(sent(program))
        self.only_use, self.ends = only_uses(program), places_of(program)
        self.yes, self.no, self.nothing = q.constant(True), q.constant(False), q.constant(None)
        self.interval: dict[int, Quantity] = {}
        self.reads: dict[int, Quantity] = {}
        self.shared: dict[int, Quantity] = {}
        self.private: dict[Use, Quantity] = {}
        self.cut: dict[int, Quantity] = {}
        self.handed: dict[int, int] = {}
        self.stacked: dict[int, list[Use]] = {}
        self.made: dict[int, int] = {}
        self._uses: dict[int, list[Use]] = {}
        for use, link in self.layouts.links.items():
            self._uses.setdefault(link.value, []).append(use)
        self._held: dict[int, Quantity] = {}

    # -- what decisions say --------------------------------------------------------------------------

    def move(self, use: Use) -> Quantity:
        """The copy that a use makes of the value it reads; None where it makes none."""
        link = self.layouts.links.get(use)
        return self.nothing if link is None else self.layouts.copy(link)

    def shared_move(self, value: int) -> Quantity:
        """The copy that all uses of a value share; None where they share none."""
        link = self.layouts.hubs.get(value)
        return self.nothing if link is None else self.layouts.copy(link)

    def held(self, value: int) -> Quantity:
        """Whether a value takes memory of its own: always, never, or where it is copied."""
        if value not in self._held:
            self._held[value] = self._is_held(value)
        return self._held[value]

    def _is_held(self, value: int) -> Quantity:
        if value in self.fusion.held:
            return self.yes
        if value not in self.fusion:
            return self.no
        if value in {self.program.body.results[k] for k in self.sent}:
            return self.yes
        if any(order.where == "value" and order.index == value for order in self.program.orders):
            return self.yes
        copied = self.q.lift(lambda move: move is not None, self.shared_move(value))
        for use in self._uses.get(value, ()):
            copied = self.q.lift(lambda a, move: a or move is not None, copied, self.move(use))
        return self._or_apart(value, copied)

    def _or_apart(self, value: int, held: Quantity) -> Quantity:
        """Whether a value is held, or else because it is a product which is kept apart from its update."""
        updates = self.fusion.updates
        op = None if updates is None else updates.matmuls.get(value)
        links = [] if op is None else [self.layouts.links.get(Use(op.id, slot)) for slot in range(len(op.operands))]
        ports = [self.layouts.port(link.target) for link in links if link is not None]
        if updates is None or op is None or len(ports) < len(links) or value not in self.defined:
            return held

        def apart(before: bool, product: Layout, *operands: Layout) -> bool:
            return before or is_apart(op, self.program, self.mesh, operands, product, updates.memory)

        return self.q.lift(apart, held, self.layouts.definition(value), *ports)

    # -- the backward pass ---------------------------------------------------------------------------

    def run(self) -> list[Holding]:
        """Everything that may be held; to be called once."""
        program, q = self.program, self.q
        end = self.points - 1
        for slot, value in enumerate(program.body.results):
            if slot not in program.host_outputs:
                self._read(value, q.constant((end, end)), Use(PROGRAM, slot))
        self._block(program.body)
        for slot in sorted(self.sent):
            use = Use(PROGRAM, slot)
            at = self.made.get(program.body.results[slot], end)
            self.private[use] = self._where_moved(use, (at, at + 1))
        hold_inputs(self)
        self._take_over()
        return self._holdings()

    def _where_moved(self, use: Use, span: Span) -> Quantity:
        return self.q.lift(lambda move: None if move is None else span, self.move(use))

    def _read(self, value: int, when: Quantity, use: Use) -> None:
        if self.program.values[value].origin is Origin.LITERAL:
            return
        move = self.move(use)
        if not (move.is_constant and move.constant is None):
            self.private[use] = self.q.lift(lambda w, m: None if m is None else (w[0], w[1] + 1), when, move)
            if not when.is_constant or when.constant[0] != when.constant[1]:

                def shortened(w: Span, m: Any, held: bool) -> Span:
                    return (w[0], w[0]) if m is not None and held and m[1] >= m[0] else w

                when = self.q.lift(shortened, when, move, self.held(value))
        old = self.reads.get(value)
        self.reads[value] = when if old is None else self.q.lift(_both, old, when)

    def _block(self, block: Block) -> None:
        for op in reversed(self.fusion.order(block)):
            start, last = self.span[op.id]
            since, through = self.q.constant(None), self.q.constant(last)
            for index, result in enumerate(op.results):
                needed = self._defined(result, made_at(op, index, start, last), last)
                held = self.held(result)
                since = self.q.lift(lambda s, n, h, start=start: _least(s, start if h else n[0]), since, needed, held)
                through = self.q.lift(lambda t, n, h: t if h else max(t, n[1]), through, needed, held)
            since = self.q.lift(lambda s, start=start: start if s is None else max(start, s), since)
            if op.regions and op.kind != "shard_map":
                self._regions(op, start, last)
            first = self.q.lift(lambda s, start=start: (s, start), since)
            all_along = self.q.lift(lambda s, t: (s, t), since, through)
            for slot, value in enumerate(op.operands):
                self._read(value, first if starts_carry(op, slot) else all_along, Use(op.id, slot))

    def _defined(self, value: int, made: int, default: int) -> Quantity:
        """Hold a definition; the result is the time for which it is needed itself, copies of it apart."""
        q = self.q
        self.made[value] = made
        for use in self.stacked.get(value, ()):
            self.private[use] = self._where_moved(use, (made, made + 1))
        if value in self.stacked and value not in self.reads:
            return q.constant((made, made))
        read = q.lift(lambda r: (r[0], max(r[1], default)), self.reads.get(value, q.constant((default, default))))
        held = self.held(value)
        stop = self.copy(value, read, made)
        handed = self.handed.get(value)
        if handed is not None:
            stop = q.lift(lambda s: min(s, handed), stop)
        if not (held.is_constant and not held.constant):
            self.interval[value] = q.lift(lambda s, h: (made, s) if h and made < s else None, stop, held)

        def needed(r: Span, s: int, virtual: bool) -> Span:
            if virtual:
                return r
            until = max(made, s - 1)
            return min(r[0], until), until

        return q.lift(needed, read, stop, self._fused(value))

    def _fused(self, value: int) -> Quantity:
        """Whether a value is virtual and whole: then the operands it is computed from are read until it is read
        itself.
        """
        return self.q.lift(
            lambda held, lay: not held and not lay.unreduced, self.held(value), self.layouts.definition(value)
        )

    def copy(self, value: int, read: Quantity, made: int | None) -> Quantity:
        """Hold the shared copy of a value; returns the end of the definition. made: None where a copy is never made
        at once.
        """
        q = self.q
        shared = self.shared_move(value)
        use = self.only_use.get(value) if made is not None else None
        private = self.move(use) if use is not None and use in self.private else self.nothing
        fused = self.no if made is None else self._fused(value)

        def when(move: Any, r: Span, virtual: bool) -> int:
            at_once = made is not None and not virtual and not move[4] and move[1] <= move[0]
            return made if at_once and made is not None else r[0]

        if not (shared.is_constant and shared.constant is None):
            self.shared[value] = q.lift(
                lambda m, r, v: None if m is None else (when(m, r, v), r[1] + 1), shared, read, fused
            )
        if not (private.is_constant and private.constant is None):
            assert use is not None
            self.private[use] = q.lift(
                lambda span, s, m, r, v: (
                    span if span is None or m is None or s is not None or not m[2] or v else (when(m, r, v), span[1])
                ),
                self.private[use], shared, private, read, fused,
            )  # fmt: skip

        def end(s: Any, p: Any, r: Span, virtual: bool) -> int:
            move = s if s is not None else p if p is not None and p[2] else None
            if move is None or virtual or move[4]:
                return r[1] + 1
            at = when(move, r, virtual)
            return at if move[3] and move[1] <= move[0] else at + 1

        return q.lift(end, shared, private, read, fused)

    def _regions(self, op: Op, start: int, last: int) -> None:
        stacks = op.attrs["num_carry"] if op.kind == "scan" else None
        for number, region in enumerate(op.regions):
            for slot, value in enumerate(region.results):
                use = Use(op.id, slot, number)
                if stacks is None or slot < stacks:
                    self._read(value, self.q.constant((last, last)), use)
                    self.handed[value] = last
                    self.private[use] = self._where_moved(use, (last, last))
                else:
                    self.stacked.setdefault(value, []).append(use)
                    if value in region.args:
                        self.private[use] = self._where_moved(use, (last, last + 1))
            self._block(region)
            for arg in region.args:
                if arg in self.reads:
                    self.copy(arg, self.reads[arg], None)
        if op.kind in ("scan", "while"):
            skip = op.attrs["num_consts"] if op.kind == "scan" else op.attrs["body_nconsts"]
            carries = op.attrs["num_carry"] if op.kind == "scan" else len(op.results)
            for arg in op.regions[-1].args[skip : skip + carries]:
                read = self.reads.get(arg, self.q.constant((start, start)))

                def until(shared: Span | None, move: Any, r: Span, start: int = start) -> Span | None:
                    # both depend on the same decisions, but one of them may have become a node of its own
                    last = r[1] if shared is None or (move is not None and move[4]) else shared[0]
                    stop = last + 1
                    return (start + 1, stop) if start + 1 < stop else None

                copied = self.shared.get(arg, self.nothing)
                self.interval[arg] = self.q.lift(until, copied, self.shared_move(arg), read)

    # -- in place ------------------------------------------------------------------------------------

    def _take_over(self) -> None:
        """Write results in place of an operand of the same size that is read there for the last time."""
        behind: dict[int, Quantity] = {}
        none = self.q.constant(())
        for op, _ in self.program.walk():
            if (over := written_over(op, self.program, self.fusion)) is None:
                continue
            read = none
            for value in dict.fromkeys(over.operands):
                is_read = value in self.reads
                shared = self.shared.get(value, self.nothing)
                before = behind.get(value, self.nothing)

                def more(
                    so_far: tuple[int, ...], copy: Any, beyond: Any, value: int = value, is_read: bool = is_read
                ) -> tuple[int, ...]:
                    own = (value,) if is_read and (beyond is None or copy is not None) else ()
                    further = beyond if copy is None and beyond is not None else ()
                    return tuple(dict.fromkeys((*so_far, *own, *further)))

                read = self.q.lift(more, read, shared, before)
            for result in op.results:
                held = self.held(result)
                if not (held.is_constant and held.constant):
                    behind[result] = self.q.lift(lambda h, r: None if h else r, held, read)
                if result in self.interval:
                    at = self.layouts.definition(result)
                    copied = self.q.lift(lambda form, over=over: over.is_in_copy(form, self.mesh), at)
                    self._replace(read, result, self.time[op.id], copied)

    def _replace(self, read: Quantity, result: int, now: int, copied: Quantity) -> None:
        q, size = self.q, self.layouts.bytes(result, self.layouts.definition(result))
        size = q.lift(lambda b, c: -1 if c else b, size, copied)
        taken = q.lift(lambda span: 0 if span is None else None, self.interval[result])  # 0: the result needs no place
        for value in dict.fromkeys(v for found in read.values if found is not FREE for v in found):
            if (self.fusion.calls is not None and value not in self.inputs) or not self.ends.is_free(value, result):
                continue
            copy, cut = (table.get(value, self.nothing) for table in (self.shared, self.cut))
            for number, table in enumerate((self.shared, self.cut, self.interval)):
                if value not in table or (table is self.cut and self.fusion.calls is not None):
                    continue

                def last_read(span: Any, copy: Any, cut: Any, number: int = number) -> bool:
                    lies = 0 if copy is not None else 1 if cut is not None else 2
                    return span is not None and lies == number and span[1] == now + 1 and span[0] < now

                fits = q.lift(last_read, table[value], copy, cut)
                if fits.is_constant and not fits.constant:
                    continue
                own = self.layouts.form_bytes(value)
                fits = q.lift(lambda f, a, b: f and a == b, fits, own, size)
                here = q.lift(lambda t, r, f, value=value: t is None and value in r and f, taken, read, fits)
                table[value] = q.lift(
                    lambda span, h: (span[0], now) if h and span is not None else span, table[value], here
                )
                taken = q.lift(lambda t, h, value=value: value if h else t, taken, here)

    # -- what is held --------------------------------------------------------------------------------

    def _holdings(self) -> list[Holding]:
        out: list[Holding] = []
        name = [value.name for value in self.program.values]

        def add(what: str, span: Quantity, value: int, layout: Quantity) -> None:
            hold(what, span, self.layouts.bytes(value, layout))

        def hold(what: str, span: Quantity, own: Quantity) -> None:
            held = self.q.lift(lambda s, b: None if s is None or s[0] >= s[1] or not b else (s[0], s[1], b), span, own)
            if not (held.is_constant and held.constant is None):
                out.append(Holding(what, held))

        for value, span in self.interval.items():
            if value in self.defined:
                add(name[value], span, value, stored_form(self, value))
        for value, span in self.cut.items():
            add(f"{name[value]}, its block", span, value, self.layouts.definition(value))
        for value, span in self.shared.items():
            hold(f"{name[value]}, resharded for all its uses", span, self.layouts.form_bytes(value))
        for use, span in self.private.items():
            link = self.layouts.links.get(use)
            if link is not None:
                add(f"{name[link.value]}, resharded for {use}", span, link.value, self.layouts.port(link.target))
        hold_copied_outputs(self, add)
        hold_other_orders(self, add)
        hold_turned_arrays(self, add)
        return out


def _both(one: Span, other: Span) -> Span:
    return min(one[0], other[0]), max(one[1], other[1])


def _least(one: int | None, other: int) -> int:
    return other if one is None else min(one, other)
