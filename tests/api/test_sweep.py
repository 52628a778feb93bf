"""One config over many values: a row each, and a sweep that goes on where it stopped."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from autoshard.api import session
from autoshard.api import sweep as sweeps
from autoshard.api.sweep import sweep
from autoshard.cli import main
from autoshard.errors import InputError, OutOfTimeError
from autoshard.planning import relaxations
from autoshard.planning.memory_cap import memory_cap

CONFIG = """
model: {name: mlp, batch: 16}
mesh: {data: 2}
hardware: cpu_sim
"""
MESHES = [{"data": 2}, {"data": 2, "model": 2}]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


def test_every_combination_has_a_row_with_its_figures(config: Path) -> None:
    swept = sweep(config, {"mesh": MESHES, "hardware": ["cpu_sim", "tpu_v5e"]})
    frame = swept.to_pandas()
    assert list(zip(frame["mesh"], frame["hardware"], strict=True)) == [
        (mesh, machine) for mesh in ('{"data": 2}', '{"data": 2, "model": 2}') for machine in ("cpu_sim", "tpu_v5e")
    ]
    assert (frame["status"] == "optimal").all() and (frame["bound_s"] <= frame["objective_s"]).all()
    assert (frame["peak_bytes"] > 0).all() and (frame["step_s"] > 0).all()


def test_a_point_that_cannot_be_is_a_row_that_says_why(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaxations, "MOST_SEARCHED_VALUES", 0)
    rows = sweep(config, {"memory_limit": ["1GiB", 100], "model.layers": [1]}).rows
    assert [row["status"] for row in rows] == ["optimal", "infeasible"]
    assert rows[1]["step_s"] is None and rows[1]["reason"]
    (refused,) = sweep(config, {"model.layers": [-1]}).rows
    assert refused["status"] == "refused" and "layers" in refused["reason"]


def test_what_the_table_has_is_not_solved_again(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, solved = tmp_path / "t.csv", sweeps._solved
    first = sweep(config, {"mesh": MESHES[:1]}, results=table)
    calls: list[Any] = []
    monkeypatch.setattr(sweeps, "_solved", lambda *given: calls.append(given) or solved(*given))
    both = sweep(config, {"mesh": MESHES}, results=table)
    assert len(calls) == 1 and both.rows[0] == first.rows[0]
    assert sweep(config, {"mesh": MESHES}, results=table) == both and len(calls) == 1
    assert table.read_text() == both.csv()


def test_a_point_is_traced_once_for_its_row_and_its_plan(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced, trace_config = [], session.trace_config
    monkeypatch.setattr(session, "trace_config", lambda *given: traced.append(given) or trace_config(*given))
    sweep(config, {"mesh": MESHES}, results=tmp_path / "t.csv")
    assert len(traced) == len(MESHES)


def test_a_sweep_that_is_stopped_keeps_its_rows(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, solved = tmp_path / "t.csv", sweeps._solved

    def stopped(point: Any) -> Any:
        if "model" in point.stated.config.settings.mesh:
            raise KeyboardInterrupt
        return solved(point)

    monkeypatch.setattr(sweeps, "_solved", stopped)
    with pytest.raises(KeyboardInterrupt):
        sweep(config, {"mesh": MESHES}, results=table)
    assert len(table.read_text().splitlines()) == 2


MACHINES = ["cpu_sim", "tpu_v5e", "h100"]


def machines_in(table: Path) -> set[str]:
    return {line.split(",")[0] for line in table.read_text().splitlines()[1:]}


def test_rows_that_are_not_asked_for_now_stay_in_the_table(config: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    sweep(config, {"hardware": MACHINES}, results=table)
    assert len(sweep(config, {"hardware": ["tpu_v5e"]}, results=table).rows) == 1
    assert machines_in(table) == set(MACHINES)


@pytest.mark.parametrize("work", ["_problem_key", "_solved"])
def test_rows_that_are_not_reached_yet_stay_in_the_table_of_a_sweep_that_is_stopped(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    table, first = tmp_path / "t.csv", iter([True])
    sweep(config, {"hardware": MACHINES[1:]}, results=table)
    done = getattr(sweeps, work)

    def second_stopped(*given: Any) -> Any:
        if next(first, False):
            return done(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(sweeps, work, second_stopped)
    with pytest.raises(KeyboardInterrupt):
        sweep(config, {"hardware": [MACHINES[0], "tpu_v5p", *MACHINES[1:]]}, results=table)
    assert machines_in(table) == set(MACHINES)


def test_a_row_of_another_problem_leaves_the_rows_behind_it_in_the_table(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, key = tmp_path / "t.csv", sweeps._problem_key
    sweep(config, {"hardware": MACHINES}, results=table)
    before = table.read_text()
    changed = "hardware=tpu_v5e"
    monkeypatch.setattr(sweeps, "_problem_key", lambda *point: "other" if changed in point[-1] else key(*point))
    with pytest.raises(InputError, match="the row of hardware=tpu_v5e is of another problem"):
        sweep(config, {"hardware": MACHINES}, results=table)
    assert table.read_text() == before


def test_all_points_are_of_the_config_as_it_was_at_the_start(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [row["objective_s"] for row in sweep(config, {"mesh": MESHES}).rows]
    solved = sweeps._solved

    def edited_meanwhile(*given: Any) -> Any:
        config.write_text(CONFIG.replace("batch: 16", "batch: 1024"))
        return solved(*given)

    monkeypatch.setattr(sweeps, "_solved", edited_meanwhile)
    assert [row["objective_s"] for row in sweep(config, {"mesh": MESHES}).rows] == wanted


def test_a_key_of_a_mapping_is_put_into_the_mapping_named_before_it(config: Path) -> None:
    rows = sweep(config, {"model": [{"name": "mlp", "batch": 16}], "model.layers": [1, 2]}).rows
    assert rows[0]["peak_bytes"] < rows[1]["peak_bytes"]


@pytest.mark.parametrize(
    ("over", "changes", "message"),
    [
        (
            {"model.layers": [1, 2], "model": [{"name": "mlp"}]},
            [],
            "'model' replaces 'model.layers'.*name 'model' first",
        ),
        ({"mesh": MESHES}, ["mesh.data=4"], "'mesh' replaces 'mesh.data' at every point; leave 'mesh.data' out"),
        ({"hardware": MACHINES}, ["hardware=h100"], "'hardware' replaces 'hardware'"),
        ({"hardware": ["h100", "cpu_sim", "h100"]}, [], "hardware: the value h100 occurs twice"),
        ({"hardware": "h100"}, [], "a sweep needs keys with values"),
        ({"memory_limit": [object()]}, [], "memory_limit: expected values as in a config"),
    ],
)
def test_points_that_would_name_what_they_are_not_of_are_refused(
    config: Path, over: Any, changes: list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        sweep(config, over, changes=changes)


def test_one_time_limit_for_all_and_one_for_each_point_are_not_both_taken(config: Path) -> None:
    with pytest.raises(InputError, match="replaces 'time_limit' at every point"):
        sweep(config, {"time_limit": ["1s", "10s"]}, time_limit_s=5)


@pytest.mark.parametrize(
    ("change", "key", "message"),
    [
        ("mesh.data", "hardware", "cannot read 'mesh.data'; write KEY=VALUE"),
        ("model.layers=[1", "hardware", "this is not YAML"),
        ("model.batch.size=1", "hardware", "'size' is to be put into 16, which is no mapping"),
        ("model.layers=1", "mesh..data", "'mesh..data' is no key; write names with dots between them"),
    ],
)
def test_a_change_or_a_key_that_cannot_be_read_is_refused_at_once(
    config: Path, change: str, key: str, message: str
) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        sweep(config, {key: [1]}, changes=[change])


def test_a_damaged_row_is_told_with_its_line(config: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    (row,) = sweep(config, {"mesh": MESHES[:1]}, results=table).rows
    table.write_text(table.read_text().replace(f",{row['seconds']},", ",,"))
    with pytest.raises(InputError, match=r"t\.csv:2: cannot read seconds"):
        sweep(config, {"mesh": MESHES[:1]}, results=table)


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("nokey.x", "nokey.x: unknown key 'nokey'"),
        ("hardwre", "did you mean 'hardware'"),
        ("model.layrs", "did you mean 'layers'"),
        ("solver.efort", "did you mean 'effort'"),
    ],
)
def test_a_key_that_no_config_has_is_refused_at_once(config: Path, key: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        sweep(config, {key: [1]})
    with pytest.raises(InputError, match=says):
        sweep(config, {"hardware": ["cpu_sim"]}, changes=[f"{key}=1"])


def interrupting(monkeypatch: pytest.MonkeyPatch, stop: Callable[[], None]) -> None:
    """Every point is solved after `stop`, whose interrupt it catches, as a search that goes on with what it has."""
    figures = sweeps._figures

    def cut_short(*given: Any) -> Any:
        with suppress(KeyboardInterrupt):
            stop()
        return figures(*given)

    monkeypatch.setattr(sweeps, "_figures", cut_short)


def ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def long_work() -> None:
    for _ in range(500):  # an interrupt from another thread is taken between two
        time.sleep(0.01)


def from_beside() -> None:
    with pytest.raises(OutOfTimeError), memory_cap(1):
        long_work()


@pytest.fixture
def heeded() -> Iterator[None]:
    """Background jobs of a shell begin with interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_that_a_search_makes_the_best_of_ends_the_sweep_and_keeps_no_row(
    heeded: None, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "t.csv"
    sweep(config, {"mesh": MESHES[:1]}, results=table)
    done = table.read_text()
    interrupting(monkeypatch, ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        sweep(config, {"mesh": MESHES}, results=table)
    assert table.read_text() == done


def test_an_interrupted_sweep_is_told_as_any_interrupted_command(
    heeded: None, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupting(monkeypatch, ctrl_c)
    table = tmp_path / "t.csv"
    assert main(["sweep", str(config), "--over", "hardware=[cpu_sim, tpu_v5e]", "-o", str(table)]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "interrupted"
    assert not table.exists()


def test_a_cap_on_memory_ends_a_point_and_not_the_sweep(
    heeded: None, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupting(monkeypatch, from_beside)
    assert len(sweep(config, {"mesh": MESHES}).rows) == 2


def test_rows_of_another_config_are_refused(config: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    sweep(config, {"mesh": MESHES[:1]}, results=table)
    config.write_text(CONFIG + "verify: false\n")
    with pytest.raises(InputError, match=r"t\.csv:2: this row is of another config or version"):
        sweep(config, {"mesh": MESHES[:1]}, results=table)
    with pytest.raises(InputError, match="is no table of this sweep, whose columns are hardware"):
        sweep(config, {"hardware": ["cpu_sim"]}, results=table)


FUNCTION = """
function: "{name}:f"
args: {{x: "float32[64, 64]", w: "float32[64, 64]"}}
mesh: {{data: 2}}
hardware: mine.yaml
"""


@pytest.fixture
def named(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A config, and the code and the profile of a machine that it names."""
    code, profile, config = tmp_path / "swept_step.py", tmp_path / "mine.yaml", tmp_path / "named.yaml"
    code.write_text("def f(x, w):\n    return x @ w\n")
    packaged = Path(sweeps.__file__).parents[1] / "costmodels" / "profiles" / "cpu_sim.yaml"
    profile.write_text(packaged.read_text())
    config.write_text(FUNCTION.format(name="swept_step"))
    return config, code, profile


def in_another_process(config: Path, table: Path) -> subprocess.CompletedProcess[str]:
    given = ["sweep", str(config), "--over", "mesh=[{data: 2}, {data: 4}]", "-o", str(table)]
    return subprocess.run([sys.executable, "-m", "autoshard", *given], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("changed", ["code", "profile"])
def test_rows_of_what_the_config_named_before_are_refused(
    named: tuple[Path, Path, Path], tmp_path: Path, changed: str
) -> None:
    config, code, profile = named
    table = tmp_path / "t.csv"
    assert in_another_process(config, table).returncode == 0
    before = table.read_text()
    if changed == "code":
        code.write_text(code.read_text() + "# a remark changes no problem\n")
        assert in_another_process(config, table).returncode == 0
        code.write_text("def f(x, w):\n    return (x @ w) @ w\n")
    else:
        data = profile.read_text()
        profile.write_text(re.sub(r"(link:.*?value: )([0-9.e+]+)", r"\g<1>1.0e+9", data, count=1, flags=re.DOTALL))
        assert profile.read_text() != data
    answer = in_another_process(config, table)
    assert answer.returncode == 2
    assert 'the row of mesh={"data": 2} is of another problem' in answer.stderr
    assert table.read_text() == before


def test_rows_under_another_time_limit_are_refused(config: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    sweep(config, {"mesh": MESHES[:1]}, results=table, time_limit_s=60)
    with pytest.raises(InputError, match=r"t\.csv:2: this row is of another config or version"):
        sweep(config, {"mesh": MESHES[:1]}, results=table, time_limit_s=600)


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({}, "a sweep needs keys with values"),
        ({"mesh": []}, "a sweep needs keys with values"),
        ({"gap": [1]}, "'gap' is no key of a config"),
        ({"model.layers": range(200), "model.batch": range(200)}, "has 40000 points"),
    ],
)
def test_sweeps_that_make_no_sense_are_refused(config: Path, over: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        sweep(config, over)


def test_the_command_prints_and_keeps_the_table(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "t.csv"
    command = ["sweep", str(config), "model.layers=1", "--over", "mesh=[{data: 2}, {data: 4}]", "-o", str(table)]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "quickest" in shown and '{"data": 4}' in shown and f"table: {table}" in shown
    assert table.read_text().startswith("mesh,status,step_s,")
    for wrong in ([], ["--over", "mesh"], ["--over", "mesh=8"], ["--over", "mesh=[{data: 2}", "-o", str(table)]):
        assert main(["sweep", str(config), *wrong]) == 2
    assert "Traceback" not in capsys.readouterr().err
