"""``autoshard network``: the solver alone, on problems in the format of the IOPDDL contest."""

import math
import os
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from autoshard.cli.common import json_text, number_or_text, reports_errors
from autoshard.errors import InfeasibleError, InputError, OutOfTimeError

app = typer.Typer(
    name="network", help="The solver alone, on cost networks (IOPDDL contest files).", no_args_is_help=True
)


STARTING_S = 0.4
"""Seconds of the time limit for starting Python and loading modules, where that time cannot be measured."""
MOST_STARTING_S = 5.0
"""Longest start in seconds: an older process has done other work before, so its age tells nothing."""


def _startup_s(began: float) -> float:
    """Seconds from the start of this process to `began`."""
    from autoshard.solver.contest.files import process_age_s

    age_s = process_age_s()
    before_s = math.inf if age_s is None else age_s - (time.monotonic() - began)
    return before_s if 0 <= before_s <= MOST_STARTING_S else STARTING_S


@app.command()
@reports_errors
def solve(
    file: Annotated[Path, typer.Argument(help="A contest problem, .json or .json.gz.")],
    time_limit: Annotated[str | None, typer.Option(help="Wall-clock limit, reading included: 60, 3min.")] = None,
    seed: Annotated[int, typer.Option(help="Where the search begins.", min=0)] = 0,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Cores to search on. Default: 1 (reproducible), all of up to 4 under a time limit.", min=1, max=64
        ),
    ] = None,
    effort: Annotated[
        float | None,
        typer.Option(
            help="Amount of deterministic work, 1.0 is normal. Default: 1.0, until the end under a time limit.",
            min=0.001,
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the solution (a list of indices) here.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="Write the proof of the bound here; `network check` judges it.")
    ] = None,
    progress: Annotated[bool, typer.Option("--progress", help="Say on stderr what is going on.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Solve a network: the best assignment found, a proven lower bound and the gap."""
    began = time.monotonic()
    from autoshard.deadline import Deadline
    from autoshard.files import check_writable, write_bytes
    from autoshard.report.progress import Progress
    from autoshard.solver import solve as solve_network
    from autoshard.solver.contest.files import WRITING_S, peak_memory_mb, read_problem, score, write_solution
    from autoshard.units import seconds

    try:
        limit_s = None if time_limit is None else seconds(number_or_text(time_limit))
    except InputError as error:
        raise InputError(f"--time-limit: {error}") from None
    for name, target in (("--output", output), ("--certificate", certificate)):
        if target is not None and not target.absolute().parent.is_dir():
            raise InputError(f"{name} {target}: there is no folder {target.absolute().parent}")
        if target is not None:
            check_writable(target, [file])
    problem = read_problem(file)
    parse_s = time.monotonic() - began
    if effort is None:
        effort = 1.0 if limit_s is None else math.inf
    if workers is None:
        workers = 1 if limit_s is None else min(4, os.cpu_count() or 1)
    with Progress(quiet=not progress) as say:
        spent_s = time.monotonic() - began + _startup_s(began)
        left_s = None if limit_s is None else max(0.1, limit_s - spent_s - WRITING_S)
        solution = solve_network(
            problem.network, deadline=Deadline.after(left_s), effort=effort, seed=seed, workers=workers, progress=say
        )
    proved = solution.certificate() if certificate is not None else None
    if certificate is not None and proved is not None:
        write_bytes(certificate, proved)
    elif certificate is not None:
        before = "; the file there is from before" if certificate.exists() else ""
        print(f"note: nothing is proved yet, so no certificate is written to {certificate}{before}", file=sys.stderr)
    if solution.assignment is None:
        if solution.status == "infeasible":
            raise InfeasibleError(
                f"{file} has no solution (proved): {solution.reason or 'its usage limit cannot be held'}"
            )
        if solution.stats.get("stopped") == "interrupt":
            raise KeyboardInterrupt
        spent = "time" if solution.stats.get("stopped") == "time" else "effort"
        raise OutOfTimeError(
            f"no solution of {file} was found in the {spent} given, and it is not proved that none exists; its bound "
            f"is {solution.lower_bound}"
        )
    if output is not None:
        write_solution(output, solution.assignment)
    checked = score(problem.network, solution.assignment)
    result = {
        "name": problem.name,
        "status": solution.status,
        "cost": checked.cost,
        "feasible": checked.feasible,
        "lower_bound": solution.lower_bound,
        "gap": solution.gap,
        "peak": checked.peak,
        "usage_limit": problem.network.usage_limit,
        "stopped": solution.stats["stopped"],
        "workers": workers,
        "seconds": round(time.monotonic() - began, 3),
        "parse_seconds": round(parse_s, 3),
        "memory_mb": peak_memory_mb(),
        "certificate_bytes": None if proved is None else len(proved),
        "trace": [[round(parse_s + s, 3), cost] for s, cost in solution.trace],
    }
    if as_json:
        print(json_text({**result, "assignment": list(solution.assignment)}, indent=None))
    else:
        for name, value in result.items():
            if name != "trace":
                print(f"{name}: {value}")


@app.command()
@reports_errors
def score(
    file: Annotated[Path, typer.Argument(help="A contest problem, .json or .json.gz.")],
    solution: Annotated[Path, typer.Argument(help="A solution: a JSON list of strategy indices.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Cost and peak usage of a solution, in exact integers. Exit code 1 where it is not feasible."""
    from autoshard.solver.contest.files import read_problem, read_solution
    from autoshard.solver.contest.files import score as evaluate

    problem = read_problem(file)
    evaluation = evaluate(problem.network, read_solution(solution, problem.network))
    result = {
        "name": problem.name,
        "cost": evaluation.cost,
        "feasible": evaluation.feasible,
        "peak": evaluation.peak,
        "usage_limit": problem.network.usage_limit,
    }
    print(
        json_text(result, indent=None) if as_json else "\n".join(f"{name}: {value}" for name, value in result.items())
    )
    if not evaluation.feasible:
        raise SystemExit(1)


@app.command()
@reports_errors
def check(
    file: Annotated[Path, typer.Argument(help="A contest problem, .json or .json.gz.")],
    solution: Annotated[Path | None, typer.Argument(help="A solution, to be compared with the proved bound.")] = None,
    certificate: Annotated[Path | None, typer.Option(help="The certificate that `network solve` wrote.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Judge a certificate on its network, by code that shares nothing with the solver. Exit code 1: no proof."""
    from autoshard.files import read_bytes
    from autoshard.verify.certificate import CertificateFault, check_certificate
    from autoshard.verify.certificate.contest import judge, read_network

    if certificate is None:
        raise InputError(
            "give the certificate to judge: --certificate FILE (`network solve --certificate FILE` writes it)"
        )
    began = time.monotonic()
    network = read_network(file)
    judged = None if solution is None else judge(network, solution)
    data = read_bytes(certificate, what="certificate")
    result: dict[str, object] = {"file": str(file), "certificate_bytes": len(data)}
    faults = []
    if judged is not None:
        result |= {"cost": judged.cost, "feasible": judged.feasible, "peak": judged.peak}
        if not judged.feasible:
            faults.append("the solution is not feasible")
    try:
        verdict = check_certificate(data, network.costs, network.edges, network.usages, network.limit)
        result |= {
            "proved": "nothing is feasible" if verdict.bound is None else f"nothing costs less than {verdict.bound}",
            "bound": verdict.bound, "steps": verdict.steps, "records": verdict.records, "leaves": verdict.leaves,
        }  # fmt: skip
        result |= {"nogoods": verdict.nogoods} if verdict.nogoods else {}
        if judged is not None and judged.feasible and judged.cost is not None:
            result["optimal"] = judged.cost == verdict.bound
            if verdict.bound is None or judged.cost < verdict.bound:
                faults.append("the solution is cheaper than the certificate says can be: one of them is wrong")
    except CertificateFault as problem:
        faults.append(f"the certificate proves nothing here: {problem}")
    fault = "; ".join(faults) or None
    result |= {"ok": fault is None, "fault": fault, "seconds": round(time.monotonic() - began, 3)}
    if as_json:
        print(json_text(result, indent=None))
    else:
        for name, value in result.items():
            if value is not None:
                print(f"{name}: {value}")
    if fault is not None:
        raise SystemExit(1)
