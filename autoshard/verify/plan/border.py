"""Arguments as JAX has them, which cuts every dimension evenly, and how devices come from there to uneven blocks."""

from autoshard.verify.plan.flow import Flow, Move, Way
from autoshard.verify.plan.layout import Atoms, Holding, Run
from autoshard.verify.plan.program import Graph


def outside(held: Holding, mesh: Atoms) -> Holding:
    """What devices hold of an argument that a plan wants held so: each dimension is cut by as many of its first atoms
    as divide it.
    """
    return Holding(tuple(_evenly(run, mesh) for run in held.runs), held.partial)


def _evenly(run: Run, mesh: Atoms) -> Run:
    for count in range(len(run.strides), 0, -1):
        some = Run(run.size, run.strides[:count])
        if some.is_even(mesh):
            return some
    return Run(run.size)


def read_on_device(graph: Graph) -> set[int]:
    """Values of the outermost level that ops, or outputs on the device, read."""
    read = {v for op in graph.body.ops for v in op.operands}
    return read | {v for slot, v in enumerate(graph.body.results) if slot not in graph.host_outputs}


def arguments(flow: Flow) -> dict[int, Holding]:
    """What devices hold of every argument and constant of the program, before anything is cut."""
    return {v: outside(flow.defined[v], flow.mesh) for v in flow.graph.body.args if v in flow.defined}


def cuts(flow: Flow) -> dict[int, Way]:
    """The ways from arguments that something on the device reads to their uneven blocks: a cut for each dimension."""
    read, ways = read_on_device(flow.graph), {}
    for v, held in arguments(flow).items():
        moves, end = [], flow.defined[v]
        for d, (run, wanted) in enumerate(zip(held.runs, end.runs, strict=True)):
            if run != wanted:
                after = Holding((*held.runs[:d], wanted, *held.runs[d + 1 :]), held.partial)
                moves.append(Move("slice", wanted.atoms[len(run.strides) :], held, after))
                held = after
        if moves and v in read:
            ways[v] = Way(v, tuple(moves), end)
    return ways
