"""`SameSharding`: all members of a group have one sharding; the independent checker agrees (S4.8 to S4.13)."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from plan_cases import f32, mlp

from autoshard import Pin, SameSharding, plan
from autoshard.api.plans import Plan
from autoshard.config import load_config
from autoshard.errors import InfeasibleError, InputError, ShardingError
from autoshard.verify import check_plan

AXES = {"x": 2, "y": 4}


def planned(f: Any, *specs: Any, **options: Any) -> Plan:
    found = plan(f, *specs, mesh=AXES, hardware="tpu_v5e", **options)
    checked = check_plan(found.to_dict())
    assert checked.ok, checked.findings
    return found


def apart(a: Any, b: Any) -> Any:
    """Two inputs without any data flow between them."""
    return jnp.tanh(a) * 2.0, b + 1.0


TWO = (f32(16, 32), f32(16, 32))


@pytest.mark.parametrize("pinned", ["a", "b", "out/0", "out/1"])
def test_what_is_pinned_on_one_member_holds_for_all(pinned: str) -> None:  # S4.8, S4.9, S4.13
    group = SameSharding(["a", "b", "out/0", "out/1"])
    found = planned(apart, *TWO, constraints=[Pin(pinned, '[{"y"}, {"x"}]'), group])
    assert {found[name] for name in ("a", "b", "out/0", "out/1")} == {'[{"y"}, {"x"}]'}


def test_without_the_group_the_other_values_are_free() -> None:  # S4.10
    pins = [Pin("a", '[{"y"}, {"x"}]'), Pin("b", "[{}, {}]")]
    assert planned(apart, *TWO, constraints=pins)["b"] == "[{}, {}]"
    with pytest.raises(InfeasibleError, match="two pins contradict each other"):
        planned(apart, *TWO, constraints=[*pins, SameSharding(["a", "b"])])


def test_the_solver_picks_one_where_no_member_has_a_sharding() -> None:  # S4.11
    w1, w2 = f32(64, 64), f32(64, 64)
    free = planned(mlp, w1, w2, f32(512, 64))
    tied = planned(mlp, w1, w2, f32(512, 64), constraints=[SameSharding(["w1", "w2"])])
    assert tied["w1"] == tied["w2"]
    assert tied.objective_s >= free.bound_s


def test_intermediates_can_be_members_and_hold_no_partial_sums() -> None:
    def f(w1: Any, w2: Any, x: Any) -> Any:
        return checkpoint_name(x @ w1, "h").sum() + checkpoint_name(jnp.cumsum(x @ w2, axis=0), "g").sum()

    specs = (f32(64, 32), f32(64, 32), f32(16, 64))
    found = planned(f, *specs, constraints=[SameSharding(["@h", "@g"]), Pin("@h", '[{"x"}, {?}]')])
    program, at = found.program, found.schedule
    forms = [at.form_before_use(v.id) for v in program.values if v.tags]
    assert forms[0] == forms[1]
    assert not forms[0].unreduced
    rng = np.random.default_rng(0)
    args = [jnp.asarray(rng.standard_normal(s.shape), s.dtype) for s in specs]
    np.testing.assert_allclose(found.jit()(*args), f(*args), rtol=1e-3)


def test_donated_state_in_a_group_still_comes_back_as_it_went_in() -> None:
    def step(state: Any, x: Any) -> Any:
        g = jax.grad(lambda w: jnp.square(x @ w).sum())(state["w"])
        m = 0.9 * state["m"] + g
        return {"w": state["w"] - 0.1 * m, "m": m}

    specs = ({"w": f32(64, 64), "m": f32(64, 64)}, f32(32, 64))
    found = planned(step, *specs, donate_argnums=(0,), constraints=[SameSharding(["state/*"])])
    assert len({found[name] for name in ("state/w", "state/m", "out/w", "out/m")}) == 1


def test_groups_that_overlap_are_one() -> None:
    groups = [SameSharding(["a", "b"]), SameSharding(["b", "out/1"])]
    found = planned(apart, *TWO, constraints=[*groups, Pin("a", '[{"x"}, {}]')])
    assert found["out/1"] == found["b"] == '[{"x"}, {}]'


def test_layers_that_share_their_decisions_keep_their_groups() -> None:
    def f(ws: Any, vs: Any, x: Any) -> Any:
        for w, v in zip(ws, vs, strict=True):
            h = jax.nn.relu(x @ w)
            h = h * jax.nn.sigmoid(h) + 1.0
            x = x + h @ v - h.mean(axis=-1, keepdims=True)
        return x

    found = planned(f, [f32(16, 16)] * 4, [f32(16, 16)] * 4, f32(64, 16), constraints=[SameSharding(["ws/*", "vs/2"])])
    assert len({found[f"ws/{k}"] for k in range(4)} | {found["vs/2"]}) == 1


# -- groups that cannot be -----------------------------------------------------------------------------------------


def test_members_of_different_shapes_are_refused_by_name() -> None:  # S4.12
    with pytest.raises(
        ShardingError, match=r"here:1: same sharding: w1, w2: w1 has shape \[64, 128\] and w2 \[128, 64\]"
    ):
        planned(mlp, f32(64, 128), f32(128, 64), f32(8, 64), constraints=[SameSharding(["w1", "w2"], source="here:1")])


def test_two_members_with_different_closed_pins_are_both_named() -> None:  # S4.12
    pins = [Pin("a", '[{"x"}, {}]', source="p:1"), Pin("b", '[{"y"}, {}]', source="p:2")]
    with pytest.raises(InfeasibleError, match=r"p:1(.|\n)*p:2|p:2(.|\n)*p:1"):
        planned(apart, *TWO, constraints=[*pins, SameSharding(["a", "b"])])


def test_a_pattern_that_matches_nothing_and_a_group_of_one_are_refused() -> None:
    with pytest.raises(InputError, match="'c' matches no value"):
        planned(apart, *TWO, constraints=[SameSharding(["a", "c"])])
    with pytest.raises(InputError, match="there is one value only"):
        planned(apart, *TWO, constraints=[SameSharding(["a"])])
    with pytest.raises(InputError, match="needs a list of patterns"):
        SameSharding("a")


# -- the checker and configs ---------------------------------------------------------------------------------------


def test_the_checker_finds_a_group_that_does_not_hold() -> None:
    found = planned(apart, *TWO, constraints=[Pin("a", '[{"x"}, {}]'), Pin("b", "[{}, {}]")])
    data = found.to_dict()
    ids = [found.program.body.args[k] for k in (0, 1)]
    group = {"kind": "same_sharding", "patterns": ["a", "b"], "source": "", "values": ids, "outputs": []}
    data["statements"].append(group)
    assert any("same sharding: a, b is broken" in str(f) for f in check_plan(data).findings)
    group["values"] = ids[:1]
    told = [str(f) for f in check_plan(data).findings]
    assert any("addresses b, which the statement leaves out" in t for t in told)
    assert any("ties 1 values" in t for t in told)


def test_a_config_states_groups_with_their_place(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        "model: mlp\nmesh: {data: 2, model: 4}\nhardware: tpu_v5e\nsame_sharding:\n  - [state/params/*, out/0]\n"
    )
    (group,) = load_config(file).statements
    assert group.patterns == ("state/params/*", "out/0")
    assert group.source == f"{file}:5:5"
    file.write_text("model: mlp\nmesh: {data: 2}\nhardware: tpu_v5e\nsame_sharding: [[]]\n")
    with pytest.raises(InputError, match="same_sharding"):
        load_config(file)
