"""Plans with dimensions that no axis divides: checked, lowered and run; wrong paddings are caught (S0.53 to S0.57)."""

import copy
import json
import re
from math import prod
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plan_cases import f32, random_assignment, unsolved_plan

from autoshard.api import verbs as api
from autoshard.constraints import MatchedPin, MemoryKind, Pin, SameSharding, match_pins
from autoshard.costmodels import load_profile, place_mesh
from autoshard.frontends.jax.function import TracedFunction, trace
from autoshard.planning import Problem, build_model
from autoshard.sharding.mesh import Mesh
from autoshard.verify import Runnable, Verification, check_plan, verify_plan
from autoshard.verify.derived import ASKED

Json = dict[str, Any]
MESHES = ({"x": 3}, {"x": 6}, {"x": 2, "y": 3})


def gradient(w: Any, v: Any, x: Any) -> Any:
    """A softmax over 1111 classes: sums, maxima and contractions over a padded dimension, and its gradients."""

    def loss(w: Any, v: Any) -> Any:
        return -jax.nn.log_softmax(jnp.tanh(x @ w) @ v)[:, 0].mean()

    value, (dw, dv) = jax.value_and_grad(loss, argnums=(0, 1))(w, v)
    return value, w - 0.1 * dw, v - 0.1 * dv


def moved(x: Any, y: Any) -> Any:
    """Small odd dimensions: moved about, broadcast, summed, and through a loop."""
    z = jnp.where(x.T > 0, x.T, 0.5 * x.T)[:, None, :] * y

    def step(c: Any, row: Any) -> Any:
        return c + row @ row.T, jnp.exp(-row).sum(0)

    last, sums = jax.lax.scan(step, jnp.zeros((10, 10)), jnp.stack([x.T, -x.T]))
    return z.max(axis=0), last, sums, (z * z).sum(axis=(1, 2))


PROGRAMS: dict[str, Any] = {
    "gradient": (gradient, (f32(64, 1111), f32(1111, 1111), f32(96, 64)), ("w", "v", "x")),
    "moved": (moved, (f32(7, 10), f32(11, 7)), ("x", "y")),
}
UNEVEN_PINS = {
    "gradient": {"w": '[{}, {"x"}]', "v": '[{"x"}, {?}]'},
    "moved": {"x": '[{?}, {"x"}]', "y": '[{"x"}, {?}]'},
}


def plan_of(name: str, mesh: dict[str, int], pins: dict[str, str] | None = None) -> Json:
    f, specs, names = PROGRAMS[name]
    made = api.plan(
        f, *specs, mesh=mesh, hardware="cpu_sim", argnames=names,
        constraints=[Pin(p, s) for p, s in (pins or {}).items()],
    )  # fmt: skip
    return json.loads(json.dumps(made.to_dict()))


def sizes(plan: Json) -> list[int]:
    """Of the atoms: "x" or a part of it, "x:(2)3"."""
    return [int(a.split(")")[1]) if ")" in a else plan["mesh"]["axes"][a] for a in plan["mesh"]["atoms"]]


def padded_dims(plan: Json) -> int:
    """How many dimensions of definitions are cut by axes that do not divide them."""
    shapes = {v["id"]: v["shape"] for v in plan["program"]["values"]}
    return sum(
        n % prod(sizes(plan)[a] for a in atoms) != 0
        for v, layout in plan["schedule"]["definitions"].items()
        for n, atoms in zip(shapes[int(v)], layout["dims"], strict=True)
    )


def run(name: str, plan: Json) -> Verification:
    f, specs, names = PROGRAMS[name]
    rng = np.random.default_rng(0)
    arguments = tuple(jnp.asarray(rng.normal(size=s.shape) / 8, jnp.float32) for s in specs)
    return verify_plan(plan, Runnable(trace(f, *specs, argnames=names), f, lambda: arguments))


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_plan_with_unevenly_pinned_inputs_is_right_in_every_respect(name: str, mesh: dict[str, int]) -> None:
    plan = plan_of(
        name, mesh, UNEVEN_PINS[name] if mesh["x"] != 2 else {"y": '[{"y"}, {?}]'} if name == "moved" else None
    )
    assert padded_dims(plan) > 0
    found = run(name, plan)
    assert [c.name for c in found.checks if c.status.value != "ok"] == [ASKED], str(found)


def statement(pin: MatchedPin) -> Json:
    return {
        "kind": "pin", "pattern": pin.pattern, "sharding": str(pin.sharding), "source": "",
        "values": list(pin.values), "outputs": list(pin.outputs),
    }  # fmt: skip


def random_plans(
    name: str, mesh: dict[str, int], count: int, pins: dict[str, str]
) -> list[tuple[TracedFunction, Json]]:
    """Plans far from the best one, in which more is padded."""
    f, specs, names = PROGRAMS[name]
    traced = trace(f, *specs, argnames=names)
    devices = Mesh.from_dict(mesh)
    stated = match_pins([Pin(p, s) for p, s in pins.items()], traced.program, devices)
    problem = Problem.make(traced.program, devices, place_mesh(load_profile("cpu_sim"), mesh, None), pins=stated)
    model = build_model(problem)
    random, out = Random(7), []
    for _ in range(50 * count):
        assignment = random_assignment(model.repeats.network, random, tries=1)
        if assignment is None:
            continue
        plan = unsolved_plan(model, assignment, statements=[statement(pin) for pin in stated])
        out.append((traced, json.loads(json.dumps(plan.to_dict()))))
        if len(out) == count:
            return out
    raise AssertionError("no random plans were found")


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_random_padded_plans_cost_and_hold_what_the_checker_says(name: str, mesh: dict[str, int]) -> None:
    plans = [plan for _, plan in random_plans(name, mesh, 8, UNEVEN_PINS[name])]
    assert sum(map(padded_dims, plans)) > 8
    for plan in plans:
        assert [str(f) for f in check_plan(plan).findings] == []


@pytest.mark.parametrize(
    ("name", "mesh"),
    [
        pytest.param(
            name, mesh, marks=[] if (name, len(mesh)) == ("moved", 2) else pytest.mark.slow, id=f"{name}-{mesh}"
        )
        for name in PROGRAMS
        for mesh in MESHES[1:]
    ],
)
def test_random_padded_plans_run(name: str, mesh: dict[str, int]) -> None:
    for _, plan in random_plans(name, mesh, 2, {}):
        found = run(name, plan)
        assert [c.name for c in found.checks if c.status.value != "ok"] == [ASKED], str(found)


# -- what must not be padded ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def padded() -> Json:
    return plan_of("moved", {"x": 6}, UNEVEN_PINS["moved"])


def ids(plan: Json) -> dict[str, str]:
    return {v["name"]: str(v["id"]) for v in plan["program"]["values"]}


def complaints(plan: Json, expected: str) -> None:
    found = [str(f) for f in check_plan(plan).findings]
    assert any(re.search(expected, line) for line in found), found[:10]


def test_an_input_is_uneven_only_where_it_is_pinned_so(padded: Json) -> None:
    plan = copy.deepcopy(padded)
    plan["statements"] = [s for s in plan["statements"] if s["pattern"] != "y"]
    complaints(plan, r"layouts: input y is cut unevenly along dimension 0, \[\{\"x\"\}, \{\}\]; inputs are where a pin")


def test_an_input_is_uneven_only_along_the_dimension_that_is_pinned_so(padded: Json) -> None:
    plan = copy.deepcopy(padded)
    plan["schedule"]["definitions"][ids(plan)["y"]]["dims"] = [[], [0]]
    complaints(plan, r"layouts: input y is cut unevenly along dimension 1")


def test_an_input_is_uneven_where_a_pin_says_so_of_one_with_the_same_sharding() -> None:
    made = api.plan(
        lambda w, m: jnp.sum(w * m), f32(11, 7), f32(11, 7), mesh={"x": 6}, hardware="cpu_sim", argnames=["w", "m"],
        constraints=[Pin("w", '[{"x"}, {}]'), SameSharding(["w", "m"])],
    )  # fmt: skip
    plan = json.loads(json.dumps(made.to_dict()))
    assert plan["shardings"]["m"] == '[{"x"}, {}]'
    assert check_plan(plan).findings == ()
    plan["statements"] = [s for s in plan["statements"] if s["kind"] == "pin"]
    complaints(plan, r"layouts: input m is cut unevenly along dimension 0")


def test_an_output_is_even(padded: Json) -> None:
    plan = copy.deepcopy(padded)
    use = next(u for u in plan["schedule"]["uses"] if u["op"] == -1 and u["slot"] == 1)
    everything = list(range(len(sizes(plan))))
    use["steps"] = [*use["steps"], {"kind": "slice", "atoms": everything, "dim": 0, "to_dim": -1}]
    complaints(plan, r"layouts: output out/1 is handed back cut unevenly")


def test_an_axis_that_leaves_nothing_to_cut_is_not_used() -> None:
    plan = plan_of("moved", {"x": 2, "y": 3})
    held = plan["schedule"]["definitions"][ids(plan)["x"]]
    held["dims"] = [[0, 1], []]  # 7 over 2, then 3: pieces of 2, lawful but not pinned
    complaints(plan, r"layouts: input x is cut unevenly")
    made = api.plan(lambda x: x * 2.0, f32(3, 8), mesh={"x": 3, "y": 2}, hardware="cpu_sim", argnames=["x"])
    plan = json.loads(json.dumps(made.to_dict()))
    plan["schedule"]["definitions"][ids(plan)["x"]]["dims"] = [[0, 1], []]
    complaints(plan, r"layouts: definition of x .*of size 3 is cut in 6 parts .*some axes leave nothing to cut")


def test_ops_that_cannot_run_on_padded_blocks_are_caught() -> None:
    made = api.plan(
        lambda x: jnp.cumsum(x * 2.0, axis=1), f32(7, 12), mesh={"x": 6}, hardware="cpu_sim", argnames=["x"]
    )
    plan = json.loads(json.dumps(made.to_dict()))
    op = next(o for o in plan["program"]["body"]["ops"] if o["kind"] == "cumsum")
    assert "i=7" in op["rule"]["text"]
    plan["schedule"]["placements"][str(op["id"])]["factors"][0] = [0]
    complaints(plan, r"placements: cumsum:\d+ .*which does not divide it, and cumsum does not run on padded blocks")


@pytest.mark.parametrize(
    ("kind", "f"),
    [("concatenate", lambda x: jnp.concatenate([x, -x])), ("pad", lambda x: jnp.pad(x, ((2, 3), (0, 0))))],
)
def test_what_is_joined_or_filled_in_may_be_padded_where_only_the_result_is_cut(kind: str, f: Any) -> None:
    """Every device has the whole operands and makes its own block, the last one of 1 row for 3."""
    made = api.plan(lambda x: jnp.tanh(f(x)), f32(5, 6), mesh={"x": 4}, hardware="cpu_sim", argnames=["x"])
    plan = json.loads(json.dumps(made.to_dict()))
    op = next(o for o in plan["program"]["body"]["ops"] if o["kind"] == kind)
    factor = op["rule"]["cutouts"][0][4]
    plan["schedule"]["placements"][str(op["id"])]["factors"][factor] = [0]
    found = [str(finding) for finding in check_plan(plan).findings]
    assert found and not [finding for finding in found if finding.startswith("placements")]


def test_the_checker_knows_every_op_that_the_planner_pads() -> None:
    from autoshard.placements import uneven
    from autoshard.verify.plan import rules as check_rules

    assert uneven._KINDS <= check_rules.PADDED


def held(plan: Json, what: str) -> Json:
    return next(h for h in plan["memory"]["held"] if h["what"] == what)


def test_bytes_and_memory_of_padding_count() -> None:
    """A step that is no pointwise one and reads y alone: the block is held beside what JAX has, and the result."""
    plan = uneven_sum()
    assert held(plan, "y, its block")["bytes"] == 2 * 7 * 4  # 11 over 6
    held(plan, "y, its block")["bytes"] -= 4
    complaints(plan, r"memory: memory.held does not list y, its block, 56 bytes")


def test_an_uneven_input_is_held_as_jax_has_it(padded: Json) -> None:
    plan = copy.deepcopy(padded)
    assert held(plan, "y")["bytes"] == 11 * 7 * 4  # x does not divide 11
    held(plan, "y")["bytes"] = 2 * 7 * 4
    complaints(plan, r"memory: memory.held does not list y, 308 bytes")


def test_a_peak_that_counts_the_blocks_alone_is_caught() -> None:
    plan = uneven_sum()
    plan["memory"]["peak_bytes"] -= (11 - 2) * 7 * 4
    complaints(plan, r"memory: memory.peak_bytes is \d+ in the plan, the simulation gives \d+")


def test_cutting_a_block_out_of_an_uneven_input_has_a_price() -> None:
    plan = uneven_sum()
    assert plan["cost"]["local_copies_s"] > 0
    plan["cost"]["local_copies_s"] = 0.0
    complaints(plan, r"cost: cost.local_copies_s is 0.0 in the plan, the layouts give")


def test_the_host_holds_an_uneven_input_as_jax_has_it() -> None:
    plan = uneven_sum(MemoryKind("y", "pinned_host"))
    assert plan["memory"]["host_bytes"] == 11 * 7 * 4
    plan["memory"]["host_bytes"] = 2 * 7 * 4
    complaints(plan, r"memory: memory.host_bytes is 56 in the plan, the layouts give 308")


def uneven_sum(*stated: Any) -> Json:
    """11 rows over 6 devices, summed."""
    made = api.plan(
        lambda y: jnp.sum(y @ y.T), f32(11, 7), mesh={"x": 6}, hardware="cpu_sim", argnames=["y"],
        constraints=[Pin("y", '[{"x"}, {}]'), *stated],
    )  # fmt: skip
    return json.loads(json.dumps(made.to_dict()))


def test_collectives_are_compared_with_padding() -> None:
    from autoshard.verify.plan.planned import collectives_of

    made = api.plan(
        lambda w, x: jnp.tanh(w @ x), f32(7, 60), f32(60, 5), mesh={"x": 6}, hardware="cpu_sim",
        argnames=["w", "x"], constraints=[Pin("w", '[{}, {"x"}]'), Pin("x", '[{"x"}, {}]')],
    )  # fmt: skip
    plan = json.loads(json.dumps(made.to_dict()))
    op = next(o for o in plan["program"]["body"]["ops"] if o["kind"] == "tanh")
    dot = next(o for o in plan["program"]["body"]["ops"] if o["kind"] == "dot_general")
    placed, steps = plan["schedule"]["placements"], {"kind": "reduce_scatter", "atoms": [0], "dim": 0, "to_dim": -1}
    placed[str(dot["id"])]["factors"] = [[0] if "60" in f else [] for f in re.findall(r"\w=(\d+)", dot["rule"]["text"])]
    placed[str(op["id"])]["factors"] = [[0], []]
    plan["schedule"]["shared"] = {}
    definitions = plan["schedule"]["definitions"]
    definitions[str(dot["results"][0])] = {"dims": [[], []], "unreduced": [0]}
    definitions[str(op["results"][0])] = {"dims": [[0], []], "unreduced": []}
    for use in plan["schedule"]["uses"]:
        gather = [{"kind": "all_gather", "atoms": [0], "dim": 0, "to_dim": -1}]
        use["steps"] = [steps] if use["op"] == op["id"] else gather if use["op"] == -1 else []
    found = {c.kind: c.elements for c in collectives_of(plan)}
    assert found == {"reduce_scatter": 12 * 5, "all_gather": 2 * 5}  # 7 rows are filled to 12
