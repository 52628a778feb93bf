"""The ladder of strategies, and the worklist that carries each rung to its fixed point.

From the outside in: user priorities (`_user_priorities`), op priorities (`directions.SCHEDULE`), one strategy along
factors, and a worklist over nodes. The worklist is a stack that starts with the first op on top; every node that a
change affects goes on top. Its order decides conflicts between ops, so it follows the greedy rewriter of Shardy.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from autoshard.errors import InputError
from autoshard.garbage import uncollected
from autoshard.propagation.directions import SCHEDULE, Direction
from autoshard.propagation.graph import NO_HOLDER, Graph, Node
from autoshard.propagation.moves import Move, Moves, MovesOnRung
from autoshard.propagation.spec import Dim, Ref, Spec, open_spec
from autoshard.sharding.mesh import Mesh


class Strategy(StrEnum):
    """How many rungs of the ladder a propagation climbs."""

    BASIC = "basic"
    AGGRESSIVE = "aggressive"
    OP_PRIORITY = "op-priority"
    USER_PRIORITY = "user-priority"

    @staticmethod
    def from_text(text: str) -> "Strategy":
        """The strategy of this name; `InputError` lists the names where there is none."""
        try:
            return Strategy(text)
        except ValueError:
            known = ", ".join(s.value for s in Strategy)
            raise InputError(f"unknown propagation strategy {text!r}; the strategies are: {known}") from None


@dataclass(frozen=True, slots=True)
class Change:
    """One update, for provenance: `holder` went from spec `old` to `new` at `node`, which saw `seen`.

    seen: (holder, spec number) of every tensor of the node before the step. node -1: an output; -2: a sharding group.
    """

    holder: int
    old: int
    new: int
    node: int
    seen: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class Run:
    """State of one propagation over a graph.

    changes: every update, for provenance; None unless traced.
    erased: nodes of dead ops that were removed, in the order of removal. gone: those and the nodes inside of them.
    mesh_class: for each mesh the first one that is the same but for its name.
    events: what provenance derives from the changes; None until it is needed.
    active: nodes that can pass anything. has_erasable: whether some nodes may turn out dead.
    moves: all that a step depends on besides the specs. known: updates by (move, aggressive, specs).
    """

    graph: Graph
    moves: Moves
    conservative: bool = False
    changes: list[Change] | None = None
    erased: dict[int, None] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    mesh_class: tuple[int, ...] = ()
    events: dict[int, list[tuple[Ref, int, int]]] | None = None
    active: list[int] = field(default_factory=list)
    has_erasable: bool = False
    known: dict[tuple, tuple[tuple[int, int], ...]] = field(default_factory=dict)


def run_propagation(graph: Graph, strategy: Strategy, *, conservative: bool = False, trace: bool = False) -> Run:
    """Propagate to the end; the graph's holders then have their final specs."""
    run = Run(graph, Moves(graph.steps), conservative, [] if trace else None)
    run.mesh_class = _mesh_classes(graph)
    for index, node in enumerate(graph.nodes):
        node.tensors = node.operands + node.results
        run.moves.set_kind(node)
        if node.erasable or (node.rule >= 0 and len(node.tensors) > 1):
            run.active.append(index)
            run.has_erasable |= node.erasable
    with uncollected():
        _synchronise_groups(run)
        match strategy:
            case Strategy.BASIC:
                _fixed_point(run, None, aggressive=False)
            case Strategy.AGGRESSIVE:
                _fixed_point(run, None, aggressive=True)
            case Strategy.OP_PRIORITY:
                _op_priorities(run)
            case Strategy.USER_PRIORITY:
                _user_priorities(run)
    return run


def _mesh_classes(graph: Graph) -> tuple[int, ...]:
    """For each mesh the first one that is the same but for its name."""
    keys = [(m.axis_names, m.axis_sizes, m.device_ids) for m in graph.meshes]
    return tuple(keys.index(k) for k in keys)


def _op_priorities(run: Run) -> None:
    for level in range(len(SCHEDULE)):
        _fixed_point(run, level, aggressive=True)


def _user_priorities(run: Run) -> None:
    """Priority 0 first; dimensions of later priorities stay empty and closed until their turn (S0.47, S0.48)."""
    graph = run.graph
    waiting: dict[int, list[tuple[int, Spec]]] = {}
    first: dict[int, int] = {}
    later: dict[int, list[int]] = {}
    for holder in graph.prioritised:
        number = graph.holders[holder]
        if number < 0:
            continue
        original = graph.steps.specs[number]
        if number not in first:
            first[number] = graph.steps.number(_first_round(original))
            later[number] = sorted({d.priority for d in original.dims if d.priority})
        for priority in later[number]:
            waiting.setdefault(priority, []).append((holder, original))
        graph.holders[holder] = first[number]
    _op_priorities(run)
    for priority in sorted(waiting):
        for holder, original in waiting[priority]:
            current = graph.spec(holder)
            assert current is not None
            graph.holders[holder] = graph.steps.number(_admit(current, original, priority))
        _op_priorities(run)


def _first_round(original: Spec) -> Spec:
    """Later dimensions emptied and closed, their axes set aside as replicated so that nothing else takes them."""
    dims: list[Dim] = []
    aside: list[Ref] = list(original.replicated)
    for dim in original.dims:
        if dim.priority:
            aside += dim.axes
            dims.append(Dim((), False))
        else:
            dims.append(dim._replace(priority=None))
    return original._replace(dims=tuple(dims), replicated=tuple(sorted(aside)))


def _admit(current: Spec, original: Spec, priority: int) -> Spec:
    """`current` with the dimensions of this priority as the user gave them."""
    dims = list(current.dims)
    back: set[Ref] = set()
    for index, dim in enumerate(original.dims):
        if (dim.priority or 0) == priority:
            dims[index] = dim._replace(priority=None)
            back.update(dim.axes)
    return current._replace(dims=tuple(dims), replicated=tuple(a for a in current.replicated if a not in back))


def _synchronise_groups(run: Run) -> None:
    """Members of a group start from the sharding of the first member that has one.

    Where members have different ones, the group starts from what each has, as it is (`graph` builders put
    open constraints on the members first, as Shardy does, so that this does not arise).
    """
    graph = run.graph
    for members in dict.fromkeys(graph.groups.values()):
        if len(members) == 1:
            continue
        members = [graph.shared.get(m, m) for m in members]
        numbers = [graph.holders[m] for m in members]
        stated = [n for n in numbers if n >= 0 and not graph.steps.specs[n].is_open_and_empty]
        if stated and all(n == stated[0] for n in stated):
            for member, old in zip(members, numbers, strict=True):
                if old != stated[0]:
                    source = members[numbers.index(stated[0])]
                    _record(run, member, old, stated[0], -2, ((source, stated[0]),))
                    _assign(graph, member, stated[0])


def _record(run: Run, holder: int, old: int, new: int, node: int, seen: tuple[tuple[int, int], ...]) -> None:
    if run.changes is not None:
        run.changes.append(Change(holder, old, new, node, seen))


def _fixed_point(run: Run, level: int | None, *, aggressive: bool) -> None:
    """From outputs to values, over all nodes until nothing changes, and from values to outputs."""
    _outputs(run, aggressive)
    graph = run.graph
    nodes, gone, known = graph.nodes, run.gone, run.known
    moves = MovesOnRung(run.moves, level)
    holders = [*graph.holders, -1]  # NO_HOLDER is the index -1 and finds no spec there
    graph.holders = holders
    stack = [i for i in reversed(run.active) if i not in gone]
    if not run.has_erasable:  # otherwise removing dead ops can change what a node may pass
        stack = [i for i in stack if moves[nodes[i].kind] >= 0]
    waiting = bytearray(b"\1") * len(nodes)  # 1 for all: nodes that pass nothing never get on the worklist
    while stack:
        index = stack.pop()
        waiting[index] = 0
        if index in gone:
            continue
        node = nodes[index]
        if node.erasable and not any(graph.uses[v] for v in node.defines):
            for again in _erase(run, index, waiting):
                if not waiting[again]:
                    waiting[again] = 1
                    stack.append(again)
            continue
        move = moves[node.kind]
        if move < 0:
            continue
        numbers = tuple([holders[h] for h in node.tensors])
        if node.before is not None and numbers[-1] >= 0:
            outer = node.before(graph.steps.specs[numbers[-1]])
            numbers = (*numbers[:-1], graph.steps.number(outer))
        key = (move, aggressive, numbers)
        updates = known.get(key)
        if updates is None:
            updates = known[key] = _updates(run, run.moves.moves[move], numbers, aggressive)
        if updates:
            _apply(run, index, node, numbers, updates, stack, waiting)
    holders.pop()
    _outputs(run, aggressive)


def _erase(run: Run, index: int, waiting: bytearray) -> list[int]:
    """Remove a dead op with all that is inside it; returns the nodes to look at again: those defining its operands."""
    graph = run.graph
    run.erased[index] = None
    again: list[int] = []
    for gone in range(index + graph.nodes[index].inner, index - 1, -1):
        if gone in run.gone:
            continue
        run.gone.add(gone)
        waiting[gone] = 1  # for good: a removed node is never put on the worklist again
        for value in graph.nodes[gone].values:
            others = dict.fromkeys(u for u in graph.users[value] if u != gone)
            graph.uses[value] -= 1
            if len(others) <= 1 and graph.defined_by[value] >= 0:
                again.append(graph.defined_by[value])
        for value in dict.fromkeys(graph.nodes[gone].values):
            graph.users[value] = [u for u in graph.users[value] if u != gone]
            for user in dict.fromkeys(graph.users[value]):
                other = graph.nodes[user]
                other.shared = any(graph.uses[v] != 1 and not graph.scalar[v] for v in other.values)
                run.moves.set_kind(other)
    return [a for a in again if a not in run.gone]


def _updates(run: Run, move: Move, numbers: tuple[int, ...], aggressive: bool) -> tuple[tuple[int, int], ...]:
    """(position of the tensor, number of its new spec) for what a step changes."""
    mesh = _common_mesh(run, numbers)
    if mesh < 0:
        return ()
    return run.graph.steps.take(
        move.rule,
        numbers,
        move.directions,
        mesh,
        aggressive=aggressive,
        elementwise=move.elementwise,
        conservative=run.conservative and move.heeds_conservative,
    )


def _apply(
    run: Run,
    index: int,
    node: Node,
    numbers: tuple[int, ...],
    updates: tuple[tuple[int, int], ...],
    stack: list[int],
    waiting: bytearray,
) -> None:
    """Put new specs in place, also on members of sharding groups, and put the affected nodes on the worklist."""
    graph = run.graph
    steps, holders, tensors = graph.steps, graph.holders, node.tensors
    for tensor, new in updates:
        seen = new
        if node.after is not None and tensor == len(tensors) - 1:
            new = steps.number(node.after(steps.specs[new]))
        holder = tensors[tensor]
        if holder == NO_HOLDER:
            continue
        _set(run, holder, new, index, tensors, numbers)
        _push(graph.notified(holder), index, stack, waiting)
        for member in graph.groups.get(holder, ()):
            if member != holder:
                # As in Shardy, members get the spec that the edge of a manual computation saw, without manual axes.
                place = graph.shared.get(member, member)
                _record(run, place, holders[place], seen, -2, ((holder, seen),))
                _assign(graph, place, seen)
                _push(graph.notified(member), index, stack, waiting)


def _set(run: Run, holder: int, new: int, node: int, tensors: Sequence[int], numbers: Sequence[int]) -> None:
    if run.changes is not None:
        _record(run, holder, run.graph.holders[holder], new, node, tuple(zip(tensors, numbers, strict=True)))
    _assign(run.graph, holder, new)


def _assign(graph: Graph, holder: int, new: int) -> None:
    """Give a holder its spec. Where results of the same op have none, they become open on the same mesh."""
    if graph.siblings and graph.holders[holder] < 0:
        mesh = graph.steps.specs[new].mesh
        for other in graph.siblings.get(holder, ()):
            if graph.holders[other] < 0:
                graph.holders[other] = graph.steps.number(open_spec(mesh, graph.ranks[other]))
    graph.holders[holder] = new


def _push(nodes: Sequence[int], visiting: int, stack: list[int], waiting: bytearray) -> None:
    for node in nodes:
        if node != visiting and not waiting[node]:
            waiting[node] = 1
            stack.append(node)


def _common_mesh(run: Run, numbers: Sequence[int]) -> int:
    """The mesh that all tensors with a sharding share; -1 where there is none or there are several (S0.64)."""
    specs = run.graph.steps.specs
    meshes = run.graph.meshes
    common = -1
    for number in numbers:
        if number < 0:
            continue
        mesh = specs[number].mesh
        if common < 0 or _is_empty(meshes[common]):
            common = mesh
        elif mesh != common and not _is_empty(meshes[mesh]) and run.mesh_class[mesh] != run.mesh_class[common]:
            return -1
    return -1 if common >= 0 and is_maximal(meshes[common]) else common


def _is_empty(mesh: Mesh) -> bool:
    return not mesh.axis_names and mesh.device_ids is None


def is_maximal(mesh: Mesh) -> bool:
    """Whether a mesh has a device and no axes: "all of it on one device", which is never propagated."""
    return not mesh.axis_names and mesh.device_ids is not None


def _outputs(run: Run, aggressive: bool) -> None:
    """Between each returned value and the sharding of its output, as an identity; nothing is put on the worklist."""
    graph = run.graph
    steps = graph.steps
    for value, output, rule_number in graph.outputs:
        tensors = (value, output)
        numbers = tuple(graph.holders[h] if h >= 0 else -1 for h in tensors)
        mesh = _common_mesh(run, numbers)
        if mesh < 0:
            continue
        both = (Direction.BOTH,) * len(steps.rules[rule_number].sizes)
        updates = steps.take(
            rule_number, numbers, both, mesh, aggressive=aggressive, elementwise=False, conservative=False
        )
        for tensor, new in updates:
            holder = tensors[tensor]
            if holder == NO_HOLDER:
                continue
            _set(run, holder, new, -1, tensors, numbers)
            if tensor == 0:
                for member in graph.groups.get(holder, ()):
                    if member != holder:
                        place = graph.shared.get(member, member)
                        _record(run, place, graph.holders[place], new, -2, ((holder, new),))
                        _assign(graph, place, new)
