"""Do the bounds of the search of large networks hold?

    python experiments/soundness/large.py [--output rows.csv]

Networks whose tables would take gigabytes are searched in another way, and leave no certificate. Here networks of the
planner that are small enough for both ways are searched in both: as they are, down to an optimum whose certificate the
checker accepts, and with every table kept as rows and columns of smaller ones: until what is left is small, and also
by messages alone. No bound of the second way may lie above the optimum of the first, and no cost below it.
Prints a line a network, and at the end how many bounds were compared and how many were wrong.
"""

import argparse
import csv
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autoshard.costmodels import load_profile, place_mesh
from autoshard.deadline import Deadline
from autoshard.formulation import encode
from autoshard.frontends.jax.function import trace
from autoshard.models import build
from autoshard.planning.model import build_model
from autoshard.planning.problem import Problem
from autoshard.sharding.mesh import Mesh
from autoshard.solver import CostNetwork, Solution, evaluate, large, solve
from autoshard.verify.certificate import CertificateFault, check_certificate

PROGRAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "mlp": ("mlp", {}),
    "transformer": ("transformer", {}),
    "transformer, a scan": ("transformer", {"scan": True, "remat": True}),
    "transformer, four layers": ("transformer", {"layers": 4}),
    "moe": ("moe", {}),
}
MESHES = ({"x": 4, "y": 2}, {"x": 16, "y": 16}, {"x": 2, "y": 2, "z": 2}, {"x": 8, "y": 4, "z": 2})
MACHINES = ("tpu_v5p", "h100")
LIMIT_S = 60.0
FIELDS = (
    "program", "mesh", "machine", "nodes", "states", "optimum", "rest", "cost", "bound", "gap", "seconds", "fault",
)  # fmt: skip


def network_of(name: str, options: dict[str, Any], sizes: dict[str, int], machine: str, factored: bool) -> CostNetwork:
    """The network of a library program without a memory limit, with whole or with factored tables."""
    whole, encode.FACTORED_ENTRIES = encode.FACTORED_ENTRIES, 0 if factored else 10**12
    try:
        model = build(name, **options)
        program = trace(model.step, *model.specs).program
        placed = place_mesh(load_profile(machine), sizes)
        return build_model(Problem.make(program, Mesh.from_dict(sizes), placed)).repeats.network
    finally:
        encode.FACTORED_ENTRIES = whole


def certified(network: CostNetwork, found: Solution) -> bool:
    """Whether the checker accepts the certificate of an optimum."""
    data = found.certificate()
    if data is None:
        return False
    edges = [(e.first, e.second, e.costs) for e in network.edges]
    usages = [[(u.start, u.stop, u.amounts) for u in own] for own in network.usages]
    try:
        verdict = check_certificate(data, network.costs, edges, usages, network.usage_limit)
    except CertificateFault:
        return False
    return verdict.bound == found.cost


def rows_of(name: str, sizes: dict[str, int], machine: str) -> Iterator[dict[str, object]]:
    """A row for each way in which the large search may end; none where the optimum is not proved in time."""
    kind, options = PROGRAMS[name]
    whole = network_of(kind, options, sizes, machine, factored=False)
    best = solve(whole, deadline=Deadline.after(LIMIT_S))
    if best.status != "optimal" or best.cost is None or not certified(whole, best):
        return
    network = network_of(kind, options, sizes, machine, factored=True)
    for rest, most in (("small", large.SMALL_ENTRIES), ("messages alone", 0)):
        large.SMALL_ENTRIES, kept = most, large.SMALL_ENTRIES
        began = time.monotonic()
        try:
            found = solve(network, deadline=Deadline.after(LIMIT_S))
        finally:
            large.SMALL_ENTRIES = kept
        faults = []
        if found.lower_bound > best.cost:
            faults.append("the bound is above the optimum")
        if found.cost is None or found.assignment is None:
            faults.append("no assignment")
        elif found.cost < best.cost or evaluate(whole, found.assignment).cost != found.cost:
            faults.append("the cost is not that of the assignment")
        yield {
            "program": name, "mesh": "x".join(map(str, sizes.values())), "machine": machine, "nodes": whole.n_nodes,
            "states": sum(map(len, whole.costs)), "optimum": best.cost, "rest": rest, "cost": found.cost,
            "bound": found.lower_bound, "gap": f"{1 - found.lower_bound / found.cost:.1e}" if found.cost else "",
            "seconds": round(time.monotonic() - began, 1), "fault": "; ".join(faults),
        }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, help="where the rows are kept")
    output = parser.parse_args().output
    rows = []
    for name in PROGRAMS:
        for sizes in MESHES:
            for machine in MACHINES:
                for row in rows_of(name, sizes, machine):
                    print(*row.values(), sep="  ", flush=True)
                    rows.append(row)
    if output is not None:
        with output.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(rows)
    wrong = sum(bool(row["fault"]) for row in rows)
    print(f"{len(rows)} bounds compared, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
