"""Does a certificate prove its bound on a network? Step by step, to the last leaf."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoshard.verify.certificate.nogoods import Nogoods, read_nogoods
from autoshard.verify.certificate.outline import Edges, Factors, OutlinedNetwork, Usages, read_messages
from autoshard.verify.certificate.residual import Residual
from autoshard.verify.certificate.stream import CertificateFault, Stream
from autoshard.verify.certificate.weights import Layout, read_record

END, TIMES, DROP, DOMINATED, ELIMINATE, FOLLOW, SEPARATE, RECORD, SPLIT, TREE, PART, FORGET, SHAVE, PROBES = range(14)
OUTLINED, LEFT, NOGOODS = 14, 15, 16


@dataclass(frozen=True)
class Verdict:
    """What a certificate proves.

    bound: no feasible assignment costs less (None: there is none; that is proved, too, where the bound that is claimed
    is more than every table at its largest allowed entry). steps: how many reductions were replayed. records:
    how many sets of messages were weighed. leaves: how many parts the branches end in. nogoods: how many were judged.
    """

    bound: int | None
    steps: int
    records: int
    leaves: int
    nogoods: int = 0


def check_certificate(
    data: bytes,
    costs: Sequence[np.ndarray],
    edges: Edges,
    usages: Usages,
    limit: int | None,
) -> Verdict:
    """Judge a certificate on the network of these costs, edges, usages (start, stop, amounts) and this limit.

    edges: (node, node, table); a table is an array or, for certificates that begin with messages over rows and columns
    of smaller ones, `Factors`. Raises `CertificateFault` where it does not prove the bound that it claims.
    """
    stream = Stream(data)
    whole = [(i, j, table) for i, j, table in edges if not isinstance(table, Factors)]
    if len(whole) == len(edges) and stream.peek() not in (OUTLINED, LEFT):
        return _Judge(stream, Residual(costs, whole, usages, limit)).run()
    return _judged_in_outline(stream, costs, edges, usages, limit)


def _judged_in_outline(
    stream: Stream, costs: Sequence[np.ndarray], edges: Edges, usages: Usages, limit: int | None
) -> Verdict:
    """Messages over the smaller tables first; then the rest of the certificate, on the network of what is left."""
    network, claimed, records = OutlinedNetwork(costs, edges, usages, limit), stream.head["bound"], 0
    closed = not network.consistent()
    while not closed and stream.peek() == OUTLINED:
        stream.one()
        closed = network.weigh(read_messages(stream), claimed) or not network.consistent()
        records += 1
    if closed:
        return Verdict(claimed, 0, records, 1)
    if stream.peek() != LEFT:
        raise CertificateFault("its messages do not prove the bound, and it does not say what is left")
    stream.one()
    residual = network.residual(stream, costs, edges)
    inner = _Judge(stream, residual).run()
    return replace(inner, bound=claimed, records=records + inner.records)


class _Judge:
    def __init__(self, stream: Stream, residual: Residual) -> None:
        self.stream, self.residual = stream, residual
        self.claimed: int | None = stream.head["bound"]
        self.steps = self.records = self.leaves = self.nogoods = 0
        self.layout: Layout | None = None
        self.closed = residual.empty

    def run(self) -> Verdict:
        stream = self.stream
        while not self.closed:  # when it is closed, the rest of the stream adds nothing
            code = stream.one()
            if code == PART:
                self.closed = self._part()
            elif code == TREE:
                self._tree()
                break
            elif code == END:
                self._leaf(self._nothing_left())
                break
            else:
                self._step(code)
                self.closed = self.residual.empty
        none = self.claimed is not None and self.claimed > self.residual.most
        return Verdict(None if none else self.claimed, self.steps, self.records, max(1, self.leaves), self.nogoods)

    def _step(self, code: int) -> None:
        stream, residual = self.stream, self.residual
        self.steps += 1
        self.layout = None
        n = len(residual.unary)
        if code == TIMES:
            count = stream.count(2**31, "the number of time slots")
            residual.only_times(np.cumsum(stream.some(count)))
            return
        if code == FORGET:
            if self.claimed is not None:
                raise CertificateFault("costs are forgotten, but what is claimed is a bound on them")
            residual.forget_costs()
            return
        node = stream.count(n - 1, "a node")
        if code == ELIMINATE:
            residual.eliminate(node)
        elif code == FOLLOW:
            residual.follow(node, stream.count(n - 1, "a node"))
        elif code == SEPARATE:
            residual.separate(node, stream.count(n - 1, "a node"))
        elif code == DROP:
            wanted: dict[int, np.ndarray] = {}
            while True:
                states = stream.some(stream.count(2**31, "the number of states"))
                residual.known(node)
                places = residual.places(node, states[np.isin(states, residual.domain[node])])
                if node in wanted:
                    places = np.union1d(places, wanted[node])
                wanted[node] = places
                if not (stream.at < len(stream.numbers) and int(stream.numbers[stream.at]) == DROP):
                    break
                # drops that follow each other may depend on each other: they are judged together
                stream.one()
                node = stream.count(n - 1, "a node")
                self.steps += 1
            residual.drop(wanted)
        elif code == DOMINATED:
            count = stream.count(2**31, "the number of states")
            residual.dominated(node, stream.some(count), stream.some(count))
        else:
            raise CertificateFault(f"an unknown step: {code}")

    # -- records and branches ------------------------------------------------------------------------

    def _laid_out(self) -> Layout:
        if self.layout is None:
            self.layout = Layout(self.residual)
        return self.layout

    def _weighed(self, layout: Layout, alive: np.ndarray) -> tuple[bool, np.ndarray, np.ndarray | None]:
        """Read a record: (whether it closes the part, what is left of it, pairs that go)."""
        record = read_record(self.stream, 0 if self.claimed is None else self.claimed)
        self.records += 1
        if record.costs:
            if self.claimed is None:
                raise CertificateFault("a record counts costs, but what is claimed is that there is no assignment")
            if record.threshold + self.residual.constant < self.claimed:
                raise CertificateFault("a record drops what costs less than the claimed bound")
        elif record.threshold != 1:
            raise CertificateFault(f"a record without costs has the threshold {record.threshold}, not 1")
        bound, left, dead = layout.weigh(alive, record)
        aim = 1 if not record.costs else (self.claimed or 0) - self.residual.constant
        return bound >= aim, left, dead

    def _part(self) -> bool:
        """Read the records of one group, each on what the ones before left; then what they rule out is dropped.

        Returns True where nothing below the bound is left.
        """
        layout = self._laid_out()
        alive = np.ones(len(layout.cost), dtype=bool)
        if not layout.consistent(alive):
            return True
        dead: np.ndarray | None = None
        while (code := self.stream.one()) in (RECORD, SHAVE, PROBES, NOGOODS):
            if code == NOGOODS:
                self._refute(layout, alive)
                return True
            if code == SHAVE:
                if not self._shaved(layout, alive):
                    return True
                continue
            if code == PROBES:
                if not self._probed(layout, alive):
                    return True
                continue
            closes, alive, gone = self._weighed(layout, alive)
            if closes or not layout.consistent(alive):
                return True
            if gone is not None:
                dead = gone if dead is None else dead | gone
        if code != END:
            raise CertificateFault(f"an unknown step among records: {code}")
        self.cut(layout, alive, dead)
        return self.residual.empty

    def _refute(self, layout: Layout, alive: np.ndarray) -> None:
        """Read nogoods, each of which follows from the ones before it; in the end they leave nothing."""
        judged = Nogoods(layout, alive)
        for nogood in read_nogoods(self.stream, layout):
            self.nogoods += 1
            if judged.take(nogood):
                return
        if not judged.broken:
            raise CertificateFault("its nogoods leave something that fits")

    def _shaved(self, layout: Layout, alive: np.ndarray) -> bool:
        """Take out states that leave nothing when their node is held to them; False where nothing is left then."""
        held, rest = self._sides(layout, alive)
        self.steps += 1
        if layout.consistent(held):
            raise CertificateFault("states are shaved that something goes with")
        alive &= rest
        return layout.consistent(alive)

    def _probed(self, layout: Layout, alive: np.ndarray) -> bool:
        """Take out states of several nodes, each beside all that is left of the others: held to its own, a node leaves
        nothing below the bound. False where nothing is left then.
        """
        out = np.zeros(len(alive), dtype=bool)
        for _ in range(self.stream.count(len(layout.cost), "the number of probes")):
            held, rest = self._sides(layout, alive)
            self.steps += 1
            out |= alive & ~rest
            closed = not layout.consistent(held)
            while (code := self.stream.one()) == RECORD:
                if closed:
                    read_record(self.stream, 0)
                else:
                    closed, _, _ = self._weighed(layout, held)
            if code != END:
                raise CertificateFault(f"an unknown step in a probe: {code}")
            if not closed:
                raise CertificateFault("states are probed that something below the bound goes with")
        alive &= ~out
        return layout.consistent(alive)

    def cut(self, layout: Layout, left: np.ndarray, dead: np.ndarray | None) -> None:
        """Take states and pairs out of the residual."""
        residual = self.residual
        if dead is not None:
            for e in np.unique(layout.edge[dead]).tolist():
                i, j = layout.nodes[layout.first[e]], layout.nodes[layout.second[e]]
                table = residual.tables[i][j]
                gone = dead[layout.pair_at[e] : layout.pair_at[e + 1]].reshape(table.shape)
                residual._set(i, j, np.where(gone, 2**61, table))
        for k, node in enumerate(layout.nodes):
            mask = left[layout.at[k] : layout.at[k + 1]]
            if not mask.all():
                residual.keep(node, mask)
        self.layout = None

    def _leaf(self, closed: bool) -> None:
        self.leaves += 1
        if not closed:
            raise CertificateFault(
                f"a branch ends without a proof that nothing in it costs less than {self.claimed}"
                if self.claimed is not None
                else "a branch ends without a proof that nothing in it can be held"
            )

    def _nothing_left(self) -> bool:
        """Whether no assignment is left, or everything was folded away at a cost of at least the bound."""
        if self.residual.nodes():
            layout = self._laid_out()
            return not layout.consistent(np.ones(len(layout.cost), dtype=bool))
        return self.claimed is not None and self.residual.constant >= self.claimed

    def _tree(self) -> None:
        """Read the branches: halves of what is left, halves of these, and so on; no recursion, trees may be deep."""
        layout = self._laid_out()
        # what is left of every part that still has to be read; None: the part is closed already
        waiting: list[np.ndarray | None] = [np.ones(len(layout.cost), dtype=bool)]
        while waiting:
            alive = waiting.pop()
            if alive is not None and not layout.consistent(alive):
                alive = None
            while True:
                code = self.stream.one()
                if code == RECORD:
                    if alive is None:
                        read_record(self.stream, 0)
                        continue
                    closes, left, _ = self._weighed(layout, alive)
                    alive = None if closes or not layout.consistent(left) else left
                elif code == SPLIT:
                    # both halves follow in the stream, then END for this part: it is proved when both are
                    waiting += [_ENDS, *reversed(self._halves(layout, alive))]
                    break
                elif code == END:
                    self._leaf(alive is None)
                    break
                else:
                    raise CertificateFault(f"an unknown step in a branch: {code}")
            while waiting and waiting[-1] is _ENDS:
                waiting.pop()
                if self.stream.one() != END:
                    raise CertificateFault("a branch goes on after its two halves")

    def _halves(self, layout: Layout, alive: np.ndarray | None) -> list[np.ndarray | None]:
        """Both parts of a split; every state that is left is in one of them."""
        if alive is None:
            self._sides(layout, np.zeros(len(layout.cost), dtype=bool))
            return [None, None]
        return list(self._sides(layout, alive))

    def _sides(self, layout: Layout, alive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Read a node and some of its states: what is left where it has one of them, and where it has none."""
        node = self.stream.count(len(layout.nodes) - 1, "a node")
        low, high = int(layout.at[node]), int(layout.at[node + 1])
        chosen = self.stream.some(self.stream.count(high - low, "the number of states"))
        if len(chosen) and not 0 <= int(chosen.min()) <= int(chosen.max()) < high - low:
            raise CertificateFault(f"a split names states that node {layout.nodes[node]} does not have")
        inside = np.zeros(len(alive), dtype=bool)
        inside[low + chosen] = True
        outside = ~inside
        inside[:low] = inside[high:] = True
        return alive & inside, alive & outside


_ENDS = np.zeros(0, dtype=bool)
"""Marks, in the list of parts, the end of a part whose halves come before it."""
