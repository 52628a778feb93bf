"""A run as a person reads it: where it ran, its losses, what each process held, and its outputs."""

from collections.abc import Mapping
from typing import Any

from autoshard.report.amounts import bytes_text

MOST_OUTPUTS = 12
"""Outputs that are shown; all of them are in the JSON."""


def print_result(run: Mapping[str, Any]) -> None:
    """Print a run (`RunResult.to_dict()`) on standard output."""
    print("\n".join(result_lines(run)))


def result_lines(run: Mapping[str, Any]) -> list[str]:
    """The lines that `print_result` prints."""
    mesh = ", ".join(f"{name}={size}" for name, size in run["mesh"].items())
    count = run["processes"]
    where = "one process" if count == 1 else f"{count} processes, each"
    lines = [f"{run['program']} on mesh ({mesh}): {where} with {run['devices_per_process']} devices"]
    held = [bytes_text(b) for b in run["held_bytes"]]
    if count > 1:
        lines.append(f"inputs of {bytes_text(run['whole_bytes'])}; held by process: {', '.join(held)}")
    else:
        lines.append(f"inputs of {bytes_text(run['whole_bytes'])}; held by all devices: {held[0]}")
    seconds = run["seconds"]
    times = sorted(seconds["steps"])
    lines.append(f"compiled in {seconds['compile']:.1f} s; median step {times[len(times) // 2] * 1e3:.1f} ms")
    if run["losses"] is not None:
        lines += [f"  step {k + 1:>3}  loss {loss:.6f}" for k, loss in enumerate(run["losses"])]
        return lines
    lines.append(f"outputs of call {run['steps']}, seed {run['seed']}:")
    for output in run["outputs"][:MOST_OUTPUTS]:
        shape = ", ".join(map(str, output["shape"]))
        lines.append(
            f"  {output['name']} {output['dtype']}[{shape}]  sum {output['sum']:.9g}  l2 {output['l2']:.9g}  "
            f"max {output['max_abs']:.9g}"
        )
    if len(run["outputs"]) > MOST_OUTPUTS:
        lines.append(f"  and {len(run['outputs']) - MOST_OUTPUTS} more")
    return lines
