"""From when until when each array is held on a device, worked out again from the flow of a plan.

Points in time are ops in execution order, counted from 1; bodies of loops are counted once. Going backwards through all
ops, it is found when each value is read. A value that is not in memory passes its reads on to what it is computed from;
a copy made by a reshard takes over the reads of what it is made from.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from math import ceil, prod

from autoshard.verify.plan.border import arguments, cuts
from autoshard.verify.plan.calls import Calls
from autoshard.verify.plan.flow import Flow, UseKey, Way
from autoshard.verify.plan.host import stored
from autoshard.verify.plan.layout import Holding
from autoshard.verify.plan.program import PROGRAM_OP, Body, Graph, Node, carries, element_bytes
from autoshard.verify.plan.rules import Rule
from autoshard.verify.plan.ties import next_values, open_places, rolled_again, written_over
from autoshard.verify.plan.work import is_update

Span = tuple[int, int]


def starts_carry(op: Node, slot: int) -> bool:
    """Whether the operand is the first value of a loop's carry."""
    if op.kind == "scan":
        return op.attrs["num_consts"] <= slot < op.attrs["num_consts"] + op.attrs["num_carry"]
    return op.kind == "while" and slot >= op.attrs["cond_nconsts"] + op.attrs["body_nconsts"]


class Sizes:
    """Called with a value and what a device holds of it: the bytes of that block in memory.

    tile: rows and lanes of the machine's memory, if it has tiles. doubled: values that lie in memory twice.
    """

    def __init__(
        self,
        graph: Graph,
        rules: Mapping[int, Rule],
        tile: tuple[int, int] | None,
        doubled: frozenset[int] = frozenset(),
    ) -> None:
        self._graph, self._tile, self._doubled = graph, tile, doubled
        # results of convolutions, and values of their shape -> their channel dimension and their batch dimension
        self._images: dict[int, tuple[int, int]] = {}
        shapes: dict[tuple[int, ...], tuple[int, int]] = {}
        for op in graph.nodes.values():
            rule = rules.get(op.id)
            if tile is None or rule is None or op.kind != "conv_general_dilated":
                continue
            image, kernel = ({f for d in t for f in d} for t in rule.operands)
            channels = [d for d, t in enumerate(rule.results[0]) if any(f in kernel and f not in image for f in t)]
            batch = [d for d, t in enumerate(rule.results[0]) if any(f in image and f not in kernel for f in t)]
            if channels and batch:
                shapes.setdefault(graph.values[op.results[0]].shape, (channels[0], batch[0]))
        for op in graph.nodes.values():
            self._images.update((v, shapes[s]) for v in op.results if (s := graph.values[v].shape) in shapes)

    def __call__(self, value: int, held: Holding) -> int:
        tensor = self._graph.values[value]
        elements = held.elements(tensor.shape)
        if elements and self._tile is not None and value in self._images:
            block = [run.length for run in held.runs]
            rows, lanes = self._tile
            ends = self._images[value]
            counts = []
            for minor, second in (ends, ends[::-1]):
                row = min(rows, 1 << max(0, block[second] - 1).bit_length())
                counts.append(ceil(block[minor] / lanes) * lanes * ceil(block[second] / row) * row)
            elements = min(counts) * prod(n for d, n in enumerate(block) if d not in ends)
        return ceil(elements * element_bytes(tensor.dtype)) * (1 + (value in self._doubled))


@dataclass
class Lives:
    """From when up to when (not included) arrays are held, and when ops run.

    begin, end: of ops; regions run in between. close: the point after the last op. defined: values. shared: copies for
    all uses of a value. private: copies for single uses. cut: uneven blocks of arguments. kept: values with memory of
    their own. narrowed: of values that are gathered as they are used, the share of their bytes that is gathered.
    """

    flow: Flow
    rules: Mapping[int, Rule]
    kept: set[int]
    size: Sizes
    calls: Calls | None = None
    narrowed: Mapping[int, float] = field(default_factory=dict)
    begin: dict[int, int] = field(default_factory=dict)
    end: dict[int, int] = field(default_factory=dict)
    close: int = 0
    defined: dict[int, Span] = field(default_factory=dict)
    shared: dict[int, Span] = field(default_factory=dict)
    private: dict[UseKey, Span] = field(default_factory=dict)
    cut: dict[int, Span] = field(default_factory=dict)
    _read: dict[int, Span] = field(default_factory=dict)  # first and last point, both included
    _stacked: dict[int, list[UseKey]] = field(default_factory=dict)
    _handed: dict[int, int] = field(default_factory=dict)  # from when on a value is held as the result of a region op
    _users: dict[int, list[UseKey]] = field(default_factory=dict)

    @staticmethod
    def of(
        flow: Flow,
        rules: Mapping[int, Rule],
        exists: set[int],
        kept: set[int],
        size: Sizes,
        calls: Calls | None = None,
        apart: Set[int] = frozenset(),
        narrowed: Mapping[int, float] | None = None,
    ) -> "Lives":
        """exists: values that are written to memory. kept: those that have memory of their own even if never moved.
        calls: of machines whose matmuls are calls of libraries. apart: products that are written before an update.
        narrowed: as in the class.
        """
        moved = {v for v, way in flow.shared.items() if way.moves} | {w.value for w in flow.uses.values() if w.moves}
        moved |= {order["index"] for order in flow.graph.orders if order["where"] == "value"}
        lives = Lives(flow, rules, kept | ((moved | apart) & exists), size, calls, narrowed or {})
        lives.close = lives._count(flow.graph.body, 1)
        lives._boundaries()
        for op in sorted(flow.graph.nodes.values(), key=lambda op: -lives.begin[op.id]):
            lives._back_over(op)
        lives._stored()
        lives._arguments()
        lives._in_place(exists)
        return lives

    def read(self, value: int) -> Span | None:
        """The first and last point at which a value is read, both included; None where it is not read."""
        return self._read.get(value)

    def form_bytes(self, value: int, form: Holding) -> int:
        """Bytes of the form that uses share; of one that is gathered as it is used, those that are gathered."""
        return ceil(self.size(value, form) * self.narrowed.get(value, 1.0))

    def _count(self, body: Body, now: int) -> int:
        put_off = frozenset() if self.calls is None else self.calls.put_off
        for op in [op for op in body.ops if op.id not in put_off] + [op for op in body.ops if op.id in put_off]:
            self.begin[op.id] = now
            now += 1
            for r in op.inner:
                now = self._count(r, now)
            now += op.kind in ("scan", "while")  # the moment at which a loop hands on
            self.end[op.id] = now - 1
        return now

    def _moves(self, use: UseKey) -> Way | None:
        way = self.flow.uses.get(use)
        return way if way is not None and way.moves else None

    def _boundaries(self) -> None:
        """Enter the reads of results of the program and of regions, and the users of every value."""
        graph = self.flow.graph
        for slot, v in enumerate(graph.body.results):
            self._users.setdefault(v, []).append((PROGRAM_OP, slot, -1))
            if slot in graph.host_outputs:
                continue  # see `_stored`
            self._reads(v, self.close, self.close, (PROGRAM_OP, slot, -1))
        for op in graph.nodes.values():
            for slot, v in enumerate(op.operands):
                self._users.setdefault(v, []).append((op.id, slot, -1))
            for number, region in enumerate(op.inner):
                for slot, v in enumerate(region.results):
                    use, end = (op.id, slot, number), self.end[op.id]
                    self._users.setdefault(v, []).append(use)
                    if op.kind == "scan" and slot >= op.attrs["num_carry"]:
                        self._stacked.setdefault(v, []).append(use)
                        if v in region.args and self._moves(use):
                            self.private[use] = (end, end + 1)
                        continue
                    self._reads(v, end, end, use)
                    self._handed[v] = end
                    if use in self.private:
                        self.private[use] = (end, end)

    def _reads(self, value: int, first: int, last: int, use: UseKey) -> None:
        if self.flow.graph.values[value].is_literal:
            return
        way = self._moves(use)
        if way is not None:
            self.private[use] = (first, last + 1)
            if value in self.kept and self.size(value, way.end) >= self.size(value, way.moves[0].before):
                last = first
        old = self._read.get(value, (first, last))
        self._read[value] = (min(first, old[0]), max(last, old[1]))

    def _back_over(self, op: Node) -> None:
        """One step backwards: when the op's results are held, and from that when its operands are read."""
        begin, end = self.begin[op.id], self.end[op.id]
        starts, until = [], end
        for slot, v in enumerate(op.results):
            whole = op.kind == "scan" and slot >= op.attrs["num_carry"]
            first, last = self._result(v, begin if whole or not op.regions else end, end)
            starts.append(begin if v in self.kept else first)
            until = until if v in self.kept else max(until, last)
        since = max(begin, min(starts, default=begin))
        for slot, v in enumerate(op.operands):
            self._reads(v, since, begin if starts_carry(op, slot) else until, (op.id, slot, -1))

    def _result(self, value: int, made: int, end: int) -> Span:
        """Enter when a result is held; returns the first and last point at which its op's operands are read for it."""
        for use in self._stacked.get(value, ()):
            if self._moves(use):
                self.private[use] = (made, made + 1)
        if value in self._stacked and value not in self._read:
            return made, made
        first, last = self._read.get(value, (end, end))
        last = max(last, end)
        if value not in self.kept and not self.flow.defined[value].partial:
            self._copied(value, first, last, None)
            return first, last
        stop = min(self._copied(value, first, last, made), self._handed.get(value, last + 1))
        if value in self.kept and made < stop:
            self.defined[value] = (made, stop)
        until = max(made, stop - 1)
        return min(first, until), until

    def _copied(self, value: int, first: int, last: int, made: int | None) -> int:
        """Enter when the copy that replaces a value is held; returns the point from which the value no longer is."""
        way, use = self.flow.shared.get(value), None
        users = self._users.get(value, ())
        if way is None and made is not None and len(users) == 1 and self.flow.defined[value].partial:
            if users[0] in self.private:
                use, way = users[0], self._moves(users[0])
        if way is None or not way.moves:
            return last + 1
        if use is None and value in self.narrowed:  # beside the value, which other uses read
            self.shared[value] = (first, last + 1)
            return last + 1
        before, after = self.size(value, way.moves[0].before), self.size(value, way.end)
        at = first if made is None or after > before else made
        if use is None:
            self.shared[value] = (at, last + 1)
        else:
            self.private[use] = (at, self.private[use][1])
        in_place = after <= before and len(way.moves) == 1 and way.moves[0].kind == "all_reduce"
        return at if in_place else at + 1

    def _stored(self) -> None:
        """Outputs on the host: the copy that is made for the way there is held while it is made and sent."""
        graph = self.flow.graph
        makers = {v: op for op in graph.nodes.values() for v in op.results}
        for slot in stored(graph):
            use, v = (PROGRAM_OP, slot, -1), graph.body.results[slot]
            if self._moves(use) is not None:
                at = self._made(makers[v], v) if v in makers else self.close
                self.private[use] = (at, at + 1)

    def _arguments(self) -> None:
        graph = self.flow.graph
        for op in graph.nodes.values():
            for v in (v for region in op.inner for v in region.args if v in self._read):
                self._copied(v, *self._read[v], None)
            begin = self.begin[op.id]
            for v in carries(op):
                replaces = v in self.shared and v not in self.narrowed
                last = self.shared[v][0] if replaces else self._read.get(v, (begin, begin))[1]
                if begin < last:
                    self.defined[v] = (begin + 1, last + 1)
        replaced, uneven, over = self._gathered_over(), cuts(self.flow), written_over(graph)
        for k, v in enumerate(graph.body.args):
            first, last = self._read.get(v, (0, 0))
            if k in graph.host_inputs:
                if v not in self._read:
                    continue
                self.defined[v] = (first, last + 1)
            else:
                frees = k in over and v not in graph.body.results and v not in replaced
                self.defined[v] = (0, last + 1 if frees else self.close + 1)
            stop = self._copied(v, first, last, None)
            if v in uneven:
                self.cut[v] = (first, stop)

    def _gathered_over(self) -> set[int]:
        """Donated inputs whose next values are gathered, which takes memory of its own; that is held for a moment."""
        graph, lies, out = self.flow.graph, arguments(self.flow), set()
        makers = {v: op for op in graph.nodes.values() for v in op.results}
        number = {v: k for k, v in enumerate(graph.body.args)}
        for slot, v in self.flow.replaced.items():
            made, use = graph.body.results[slot], (PROGRAM_OP, slot, -1)
            if made not in makers or slot in graph.host_outputs or number[v] in graph.host_inputs:
                continue
            own = self._moves(use)
            way = own or self.flow.shared.get(made)
            if way is None or not way.moves:
                continue
            whole = self.size(made, way.end)
            if whole > self.size(made, way.moves[0].before) and whole == self.size(v, lies[v]):
                out.add(v)
                if own is not None:
                    at = self._made(makers[made], made)
                    self.private[use] = (at, at + 1)
        return out

    def _made(self, op: Node, value: int) -> int:
        """When a result of an op is there: stacks of loops from the start, other results of region ops at the end."""
        stack = op.kind == "scan" and op.results.index(value) >= op.attrs["num_carry"]
        return self.begin[op.id] if stack or not op.regions else self.end[op.id]

    def _in_place(self, exists: set[int]) -> None:
        """A pointwise result is written over an array of its size that is read there for the last time, and the result
        of an update over the array that it changes.
        """
        behind: dict[int, list[int]] = {}
        next_of, halves = next_values(self.flow.graph), rolled_again(self.flow.graph, self.rules)
        for op in sorted(self.flow.graph.nodes.values(), key=lambda op: self.begin[op.id]):
            rule = self.rules.get(op.id)
            if op.regions or rule is None:
                continue
            updates = is_update(op) and op.results[0] in exists and op.operands.count(op.operands[0]) == 1
            if updates and op.kind == "dynamic_update_slice":  # what is longer than a block is written into a copy
                part = self.flow.graph.values[op.operands[1]].shape
                runs = zip(*rule.operands[:2], self.flow.defined[op.results[0]].runs, part, strict=True)
                updates = not any(run.strides and run.length < n for array, cut, run, n in runs if array != cut)
            # what is whole along a dimension reads other elements too (cumulative sums, Fourier transforms); sorts swap
            alone = rule.is_pointwise and (
                op.kind == "sort" or rule.uncut.isdisjoint(f for d in rule.results[0] for f in d)
            )
            if not alone and not updates:
                continue
            sources: dict[int, None] = {}
            for v in op.operands if alone else op.operands[:1]:
                if v in self._read and (v not in behind or v in self.shared):
                    sources[v] = None
                if v not in self.shared:
                    sources.update(dict.fromkeys(behind.get(v, ())))
            for r in op.results:
                if r not in self.kept:
                    behind[r] = list(sources)
                elif r in self.defined:
                    self._over(open_places(next_of, [v for v in sources if v not in halves], r), r, self.begin[op.id])

    def _over(self, sources: list[int], result: int, now: int) -> None:
        room = self.size(result, self.flow.defined[result])
        for v in sources if self.calls is None else [v for v in sources if v in self.flow.graph.body.args]:
            table = self.shared if v in self.shared else self.cut if v in self.cut else self.defined
            if self.calls is not None and table is self.cut:
                continue  # there only donated arrays are written over
            form = self.flow.form(v)
            start, stop = table.get(v, (0, 0))
            if stop == now + 1 and start < now and form is not None and self.form_bytes(v, form) == room:
                table[v] = (start, now)
                return
