"""Closed-form steps beside 301 published training runs (experiments/training_runs has the sources)."""

import csv
import importlib.util
from pathlib import Path
from statistics import median
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "training_runs"


@pytest.fixture(scope="module")
def runs():
    spec = importlib.util.spec_from_file_location("training_runs", FOLDER / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["training_runs"] = module
    spec.loader.exec_module(module)
    return module.load()


def test_there_are_runs_of_six_machines_by_many_groups(runs) -> None:
    assert len(runs) >= 140
    assert {r.row["hardware"] for r in runs} == {"a100_40", "a100_80", "h100", "tpu_v4", "tpu_v5e", "tpu_v5p"}
    assert len({r.row["source"] for r in runs}) >= 10


def test_no_published_step_is_faster_than_its_lower_bound(runs) -> None:
    assert [r.row for r in runs if r.answer.seconds > r.step_s] == []


def test_the_estimate_lies_between_the_bounds(runs) -> None:
    assert all(r.answer.seconds <= r.answer.estimate_seconds <= r.answer.upper_seconds for r in runs)


def test_the_estimate_is_within_a_quarter_of_nine_tenths_of_the_published_steps(runs) -> None:
    ratios = [r.answer.estimate_seconds / r.step_s for r in runs]
    assert 0.93 <= median(ratios) <= 1.07
    assert sum(0.8 <= ratio <= 1.25 for ratio in ratios) / len(ratios) >= 0.9
    assert min(ratios) > 0.6 and max(ratios) < 1.7


def test_the_estimate_ranks_runs_as_they_ran(runs) -> None:
    from scipy.stats import spearmanr

    found: Any = spearmanr(
        [r.answer.mfu for r in runs], [r.answer.mfu * r.answer.estimate_seconds / r.step_s for r in runs]
    )
    assert found.statistic >= 0.75  # of utilisation, which says nothing about size


def test_every_run_names_what_was_published(runs) -> None:
    with (FOLDER / "runs.csv").open() as file:
        assert all(row["published"] and row["source"] for row in csv.DictReader(file))
