"""State that goes round: what a step gives back has the layout of what it takes, so that a loop can run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from plan_cases import f32

import autoshard
from autoshard import InputError, Pin, Replicated, SameSharding
from autoshard.frontends.jax.function import trace
from autoshard.program.ties import carried_state, donated_ties
from autoshard.verify import check_plan

MESH = {"data": 2, "model": 4}
ASKED = {"mesh": MESH, "hardware": "tpu_v5e"}


PARAMS = {"w1": f32(256, 1024), "w2": f32(1024, 256)}
BATCH = f32(64, 256)


def step(params, x):
    def loss(p):
        return jnp.square(jnp.tanh(x @ p["w1"]) @ p["w2"]).mean()

    value, grads = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def update(w, x):
    """The state is one array: nothing but its type says so."""
    return w - 0.1 * jax.grad(lambda w: jnp.square(jnp.tanh(x @ w)).mean())(w), x.sum()


def names_of(f, *specs, donate=()):
    program = trace(f, *specs, donate_argnums=donate).program
    found = carried_state(program)
    return {program.output_names[slot]: program.values[value].name for slot, value in sorted(found.items())}


# -- which outputs are carried ---------------------------------------------------------------------------------


def test_outputs_belong_to_the_argument_of_their_paths():
    def f(params, moments, x):
        return jax.tree.map(jnp.sin, params), jax.tree.map(jnp.cos, moments), x.sum()

    assert names_of(f, PARAMS, PARAMS, BATCH) == {
        "out/0/w1": "params/w1",
        "out/0/w2": "params/w2",
        "out/1/w1": "moments/w1",
        "out/1/w2": "moments/w2",
    }


def test_an_output_with_the_name_of_an_argument_belongs_to_it_whatever_the_order():
    def f(params, moments):
        return {"moments": jax.tree.map(jnp.cos, moments), "params": jax.tree.map(jnp.sin, params)}

    found = names_of(f, PARAMS, PARAMS)
    assert found["out/params/w1"] == "params/w1" and found["out/moments/w1"] == "moments/w1"


def test_a_tree_of_its_own_goes_before_the_same_tree_inside_of_another():
    def f(params, opt):
        return {"mu": jax.tree.map(jnp.cos, opt["mu"])}, jax.tree.map(jnp.sin, params)

    assert names_of(f, PARAMS, {"mu": PARAMS}) == {
        "out/0/mu/w1": "opt/mu/w1",
        "out/0/mu/w2": "opt/mu/w2",
        "out/1/w1": "params/w1",
        "out/1/w2": "params/w2",
    }


def test_a_single_array_of_the_type_of_another_is_not_taken_for_its_next_value():
    assert names_of(lambda w, x: (w * 2, x.sum()), f32(8, 8), BATCH) == {}


def test_a_single_array_is_carried_where_the_output_has_its_name_or_it_is_donated():
    assert names_of(lambda w, x: {"w": w * 2, "y": x}, f32(8, 8), BATCH) == {"out/w": "w"}
    assert names_of(lambda w, x: (w * 2, x.sum()), f32(8, 8), BATCH, donate=0) == {"out/0": "w"}


def test_a_tree_that_returns_goes_before_an_array_with_the_name_of_its_leaf():
    def f(x, w, state):
        return x.sum() * w.sum(), {"w": state["w"] + 1}

    assert names_of(f, BATCH, f32(8, 8), {"w": f32(8, 8)}) == {"out/1/w": "state/w"}


def test_single_arrays_among_trees_that_return_at_their_places_are_carried_at_theirs():
    def decode(cache, token, at, weights):
        return {"k": cache["k"] + token[0]}, token + 1, at + 1, weights["w"] * 2

    specs = {"k": f32(8, 8)}, f32(8, 1), f32(), {"w": f32(8, 8)}
    assert names_of(decode, *specs) == {"out/0/k": "cache/k", "out/1": "token", "out/2": "at"}


def test_single_arrays_are_carried_at_their_places_behind_arguments_that_stay_as_they_are():
    def decode(weights, cache, token, at):
        return {"k": cache["k"] + token * weights["w"].sum()}, token + 1, at + 1

    specs = {"w": f32(8, 8)}, {"k": f32(8, 8)}, f32(8, 1), f32()
    assert names_of(decode, *specs) == {"out/0/k": "cache/k", "out/1": "token", "out/2": "at"}


def test_single_arrays_beside_donated_ones_are_carried_at_their_places():
    def decode(weights, keys, values, token):
        return keys + token, values + token, token + weights.sum(), weights.sum()

    specs = f32(4, 4), f32(8, 8), f32(8, 8), f32(8, 1)
    assert names_of(decode, *specs, donate=(1, 2)) == {"out/0": "keys", "out/1": "values", "out/2": "token"}


def test_a_row_of_arguments_that_return_ends_at_another_type():
    def decode(weights, cache, token, at):
        return {"k": cache["k"] * weights["w"].sum()}, token.sum(), at + 1

    specs = {"w": f32(8, 8)}, {"k": f32(8, 8)}, f32(8, 1), f32()
    assert names_of(decode, *specs) == {"out/0/k": "cache/k"}


def test_a_single_array_behind_an_argument_that_does_not_return_is_not_carried():
    def f(cache, weights, token):
        return {"k": cache["k"] + 1}, token.sum() * weights["w"].sum(), token

    assert names_of(f, {"k": f32(8, 8)}, {"w": f32(8, 8)}, f32(8, 1)) == {"out/0/k": "cache/k"}


@pytest.mark.parametrize("key", [jax.random.key(0), jax.random.PRNGKey(0)], ids=["typed", "raw"])
def test_a_random_key_is_carried_wherever_it_stands_beside_state(key):
    def f(params, x, key):
        return jax.tree.map(jnp.sin, params), x.sum(), jax.random.split(key)[0]

    assert names_of(f, PARAMS, BATCH, key)["out/2"] == "key"


def test_random_keys_of_one_type_are_not_told_apart():
    def f(params, x, dropout, noise):
        return jax.tree.map(jnp.sin, params), x.sum(), jax.random.split(noise)[0]

    assert "out/2" not in names_of(f, PARAMS, BATCH, jax.random.key(0), jax.random.key(1))


def test_a_random_key_alone_is_no_state():
    assert names_of(lambda key, x: (x, jax.random.split(key)[0]), jax.random.key(0), BATCH) == {}


def test_another_type_is_not_carried():
    assert names_of(lambda p: {"w": p["w"].astype(jnp.bfloat16)}, {"w": f32(8, 8)}) == {}


def test_two_donated_arguments_of_one_tree_each_have_their_own_outputs():
    def f(weights, averages):
        return jax.tree.map(jnp.sin, weights), jax.tree.map(jnp.cos, averages)

    program = trace(f, PARAMS, PARAMS, donate_argnums=(0, 1)).program
    found = {program.output_names[s]: program.values[v].name for s, v in donated_ties(program).items()}
    assert found["out/0/w1"] == "weights/w1" and found["out/1/w1"] == "averages/w1"


# -- what the plan makes of it ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planned():
    return autoshard.plan(step, PARAMS, BATCH, **ASKED)


def test_a_loop_runs_on_what_it_gave_back_and_computes_the_same(planned):
    rng = np.random.default_rng(0)
    start = {k: rng.normal(size=v.shape, scale=0.05).astype(np.float32) for k, v in PARAMS.items()}
    x = rng.normal(size=BATCH.shape).astype(np.float32)
    run, (params, batch) = planned.jit(), planned.place(start, x)
    want = start
    for _ in range(3):
        params, loss = run(params, batch)
        want, expected = jax.jit(step)(want, x)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(params["w1"], want["w1"], rtol=1e-4, atol=1e-6)


def test_without_it_the_cheapest_plan_cannot_be_called_twice():
    plan = autoshard.plan(step, PARAMS, BATCH, **ASKED, carry=False)
    assert plan["out/0/w1"] != plan["params/w1"]
    assert any("carry={'out/0/w1': 'params/w1'}" in note and " of each call" in note for note in plan.notes)


@pytest.mark.parametrize("way", ["__call__", "lower"])
def test_state_that_came_back_in_another_layout_is_refused_with_both_and_what_to_write(way):
    pins = [Pin("w", '[{}, {"model"}]'), Pin("out/0", '[{"data"}, {"model"}]')]
    plan = autoshard.plan(update, f32(256, 1024), BATCH, **ASKED, constraints=pins)
    run, x = plan.jit(), np.ones(BATCH.shape, np.float32)
    w, _ = run(np.ones((256, 1024), np.float32), x)
    with pytest.raises(InputError, match=r"argument w lies as .*'data', 'model'\), the plan takes .*'out/...': 'w'"):
        getattr(run, way)(w, x)


def test_an_array_that_was_put_on_one_device_is_refused_with_what_to_do():
    plan = autoshard.plan(update, f32(256, 1024), BATCH, **ASKED)
    w = jax.device_put(np.ones((256, 1024), np.float32), jax.devices()[1])
    with pytest.raises(InputError, match=r"argument w lies as SingleDeviceSharding.*plan.place\(...\) moves it"):
        plan.jit()(w, np.ones(BATCH.shape, np.float32))


def test_the_plan_tells_what_it_carries_and_how_to_lift_that(planned):
    (note,) = [note for note in planned.notes if note.startswith("carried state")]
    assert "2 outputs" in note and "out/0/** as params/**" in note and "carry=False" in note


def test_a_plan_with_carried_state_verifies_and_survives_its_file(planned, tmp_path):
    planned.save(tmp_path / "plan.json")
    loaded = autoshard.Plan.load(tmp_path / "plan.json").attach(step, PARAMS, BATCH)
    assert loaded.program.carried == planned.program.carried == ((0, 0), (1, 1))
    assert loaded.verify(step, PARAMS, BATCH, **ASKED).ok


def test_verification_finds_that_something_else_was_asked_to_be_carried(planned):
    found = planned.verify(step, PARAMS, BATCH, **ASKED, carry=False)
    assert not found.ok and "carry: asked: carried nothing" in str(found)


def test_the_checker_finds_pairs_that_are_none_and_layouts_that_differ(planned):
    def findings(plan, pairs):
        data = plan.to_dict()
        data["program"]["carried"] = pairs
        return "\n".join(map(str, check_plan(data).findings))

    assert "output 0 is the next value of input 1" in findings(planned, [[0, 1]])
    assert "output 7 is the next value of input 0, there are not as many" in findings(planned, [[7, 0]])
    loose = autoshard.plan(step, PARAMS, BATCH, **ASKED, carry=False)
    assert "output out/0/w1 is the next value of the input params/w1, which is" in findings(loose, [[0, 0]])


def test_a_pin_on_the_output_goes_before_what_is_found_and_the_price_is_told():
    pins = [Pin("params/w1", '[{}, {"model"}]'), Pin("out/0/w1", '[{"model"}, {}]')]
    plan = autoshard.plan(step, PARAMS, BATCH, **ASKED, constraints=pins)
    assert plan["out/0/w1"] == '[{"model"}, {}]' and plan["params/w1"] == '[{}, {"model"}]'
    assert any(note.startswith("out/0/w1 leaves as") for note in plan.notes)


def weight_step(w, x):
    g = checkpoint_name(x.T @ (x @ w), "g")
    return {"w": w - 0.1 * g}, g.sum()


@pytest.mark.parametrize("donated", [(), (0,)], ids=["carried", "donated"])
@pytest.mark.parametrize(
    ("stated", "both"),
    [
        ([Replicated("out/0/w", ["model"]), Pin("w", '[{}, {"data", ?}]')], '[{}, {"data"}]'),
        ([SameSharding(["@g", "out/0/w"]), Pin("@g", '[{"data"}, {}]')], '[{"data"}, {}]'),
        ([SameSharding(["@g", "out/0/w"]), Replicated("@g")], "[{}, {}]"),
    ],
    ids=["replicated", "pinned group", "replicated group"],
)
def test_what_groups_and_restrictions_demand_of_an_output_holds_for_its_input(stated, both, donated):
    plan = autoshard.plan(weight_step, f32(32, 16), f32(64, 32), **ASKED, constraints=stated, donate_argnums=donated)
    assert (plan["w"], plan["out/0/w"]) == (both, both)
    assert check_plan(plan.to_dict()).ok


@pytest.mark.parametrize("donated", [(), (0,)], ids=["carried", "donated"])
def test_a_pinned_input_and_an_output_that_may_not_be_so_are_told_as_a_conflict(donated):
    stated = [Pin("w", '[{}, {"model"}]'), Replicated("out/0/w", ["model"])]
    with pytest.raises(autoshard.InfeasibleError, match="replicated out/0/w over model"):
        autoshard.plan(weight_step, f32(32, 16), f32(64, 32), **ASKED, constraints=stated, donate_argnums=donated)


def test_the_even_part_of_an_uneven_input_satisfies_what_is_demanded_of_its_output():
    """The input is cut unevenly by y; its next value leaves without y, as it must."""
    stated = [Pin("w", '[{}, {"x", "y"}]'), Replicated("out/0/w", ["y"])]
    asked = {"mesh": {"x": 2, "y": 3}, "hardware": "cpu_sim", "constraints": stated}
    plan = autoshard.plan(weight_step, f32(36, 100), f32(24, 36), **asked)
    assert plan["out/0/w"] == '[{}, {"x"}]'


def test_a_stage_does_not_tie_an_output_that_a_later_stage_pins():
    """Each plan of a stage is one of the stage before it, so no stage costs less than that."""
    stated = [Pin("x", '[{"model", ?}, {?}]'), Pin("out/0/w", '[{"data"}, {}]', priority=1)]
    plan = autoshard.plan(weight_step, f32(32, 16), f32(64, 32), **ASKED, constraints=stated, donate_argnums=(0,))
    first, second = plan.stages
    assert second.price_s >= 0 and first.cost_s <= second.cost_s


def test_where_there_is_no_plan_the_error_says_that_state_was_tied():
    asked = {**ASKED, "memory_limit": 1000}
    with pytest.raises(autoshard.InfeasibleError, match=r"2 outputs were found .*carry=False"):
        autoshard.plan(step, PARAMS, BATCH, **asked)


# -- in the user's words ---------------------------------------------------------------------------------------


def test_a_mapping_ties_an_array_that_nothing_else_tells():
    asked = {**ASKED, "carry": {"out/0": "w"}}
    plan = autoshard.plan(update, f32(256, 1024), BATCH, **asked)
    assert plan["out/0"] == plan["w"]
    (stated,) = plan.statements
    assert (stated["kind"], stated["patterns"], stated["source"]) == ("same_sharding", ["w", "out/0"], "carry")
    assert plan.verify(update, f32(256, 1024), BATCH, **asked).ok


def test_a_mapping_of_trees_ties_leaf_by_leaf():
    plan = autoshard.plan(step, PARAMS, BATCH, **ASKED, carry={"out/0": "params"})
    assert [s["patterns"] for s in plan.statements] == [["params/w1", "out/0/w1"], ["params/w2", "out/0/w2"]]
    assert plan["out/0/w1"] == plan["params/w1"] and plan["out/0/w2"] == plan["params/w2"]


def test_a_mapping_that_pins_contradict_is_told_with_both():
    pins = [Pin("params/w1", '[{}, {"model"}]'), Pin("out/0/w1", '[{"model"}, {}]')]
    with pytest.raises(autoshard.InfeasibleError, match="carry: same sharding: params/w1, out/0/w1"):
        autoshard.plan(step, PARAMS, BATCH, **ASKED, constraints=pins, carry={"out/0": "params"})


@pytest.mark.parametrize(
    ("carry", "message"),
    [
        ("yes", "carry is 'yes'; give 'auto', 'none', or a mapping"),
        ({"params": "out/0"}, "an output comes first"),
        ({"out/0": "out/1"}, "an input comes second"),
        ({"out/0": 3}, "carry holds 'out/0': 3"),
        ({"out/0": "weights"}, "'weights' matches no input; the inputs are params/w1"),
        ({"out/2": "params"}, "'out/2' matches no output"),
        ({"out": "params"}, "has no counterpart"),
    ],
)
def test_wrong_words_are_told(carry, message):
    with pytest.raises(InputError, match=message):
        autoshard.plan(step, PARAMS, BATCH, **ASKED, carry=carry)


def test_groups_by_leaf_tie_each_leaf_to_its_counterpart_only():
    def f(params, moments, x):
        return x @ params["w1"] @ params["w2"] + sum(jnp.sum(m) for m in moments.values())

    tied = SameSharding(["params", "moments/**"], by_leaf=True)
    plan = autoshard.plan(f, PARAMS, PARAMS, BATCH, **ASKED, constraints=[tied, Pin("moments/w1", '[{}, {"data"}]')])
    assert plan["params/w1"] == '[{}, {"data"}]' and plan["params/w2"] == plan["moments/w2"]
    assert [s["patterns"] for s in plan.statements if s["kind"] == "same_sharding"] == [
        ["params/w1", "moments/w1"],
        ["params/w2", "moments/w2"],
    ]


def test_a_config_says_what_is_carried(tmp_path):
    from autoshard.api.session import plan_config
    from autoshard.config.load import load_config
    from autoshard.config.problem import build_problem

    text = """
function: "carried_steps:update"
args: {{w: "float32[256, 1024]", x: "float32[64, 256]"}}
mesh: {{data: 2, model: 4}}
hardware: tpu_v5e
carry: {carry}
"""
    (tmp_path / "carried_steps.py").write_text(
        "import jax, jax.numpy as jnp\n\ndef update(w, x):\n"
        "    return w - 0.1 * jax.grad(lambda w: jnp.square(jnp.tanh(x @ w)).mean())(w), x.sum()\n"
    )
    (tmp_path / "config.yaml").write_text(text.format(carry="{out/0: w}"))
    config = load_config(tmp_path / "config.yaml")
    plan = plan_config(config, build_problem(config))
    assert plan["out/0"] == plan["w"]
    assert plan.statements[0]["source"].endswith("config.yaml:6:8: carry")
    (tmp_path / "config.yaml").write_text(text.format(carry="{w: out/0}"))
    with pytest.raises(InputError, match=r"config.yaml:6:8: carry: carry holds 'w': 'out/0'; an output comes first"):
        load_config(tmp_path / "config.yaml")


# -- state that is pinned to uneven cuts -----------------------------------------------------------------------


@pytest.mark.parametrize("donated", [(), (0,)], ids=["not donated", "donated"])
@pytest.mark.parametrize(
    ("mesh", "pin", "back"),
    [
        ({"x": 2, "y": 3}, '[{}, {"y"}]', "[{}, {}]"),
        ({"x": 2, "y": 3}, '[{?}, {"x", "y"}]', '[{}, {"x"}]'),
        ({"y": 8}, '[{?}, {"y", ?}]', '[{}, {"y":(1)4}]'),
    ],
)
def test_state_that_is_cut_unevenly_comes_back_as_jax_has_it_outside(mesh, pin, back, donated):
    """Arrays of JAX are even: the input comes in without the axes that do not divide it, and so must its next value."""
    state, x = f32(36, 100), f32(24, 36)
    asked = {"mesh": mesh, "hardware": "cpu_sim", "constraints": [Pin("w", pin)]}
    plan = autoshard.plan(lambda w, x: {"w": w - 0.1 * (x.T @ x @ w)}, state, x, donate_argnums=donated, **asked)
    run = plan.jit()
    w, given = plan.place(np.ones(state.shape, np.float32), np.ones(x.shape, np.float32))
    for _ in range(2):
        w = run(w, given)["w"]
    assert plan["out/w"] == back
    assert not any("JAX refuses" in note for note in plan.notes)
    assert plan.verify(lambda w, x: {"w": w - 0.1 * (x.T @ x @ w)}, state, x, donate_argnums=donated, **asked).ok
