"""Question: do proofs ever disagree, with one another or with engines that share nothing with ours?

    python experiments/soundness/run.py [--count 20000] [--knapsack 4000] [--contest FOLDER] [--processes 2] [--probes]

Networks with memory rows (random, with equal amounts, planted, cut out of contest files and of the planner's own, and
of equal weights that a limit has cut differently) are solved with several seeds and one or two workers; every "optimal"
and "infeasible" has its certificate judged by the checker, and is compared with HiGHS (a MILP solver, through scipy)
and with what toulbar2 says of the whole network. `--output DIR`: where the rows are kept. `--probes`: nodes are probed
to the end before anything is split, which small networks seldom get to.
Prints one line for each kind of network, then "0 disagreements", or what disagreed. An engine that says less than an
assignment in hand shows is counted as refuted. Goes on where it stopped.
"""

import argparse
import csv
import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np
from networks import (
    KINDS,
    KNAPSACK,
    contest_networks,
    cut_out,
    equal,
    knapsack,
    neighbours_of,
    planner_networks,
    planted,
    random_,
)

from autoshard.deadline import Deadline
from autoshard.solver import IMPOSSIBLE, CostNetwork, evaluate, solve

FIRST_KNAPSACK = 1_000_000
"""Numbers of networks from here on are of equal weights under a limit."""
HIGHS_S = 4.0
"""Seconds that HiGHS may take on one network."""
FIELDS = (
    "number", "kind", "nodes", "strategies", "status", "cost", "proofs", "leaves", "bytes", "solve_s", "check_s",
    "highs", "toulbar2", "refuted", "fault", "probes",
)  # fmt: skip


# complexity: a whole model of another engine in one place, built in the order of its manual
def highs(network: CostNetwork) -> str | int | None:
    """The optimum by a MILP of pair variables, "infeasible", or None where time ended."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    at = np.concatenate([[0], np.cumsum([len(c) for c in network.costs])]).astype(int)
    objective: list[float] = [float(c) for own in network.costs for c in own]
    upper = [0.0 if c >= IMPOSSIBLE else 1.0 for c in objective]
    objective = [0.0 if c >= IMPOSSIBLE else c for c in objective]
    rows, columns, values, low, high = [], [], [], [], []

    def row(terms: list[tuple[int, float]], least: float, most: float) -> None:
        for column, value in terms:
            rows.append(len(low))
            columns.append(column)
            values.append(value)
        low.append(least)
        high.append(most)

    for k in range(network.n_nodes):
        row([(s, 1.0) for s in range(at[k], at[k + 1])], 1.0, 1.0)
    for e in network.edges:
        first = len(objective)
        d, c = e.costs.shape
        entries = e.costs.ravel()
        objective += [0.0 if x >= IMPOSSIBLE else float(x) for x in entries]
        upper += [0.0 if x >= IMPOSSIBLE else 1.0 for x in entries]
        for a in range(d):
            row([*((first + a * c + b, 1.0) for b in range(c)), (int(at[e.first]) + a, -1.0)], 0.0, 0.0)
        for b in range(c):
            row([*((first + a * c + b, 1.0) for a in range(d)), (int(at[e.second]) + b, -1.0)], 0.0, 0.0)
    scale = max(1.0, float(network.usage_limit or 1))
    for t in sorted({u.start for own in network.usages for u in own}):
        terms = [
            (int(at[k]) + s, float(amount) / scale)
            for k, own in enumerate(network.usages)
            for u in own
            if u.start <= t < u.stop
            for s, amount in enumerate(u.amounts.tolist())
            if amount
        ]
        row(terms, -np.inf, float(network.usage_limit or 0) / scale)
    matrix = coo_array((values, (rows, columns)), shape=(len(low), len(objective))).tocsr()
    integrality = np.zeros(len(objective))
    integrality[: at[-1]] = 1
    found = milp(
        np.array(objective), constraints=LinearConstraint(matrix, low, high), integrality=integrality,
        bounds=Bounds(np.zeros(len(objective)), np.array(upper)), options={"time_limit": HIGHS_S, "mip_rel_gap": 0.0},
    )  # fmt: skip
    if found.status == 2:
        return "infeasible"
    if found.status != 0 or found.x is None:
        return None
    chosen = [int(np.argmax(found.x[at[k] : at[k + 1]])) for k in range(network.n_nodes)]
    judged = evaluate(network, chosen)
    return judged.cost if judged.feasible else None  # its tolerance let something pass: no answer


def engine(network: CostNetwork) -> str | int | None:
    """What toulbar2 says of the whole network with all memory rows; None where it does not end."""
    from autoshard.solver.engines import exact, toulbar2
    from autoshard.solver.work import Infeasible, from_network

    if not toulbar2.available():
        return None
    try:
        work = from_network(network)
        slots = list(range(work.slots)) if work.limit is not None else []
        found = exact.solve_work(work, upper=None, backtracks=20_000, seconds=10.0, slots=slots)
    except Infeasible:
        return "infeasible"
    if found is None or not found[2]:
        return None
    choice = found[0]
    return "infeasible" if choice is None else evaluate(network, [choice[i] for i in range(network.n_nodes)]).cost


def probe_all() -> None:
    """Have proofs in this process probe all nodes to the end before they split anything, and count the probes."""
    from autoshard.solver.certify import probing, prove

    prove.PROBED_AFTER, prove.WORTH_BEGINNING, probing.LOOKED = (0.0, 0.0), 1e-4, 1e9
    probe = prove.probe

    def counted(*given: Any) -> probing.Probed:
        found = probe(*given)
        _PROBES.extend(one for step in found.steps for one in step.probes)
        return found

    prove.probe = counted


_PROBES: list[object] = []
"""Of the network that is judged, where they are counted."""


def judge(number: int, kind: str, network: CostNetwork) -> dict[str, object]:
    from autoshard.verify.certificate import CertificateFault, check_certificate

    edges = [(e.first, e.second, e.costs) for e in network.edges]
    usages = [[(u.start, u.stop, u.amounts) for u in own] for own in network.usages]
    said: dict[str, object] = {}
    _PROBES.clear()
    out: dict[str, object] = {
        "number": number, "kind": kind, "nodes": network.n_nodes, "strategies": sum(map(len, network.costs)),
        "proofs": 0, "leaves": 0, "bytes": 0, "solve_s": 0.0, "check_s": 0.0, "fault": "",
    }  # fmt: skip
    for seed, workers in ((0, 1), (number + 1, 1), (number + 2, 2)):
        began = time.monotonic()
        found = solve(network, seed=seed, workers=workers, deadline=Deadline.after(20.0))
        out["solve_s"] = round(float(str(out["solve_s"])) + time.monotonic() - began, 4)
        out["status"], out["cost"] = found.status, found.cost
        if found.cost is not None:
            said[f"an assignment of seed {seed}"] = found.cost
        data = found.certificate()
        if data is None:
            continue
        began = time.monotonic()
        try:
            verdict = check_certificate(data, network.costs, edges, usages, network.usage_limit)
        except CertificateFault as fault:
            out["fault"] = f"seed {seed}, {workers} workers: {fault}"
            continue
        out["check_s"] = round(float(str(out["check_s"])) + time.monotonic() - began, 4)
        out["leaves"], out["bytes"] = verdict.leaves, len(data)
        if found.status in ("optimal", "infeasible"):
            out["proofs"] = int(str(out["proofs"])) + 1
            said[f"proved with seed {seed}, {workers} workers"] = (
                "infeasible" if verdict.bound is None else verdict.bound
            )
    proved = {x for name, x in said.items() if name.startswith("proved")}
    out["highs"], out["toulbar2"] = highs(network), engine(network)
    costs = [x for x in said.values() if isinstance(x, int)]
    known = min(costs, default=None)
    for name in ("highs", "toulbar2"):
        word = out[name]
        if word is None or not proved or word in proved:
            continue
        if known is not None and (word == "infeasible" or int(str(word)) > known):
            out["refuted"] = f"{out.get('refuted', '')} {name}".strip()  # an assignment in hand says otherwise
        else:
            out["fault"] = f"{name} says {word}, proved is {sorted(map(str, proved))}"
    if len(proved) > 1 or (proved and costs and any(isinstance(p, str) or min(costs) < int(str(p)) for p in proved)):
        out["fault"] = f"proofs disagree: {said}"
    out["probes"] = len(_PROBES)
    return out


_WHOLE: dict[str, list[tuple[CostNetwork, list[list[int]]]]] = {}


def network_of(number: int, contest: Path | None) -> tuple[str, CostNetwork] | None:
    rng = np.random.default_rng(number)
    if number >= FIRST_KNAPSACK:
        return KNAPSACK, knapsack(rng)
    kind = KINDS[number % len(KINDS)]
    if kind in ("contest", "planner") and kind not in _WHOLE:
        many = planner_networks() if kind == "planner" else contest_networks(contest) if contest else iter(())
        _WHOLE[kind] = [(network, neighbours_of(network)) for network in many]
    if kind in _WHOLE:
        if not _WHOLE[kind]:
            return None
        whole, near = _WHOLE[kind][number // len(KINDS) % len(_WHOLE[kind])]
        piece = cut_out(rng, whole, near)
        return None if piece is None else (kind, piece)
    return kind, {"random": random_, "planted": planted, "equal": equal}[kind](rng)


def work(job: tuple[int, Path | None]) -> dict[str, object] | None:
    made = network_of(*job)
    return None if made is None else judge(job[0], *made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--knapsack", type=int, default=4_000, help="how many of equal weights under a limit")
    parser.add_argument(
        "--contest", type=Path, help="folder with iopddl-*.json.gz; without it none are cut out of those"
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--probes", action="store_true", help="probe all nodes before anything is split")
    options = parser.parse_args()
    if options.contest and not any(options.contest.glob("*iopddl-*.json*")):
        parser.error(f"--contest {options.contest}: there is no iopddl-*.json.gz in it")
    options.output.mkdir(parents=True, exist_ok=True)
    table = options.output / "networks.csv"
    rows: list[dict[str, object]] = []
    if table.exists():
        with table.open() as stream:
            rows = list(csv.DictReader(stream))
    done = {int(str(r["number"])) for r in rows}
    jobs = [
        (k, options.contest)
        for k in (*range(options.count), *range(FIRST_KNAPSACK, FIRST_KNAPSACK + options.knapsack))
        if k not in done
    ]
    made = multiprocessing.get_context("spawn").Pool(options.processes, probe_all if options.probes else None)
    with table.open("a", newline="") as stream, made as pool:
        writer = csv.DictWriter(stream, FIELDS)
        if not done:
            writer.writeheader()
        for row in pool.imap_unordered(work, jobs, chunksize=20):
            if row is not None:
                writer.writerow(row)
                rows.append(row)
                if len(rows) % 500 == 0:
                    print(len(rows), flush=True)
                    stream.flush()
    report(rows)


def report(rows: list[dict[str, object]]) -> None:
    print("kind       networks  optimal  infeasible  open  proofs  split  HiGHS  toulbar2  refuted  disagree")
    for kind in (*KINDS, KNAPSACK, "all"):
        own = [r for r in rows if kind in (r["kind"], "all")]
        status = [str(r["status"]) for r in own]
        counts = (
            len(own), status.count("optimal"), status.count("infeasible"),
            len(own) - status.count("optimal") - status.count("infeasible"), sum(int(str(r["proofs"])) for r in own),
            sum(int(str(r["leaves"])) > 1 for r in own), sum(r["highs"] not in (None, "") for r in own),
            sum(r["toulbar2"] not in (None, "") for r in own), sum(bool(r.get("refuted")) for r in own),
            sum(bool(r["fault"]) for r in own),
        )  # fmt: skip
        print(f"{kind:<9}" + "".join(f"{x:>9}" for x in counts))
    for r in rows:
        if r["fault"]:
            print(f"network {r['number']} ({r['kind']}): {r['fault']}")
    print(f"{sum(int(str(r.get('probes') or 0)) for r in rows)} probes")
    print(f"{sum(bool(r['fault']) for r in rows)} disagreements")


if __name__ == "__main__":
    main()
