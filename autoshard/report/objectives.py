"""A plan under both objectives, as a person reads it."""

from collections.abc import Mapping
from typing import Any

from autoshard.costs.exposure import other_than
from autoshard.report.amounts import seconds_text


def objective_lines(answer: Mapping[str, Any], file: str) -> list[str]:
    """Lines for ``Objectives.to_dict()``: what each plan takes by each objective, and what the choice costs."""
    mine, other = answer["objective"], answer["other"]
    rows = [("this plan", mine, answer)]
    if other is not None:
        rows.append((f"optimum of {other['objective']}", other["objective"], other))
    width = max(len(label) for label, _, _ in rows)
    lines = [f"{'':<{width}}  {'serial':>10}  {'overlap':>10}"]
    for label, chosen, figures in rows:
        serial, overlap = (seconds_text(figures[f"{name}_s"]) for name in ("serial", "overlap"))
        lines.append(f"{label:<{width}}  {serial:>10}  {overlap:>10}  minimises {chosen}")
    if other is None:
        return [*lines, f"what {other_than(mine)} would choose was not searched: autoshard objectives {file} --search"]
    loses, total = other["loses_s"], other[f"{other['objective']}_s"]
    proof = "optimal" if other["status"] == "optimal" else f"within {other['gap']:.2%} of the bound"
    if other["differs"] == 0:
        return [*lines, f"both objectives choose the same shardings ({proof})"]
    lines.append(f"{other['differs']} values are sharded otherwise; the other optimum is {proof}")
    if loses > 0:
        share = loses / total if total else 0.0
        lines.append(f"by {other['objective']}, this plan takes {seconds_text(loses)} longer ({share:.1%})")
    else:
        lines.append(f"by {other['objective']}, this plan takes no longer")
    return lines
