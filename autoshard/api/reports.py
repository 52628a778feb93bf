"""Reports of plans: each form is made from plan files alone, and written whole or not at all."""

import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from autoshard.api.pages import largest, page
from autoshard.errors import InputError
from autoshard.files import check_writable, read_text, write_text
from autoshard.report.view.search import SearchPoint, search_read

if TYPE_CHECKING:
    from autoshard.api.plans import Plan


class ReportFormat(StrEnum):
    """What a report is written as."""

    HTML = "html"
    PERFETTO = "perfetto"
    MODEL_EXPLORER = "model-explorer"
    CSV = "csv"


DEFAULT_NAMES = {
    ReportFormat.HTML: "report.html", ReportFormat.PERFETTO: "trace.json", ReportFormat.MODEL_EXPLORER: "graphs.json",
    ReportFormat.CSV: "tables",
}  # fmt: skip
MOST_PLANS = 12
"""Plans that one page compares."""


def write_report(
    files: Sequence[Path], output: Path | None, form: ReportFormat = ReportFormat.HTML, *, alternatives: int = 0
) -> list[Path]:
    """Write a report of plan files; returns what was written.

    output: a file, for CSV a directory; beside the first plan where not given. alternatives: of so many of the largest
    inputs the page has prices of other shardings, for which the network of decisions is built again.
    """
    from autoshard.api.plans import Plan

    if not files or len(files) > MOST_PLANS:
        raise InputError(f"a report is of 1 to {MOST_PLANS} plans, found {len(files)}")
    if form is ReportFormat.CSV and len(files) > 1:
        raise InputError(f"tables are of one plan, found {len(files)}; write one directory for each")
    target = output if output is not None else files[0].parent / DEFAULT_NAMES[form]
    names = [str(file) for file in files]
    targets = [target]
    if form is ReportFormat.CSV:
        if target.exists() and not target.is_dir():
            raise InputError(f"cannot write {target}: tables need a directory, and this is a file")
        targets = [target / name for name in ("collectives.csv", "parameters.csv", "memory.csv", "held.csv")]
    for one in targets:
        check_writable(one)
    if any(one.resolve() == file.resolve() for one in targets for file in files):
        raise InputError(f"{target} is the plan itself; give the report another --output")
    plans = [Plan.load(file) for file in files]
    if form is ReportFormat.CSV:
        from autoshard.report.exports.tables import csv_tables

        for name, text in csv_tables(plans[0]).items():
            write_text(target / name, text)
        return targets
    write_text(target, _text(form, plans, names, files, alternatives))
    return targets


def _text(form: ReportFormat, plans: "Sequence[Plan]", names: Sequence[str], files: Sequence[Path], most: int) -> str:
    if form is ReportFormat.PERFETTO:
        from autoshard.report.exports.perfetto import perfetto_trace

        return json.dumps(perfetto_trace(plans, names), separators=(",", ":")) + "\n"
    if form is ReportFormat.MODEL_EXPLORER:
        from autoshard.report.exports.model_explorer import model_explorer_graphs

        return json.dumps(model_explorer_graphs(plans, names), separators=(",", ":")) + "\n"
    return page(plans, names, [search_beside(file) for file in files], [largest(plan, most) for plan in plans])


def search_beside(plan: Path) -> list[SearchPoint]:
    """How the search went, from run.json beside a plan; nothing where that is not there or says nothing of it."""
    file = plan.parent / "run.json"
    if not file.is_file():
        return []
    try:
        return search_read(json.loads(read_text(file)).get("search", []))
    except (InputError, ValueError, TypeError, AttributeError, RecursionError):
        return []
