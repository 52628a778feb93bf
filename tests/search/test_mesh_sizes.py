"""Meshes whose sizes are open: all of them are looked at, ruled out by bounds or solved; the frontier is one."""

import json
import signal
from contextlib import suppress
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autoshard import InfeasibleError, InputError, Pin, plan
from autoshard.api.plans import Plan
from autoshard.api.session import plan_config
from autoshard.cli import main
from autoshard.config.load import load_config
from autoshard.config.problem import build_problem
from autoshard.request.mesh_sizes import MeshSearch
from autoshard.search import meshes
from autoshard.verify import Asked, Status
from autoshard.verify.derived import check_derived
from autoshard.verify.plan.checker import check_plan

SPEC = jax.ShapeDtypeStruct
W, X = SPEC((48, 96), jnp.float32), SPEC((32, 48), jnp.float32)
SEARCH = {"devices": 8, "axes": ["a", "b"]}

CONFIG = """\
function: mesh_program:f
args: {w: "float32[48,96]", x: "float32[32,48]"}
mesh: {devices: 8, axes: [a, b]}
hardware: tpu_v5e
logical_axes: {x: [batch, null], w: [embed, mlp]}
baselines: [data, fsdp+tensor]
"""
MODULE = "import jax.numpy as jnp\ndef f(w, x):\n    return jnp.tanh(x @ w) @ w.T\n"


def f(w, x):
    return jnp.tanh(x @ w) @ w.T


@pytest.fixture(scope="module")
def found() -> Plan:
    return plan(f, W, X, mesh=SEARCH, hardware="tpu_v5e", constraints=[Pin("x", '[{"a"}, {?}]')])


def test_ctrl_c_in_what_explains_a_refusal_ends_the_search_over_meshes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refuse(*given: object, **words: object) -> NoReturn:
        asked.append(1)
        with suppress(KeyboardInterrupt):  # explained without further searches
            signal.raise_signal(signal.SIGINT)
        raise InfeasibleError("there is no plan")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(meshes, "decide", refuse)
    try:
        with pytest.raises(KeyboardInterrupt):
            plan(f, W, X, mesh=SEARCH, hardware="tpu_v5e")
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(asked) == 1


def test_a_number_of_numpy_is_a_number_of_devices() -> None:
    assert MeshSearch.read({"devices": np.int64(8), "axes": ["a", "b"]}) == MeshSearch(8, ("a", "b"))


@pytest.mark.parametrize(("devices", "axes"), [(8, 2), (12, 3), (1, 2), (7, 2), (64, 3), (60, 4)])
def test_every_way_to_write_the_number_as_a_product_occurs_once(devices: int, axes: int) -> None:
    search = MeshSearch(devices, tuple("abcd"[:axes]))
    sizes = [tuple(s.values()) for s in search.sizes()]
    assert len(set(sizes)) == len(sizes) == search.count()
    assert all(prod(s) == devices for s in sizes)


def test_the_answer_is_the_best_of_planning_on_every_mesh(found: Plan) -> None:
    search = found.mesh_search
    assert search is not None
    assert len(search.tried) == 4
    each = {}
    for a in (8, 4, 2, 1):
        each[a] = plan(f, W, X, mesh={"a": a, "b": 8 // a}, hardware="tpu_v5e", constraints=[Pin("x", '[{"a"}, {?}]')])
    best = min(p.objective_s for p in each.values())
    assert found.objective_s == pytest.approx(best, rel=1e-9)
    assert search.bound_s <= best
    for row in search.tried:
        if row.bound_s is not None:
            assert row.bound_s <= each[row.mesh["a"]].objective_s


def test_the_frontier_holds_no_plan_that_another_one_beats(found: Plan) -> None:
    assert found.mesh_search is not None
    points = found.mesh_search.frontier
    assert points
    for one, other in pairwise(points):
        assert one.objective_s <= other.objective_s
        assert one.peak_bytes > other.peak_bytes
    assert points[0].objective_s <= found.objective_s + found.rounding_s


def test_without_statements_meshes_that_differ_in_names_only_are_looked_at_once() -> None:
    free = plan(f, W, X, mesh={"devices": 4, "axes": ["a", "b"]}, hardware="tpu_v5e")
    assert free.mesh_search is not None
    rows = {tuple(r.mesh.values()): r for r in free.mesh_search.tried}
    assert rows[1, 4].status == "alike"
    assert rows[1, 4].objective_s == rows[4, 1].objective_s


def test_two_axes_in_either_order_have_plans_that_cost_the_same() -> None:
    """It is cheaper to cut a dimension by 4 and then by 2 than by 2 and then by 4: plans on either mesh do so."""
    x, w1, w2 = SPEC((4096, 1024), jnp.float32), SPEC((1024, 2048), jnp.float32), SPEC((2048, 512), jnp.float32)

    def chain(x, w1, w2):
        hidden = x @ w1
        out = hidden @ w2
        return out, hidden.reshape(4, 1024, 2048).sum(1), out.reshape(4, 1024, 512).sum(1)

    found = plan(chain, x, w1, w2, mesh=SEARCH, hardware="tpu_v5e")
    each = {a: plan(chain, x, w1, w2, mesh={"a": a, "b": 8 // a}, hardware="tpu_v5e") for a in (8, 4, 2, 1)}
    assert each[4].objective_s == pytest.approx(each[2].objective_s, rel=1e-6)
    assert found.objective_s == pytest.approx(min(p.objective_s for p in each.values()), rel=1e-9)
    assert found.mesh_search is not None
    for row in found.mesh_search.tried:
        assert row.bound_s <= each[row.mesh["a"]].objective_s * (1 + 1e-9)


def test_stages_by_names_of_strategies_look_at_every_mesh() -> None:
    """Nothing is stated, but data parallelism on 8 devices is not tensor parallelism on 8."""
    roles = {"w": ("embed", "mlp"), "x": ("batch", "embed")}
    options: dict = {"hardware": "tpu_v5e", "priorities": ["data", "tensor"], "roles": roles}
    found = plan(f, W, X, mesh={"devices": 8, "axes": ["data", "model"]}, **options)
    assert found.mesh_search is not None
    assert {row.status for row in found.mesh_search.tried}.isdisjoint({"alike"})
    costs = [plan(f, W, X, mesh={"data": a, "model": 8 // a}, **options).objective_s for a in (4, 2)]
    assert found.objective_s <= min(costs) + found.rounding_s


def test_sizes_that_the_machine_has_no_room_for_are_told() -> None:
    search = MeshSearch(64, ("a", "b", "c"))
    fits, refused = search.allowed("tpu_v5e")
    assert len(fits) + len(refused) == search.count()
    assert all(reason for _, reason in refused)


@pytest.mark.parametrize(
    ("mesh", "message"),
    [
        ({"devices": 0, "axes": ["a"]}, "positive whole number"),
        ({"axes": ["a"]}, "devices is missing"),
        ({"devices": 8, "axes": []}, "axes is a list of names"),
        ({"devices": 8, "axes": ["a", "a"]}, "names an axis twice"),
        ({"devices": 8, "axes": ["a"], "link": "ici"}, "found link besides"),
        ({"devices": 2**24, "axes": list("abcdefgh")}, "name fewer axes"),
        ({"devices": 10**18 + 9, "axes": ["a", "b"]}, "at most 16777216 can be planned for"),  # a prime: not factored
    ],
)
def test_malformed_searches_are_refused(mesh: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan(f, W, X, mesh=mesh, hardware="tpu_v5e")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"constraints": [Pin("nope", "[{}, {}]")]}, "^pin 'nope' matches no value"),
        ({"strategy": "magic"}, "^unknown strategy 'magic'"),
        ({"memory_limit": "much"}, "^memory_limit is 'much'"),
        ({"baselines": ["magic"]}, "^unknown baseline 'magic'"),
        ({"baselines": [{"name": "mine", "rules": {"batch": ["c"]}}]}, "^rule 'batch' names mesh axis 'c'"),
        ({"constraints": [Pin("x", '[{"a":(1)2}, {}]')]}, "fits none of the 2 meshes:\n  a=2 x b=1: pin 'x': "),
    ],
)
def test_what_fits_no_mesh_is_at_fault_itself_and_proves_nothing_of_plans(asked: dict, message: str) -> None:
    roles = {"w": ("embed", "mlp"), "x": ("batch", "embed")}
    with pytest.raises(InputError, match=message):
        plan(f, W, X, mesh={"devices": 2, "axes": ["a", "b"]}, hardware="tpu_v5e", roles=roles, **asked)


def test_where_no_mesh_has_a_plan_the_reasons_are_told() -> None:
    with pytest.raises(InfeasibleError, match="none of the 2 meshes"):
        plan(f, W, X, mesh={"devices": 2, "axes": ["a", "b"]}, hardware="tpu_v5e", memory_limit=100)


def test_the_command_writes_a_plan_that_holds_its_mesh(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mesh_program.py").write_text(MODULE)
    config = tmp_path / "c.yaml"
    config.write_text(CONFIG)
    assert main(["solve", str(config), "-v", "--output", str(tmp_path / "out")]) == 0
    assert "step time against memory" in capsys.readouterr().out
    first = (tmp_path / "out" / "plan.json").read_bytes()
    made = Plan.load(tmp_path / "out" / "plan.json")
    assert check_plan(made.to_dict()).ok
    assert made.mesh_search is not None
    assert made.config is not None
    assert made.config["settings"]["mesh"] == dict(
        zip(made.schedule.mesh.mesh.axis_names, made.schedule.mesh.mesh.axis_sizes, strict=True)
    )
    assert main(["solve", str(config), "--output", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "plan.json").read_bytes() == first
    config.write_text(CONFIG.replace("devices: 8", "devices: eight"))
    assert main(["solve", str(config)]) == 2
    assert "c.yaml:3:" in capsys.readouterr().err
    config.write_text(CONFIG)
    assert main(["compare", str(config)]) == 2


def test_a_plan_of_a_search_is_what_the_users_own_config_asks_for(tmp_path: Path) -> None:
    """docs/verification.md: compare the plan with your own file, which leaves the sizes open."""
    (tmp_path / "mesh_program.py").write_text(MODULE)
    (tmp_path / "c.yaml").write_text(CONFIG)
    config = load_config(tmp_path / "c.yaml")
    data = json.loads(json.dumps(plan_config(config, build_problem(config)).to_dict()))
    assert data["mesh"]["axes"] != {"a": 8, "b": 1}
    assert check_derived(data, Asked.of_config(config)).status is Status.OK
