"""Compiles the hot loops of the solver, each of two processes its part: what one compiled the other finds on disk."""

import kernel_results as kernels
import numpy as np

from autoshard.solver.completion import Completion
from autoshard.solver.dual import passes as duals
from autoshard.solver.dual.consistent import make_consistent
from autoshard.solver.dual.flat import flatten
from autoshard.solver.local.lookahead import decode_consistently
from autoshard.solver.work import from_network


def compile_part(part: int) -> None:
    """Part 0 are bounds and prices, part 1 are searches; there are no others. The parts take about as long."""
    network = dict(kernels.networks())["layered 0"]
    work = from_network(network)
    flat = flatten(work)
    chosen = np.zeros(flat.n, dtype=np.int64)
    if part == 0:
        dual, _ = kernels.bounds(flat, np.zeros(flat.slots))
        kernels.priced(dual, chosen)
    elif part == 1:
        make_consistent(flat, np.ones(len(flat.unary), dtype=bool))
        kernels.searched(flat, np.zeros(flat.slots), chosen)
        kernels.heated(network)
        decode_consistently(duals.start(flat))
        Completion(work, flat, network.n_nodes).complete(chosen)
