"""``autoshard compare`` and the key ``strategy`` of configs."""

import csv
import json
from pathlib import Path

import pytest

from autoshard.cli import main
from autoshard.strategies.choice import NAMES

CONFIG = """\
function: compare_program:f
args: {x: "float32[64,128]", w: "float32[128,256]"}
mesh: {a: 2, b: 4}
hardware: tpu_v5e
pins: {x: '[{"a"}, {?}]'}
logical_axes: {x: [batch, null], w: [embed, mlp]}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "compare_program.py").write_text(
        "import jax.numpy as jnp\ndef f(x, w):\n    return jnp.tanh(x @ w).sum(0)\n"
    )
    (tmp_path / "c.yaml").write_text(CONFIG)
    return tmp_path / "c.yaml"


def test_all_strategies_stand_side_by_side_with_their_regret(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(config), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    rows = {row["strategy"]: row for row in data["strategies"]}
    assert tuple(rows) == NAMES
    for row in rows.values():
        assert row["regret"] == pytest.approx(row["objective_s"] / data["bound_s"] - 1)
        assert row["regret"] >= 0
        assert row["objective_s"] >= rows["joint"]["objective_s"]
        assert row["peak_bytes"] > 0
    assert rows["joint"]["status"] == "optimal"


def test_named_strategies_a_csv_and_a_plot(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, plot = config.parent / "rows.csv", config.parent / "rows.svg"
    asked = ["compare", str(config), "--strategies", "greedy,basic:cost", "--csv", str(table), "--plot", str(plot)]
    assert main(asked) == 0
    assert "no plan takes less than" in capsys.readouterr().out
    with table.open() as stream:
        rows = list(csv.DictReader(stream))
    assert [r["strategy"] for r in rows] == ["greedy", "basic:cost"]
    assert all(float(r["regret"]) >= 0 for r in rows)
    assert plot.read_text().lstrip().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--strategies", "gredy"], "did you mean 'greedy'"),
        (["--strategies", "joint,joint"], "named twice"),
        (["--plot", "x.txt"], "--plot x.txt"),
        (["--csv", "x.png", "--plot", "x.png"], "--csv and --plot name one file"),
        (["--time-limit", "soon"], "--time-limit"),
    ],
)
def test_wrong_arguments_end_with_2(
    config: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(config), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_where_no_strategy_has_a_plan_no_bound_is_told(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(config), "--strategies", "basic", "memory_limit=1000"]) == 0
    out = capsys.readouterr().out
    assert "none of these has a plan within 1000 B per device" in out
    assert "takes less than" not in out


def test_the_strategy_of_a_config_is_used_and_checked(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(CONFIG + "strategy: user-priority:first-factor\n")
    assert main(["solve", str(config), "--output", str(config.parent / "out"), "--json"]) == 0
    assert "decided by strategy user-priority:first-factor" in capsys.readouterr().out
    config.write_text(CONFIG + "strategy: fastest\n")
    assert main(["solve", str(config)]) == 2
    assert "c.yaml:7:11: strategy: unknown strategy 'fastest'" in capsys.readouterr().err
