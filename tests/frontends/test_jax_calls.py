"""How functions are called: keywords, static arguments, leaves that are no arrays, what a `jax.jit` was told."""

import functools
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autoshard
from autoshard import InputError
from autoshard.frontends.jax.function import trace

X, W = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((64, 256), (256, 128)))
ASKED = {"mesh": {"data": 2, "model": 4}, "hardware": "tpu_v5e"}


def layer(x, w, *, scale=1.0, bias=None):
    y = x @ w * scale
    return y if bias is None else y + bias


def ones(spec):
    return np.full(spec.shape, 0.5, np.float32)


# -- what JAX says about the function --------------------------------------------------------------------------


def branching(state, mode, *rest, scale=1.0):
    if (state if mode == "state" else rest[1] if mode == "rest" else scale) > 0:
        return state
    return scale


@pytest.mark.parametrize(("mode", "name"), [("state", "state"), ("rest", "rest_1"), ("keyword", "scale")])
def test_errors_about_traced_values_name_the_function_and_the_argument(mode, name):
    number = jax.ShapeDtypeStruct((), jnp.float32)
    with pytest.raises(jax.errors.TracerBoolConversionError) as told:
        trace(branching, number, mode, number, number, keywords={"scale": number})
    assert "the function branching at " + __file__ in str(told.value)
    assert f"depends on the value of the argument {name}." in str(told.value)


# -- keywords --------------------------------------------------------------------------------------------------


def test_keywords_are_inputs_by_their_names_positional_ones_in_their_places():
    traced = trace(layer, X, keywords={"bias": jax.ShapeDtypeStruct((128,), jnp.float32), "w": W})
    assert traced.program.input_names == ("x", "w", "bias")


@pytest.mark.smoke
def test_a_plan_takes_keywords_and_runs_with_them():
    bias = jax.ShapeDtypeStruct((128,), jnp.float32)
    plan = autoshard.plan(layer, X, w=W, bias=bias, **ASKED)
    x, w, b = ones(X), ones(W), ones(bias)
    np.testing.assert_allclose(plan.jit()(x, bias=b, w=w), layer(x, w, bias=b), rtol=1e-6)
    np.testing.assert_allclose(plan.jit()(*plan.place(x, w, bias=b)), layer(x, w, bias=b), rtol=1e-6)
    assert plan.attach(layer, X, w=W, bias=bias).verify(layer, X, W, bias=bias, **ASKED).ok


def test_a_misspelt_option_is_told_and_not_passed_on():
    with pytest.raises(InputError, match=r"no argument 'memory_limits'.*did you mean 'memory_limit'"):
        autoshard.plan(layer, X, W, memory_limits=3, **ASKED)


def test_an_option_with_the_name_of_an_argument_is_told():
    """`seed=3` is the seed of the search, whatever the function does with its own."""

    def noisy(x, seed=1.0, mesh=None):
        return x * seed if mesh is None else x

    plan = autoshard.plan(noisy, X, seed=3, **ASKED)
    assert plan.program.input_names == ("x",)
    assert plan.notes[0].startswith("seed=3 is the option of planning; the argument of that name of the function keeps")
    assert autoshard.plan(noisy, X, 2.0, seed=3, **ASKED).notes == ()
    assert autoshard.plan(noisy, X, **ASKED).notes == ()
    with pytest.raises(
        InputError, match="argument mesh of the function has the name of an option of planning; give it by"
    ):
        autoshard.plan(lambda x, mesh: x * mesh, X, **ASKED)
    with pytest.raises(InputError, match=r"argument carry .* bind it with functools\.partial"):
        autoshard.plan(lambda x, *, carry: x * carry, X, carry={"out": "x"}, **ASKED)


def test_arguments_that_do_not_fit_the_function_are_told():
    with pytest.raises(InputError, match="cannot be called with these arguments: multiple values for argument 'x'"):
        autoshard.plan(layer, X, W, x=X, **ASKED)


# -- static arguments ------------------------------------------------------------------------------------------


def power(x, n, mode="plain"):
    return sum((x**k for k in range(n)), x if mode == "plain" else -x)


@pytest.mark.parametrize("options", [{"static_argnums": (1, 2)}, {"static_argnames": ("n", "mode")}])
def test_static_arguments_are_part_of_the_function(options):
    plan = autoshard.plan(power, X, 3, "minus", **ASKED, **options)
    assert plan.program.input_names == ("x",)
    np.testing.assert_allclose(plan.jit()(ones(X), 3, "minus"), power(ones(X), 3, "minus"))
    np.testing.assert_allclose(plan.jit()(ones(X), n=3, mode="minus"), power(ones(X), 3, "minus"))


def test_another_value_of_a_static_argument_is_refused():
    run = autoshard.plan(power, X, 3, static_argnums=1, **ASKED).jit()
    with pytest.raises(InputError, match="n is static: the function was planned with 3, called with 4"):
        run(ones(X), 4)


def test_unknown_static_arguments_are_told():
    with pytest.raises(InputError, match="static_argnames names 'modes'; the arguments are x, n"):
        autoshard.plan(power, X, 3, static_argnames="modes", **ASKED)
    with pytest.raises(InputError, match="static_argnums names argument 5, but there are 2: x, n"):
        autoshard.plan(power, X, 3, static_argnums=5, **ASKED)


def test_what_a_jit_was_told_counts():
    @functools.partial(jax.jit, static_argnums=1, static_argnames="mode", donate_argnames="x")
    def jitted(x, n, *, mode):
        return power(x, n, mode)

    traced = trace(jitted, X, 3, keywords={"mode": "minus"})
    assert traced.program.input_names == ("x",) and traced.program.donated == {0}
    assert trace(jitted, X, 3, donate_argnums=(), keywords={"mode": "minus"}).program.donated == frozenset()


@pytest.mark.smoke
def test_donation_of_a_jit_ties_the_state_to_its_next_value():
    step = jax.jit(lambda w, x: (w - 0.1 * jnp.outer(x.sum(0), x.sum(0)), x.sum()), donate_argnums=0)
    plan = autoshard.plan(step, jax.ShapeDtypeStruct((256, 256), jnp.float32), X, **ASKED)
    assert plan.lowered.donate_argnums == (0,) and plan["out/0"] == plan["w"]


class Trainer:
    @functools.partial(jax.jit, static_argnums=(0, 3), donate_argnums=1)
    def step(self, state, x, n):
        return state + n * x.sum(), x.sum()

    @functools.partial(jax.jit, static_argnums=(-4, -1), donate_argnums=-3)
    def counted_from_the_end(self, state, x, n):
        return state + n * x.sum(), x.sum()


@pytest.mark.parametrize("method", [Trainer().step, Trainer().counted_from_the_end])
def test_positions_that_a_jit_around_a_method_was_told_count_self(method):
    program = trace(method, X, X, 3).program
    assert program.input_names == ("state", "x") and program.donated == {0}


# -- leaves that are no arrays ---------------------------------------------------------------------------------


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["weight", "activation", "name", "extra"], meta_fields=[]
)
@dataclass
class Dense:
    """A module whose every field is a leaf, as those of equinox are."""

    weight: Any
    activation: Any = jax.nn.relu
    name: str = "dense"
    extra: list = field(default_factory=lambda: [None, np.tanh])

    def __call__(self, x):
        return self.activation(x @ self.weight)


SQUARE = jax.ShapeDtypeStruct((256, 256), jnp.float32)


def train(model, x):
    def loss(weight):
        return jnp.square(Dense(weight, model.activation)(x)).mean()

    value, grad = jax.value_and_grad(loss)(model.weight)
    return Dense(model.weight - 0.1 * grad, model.activation, model.name, model.extra), value


def test_modules_with_functions_and_text_as_leaves_are_planned_and_run_in_a_loop():
    plan = autoshard.plan(train, Dense(SQUARE), X, **ASKED)
    assert plan.program.input_names == ("model/weight", "x") and plan["out/0/weight"] == plan["model/weight"]
    model, x = plan.place(Dense(ones(SQUARE) / 100), ones(X))
    assert model.activation is jax.nn.relu and model.name == "dense"
    run, wanted = plan.jit(), Dense(ones(SQUARE) / 100)
    for _ in range(2):
        model, loss = run(model, x)
        wanted, expected = train(wanted, ones(X))
    assert model.activation is jax.nn.relu and model.extra == [None, np.tanh] and isinstance(model, Dense)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(model.weight, wanted.weight, rtol=1e-5, atol=1e-7)


def test_plans_of_modules_verify_and_lower_to_every_target():
    plan = autoshard.plan(train, Dense(SQUARE), X, **ASKED)
    assert plan.verify(train, Dense(SQUARE), X, **ASKED).ok
    assert np.isfinite(jax.jit(lambda w, x: plan.lowered.fn(Dense(w), x)[1])(ones(SQUARE), ones(X)))
    for target in ("explicit", "constraints", "shardings"):
        _, loss = plan.lower(target).jit()(Dense(ones(SQUARE)), ones(X))
        assert np.isfinite(loss)
    assert plan.jit().lower(Dense(SQUARE), X).compile()(Dense(ones(SQUARE)), ones(X))[0].name == "dense"


def test_another_static_leaf_is_refused_with_its_path():
    run = autoshard.plan(train, Dense(SQUARE), X, **ASKED).jit()
    with pytest.raises(InputError, match=r"model.name is static: .* planned with 'dense', called with 'x'"):
        run(Dense(ones(SQUARE), name="x"), ones(X))


def test_a_call_with_other_trees_is_refused():
    run = autoshard.plan(train, Dense(SQUARE), X, **ASKED).jit()
    with pytest.raises(InputError, match="argument model has no model/"):
        run({"weight": ones(SQUARE)}, ones(X))
    with pytest.raises(InputError, match="was planned for the arguments model, x, called with 1 by position"):
        run(Dense(ones(SQUARE)))


Module = type("Module", (), {"__module__": "equinox.stand_in"})
"""Equinox's base class, by the only thing that counts: where it comes from."""


@functools.partial(jax.tree_util.register_dataclass, data_fields=["weight", "power"], meta_fields=[])
@dataclass
class Power(Module):
    weight: Any
    power: int


def test_numbers_of_equinox_modules_are_static_and_others_are_weakly_typed_arrays():
    def f(module, n):
        assert isinstance(module.power, int)
        return module.weight**module.power * n

    traced = trace(f, Power(SQUARE, 3), 2.0)
    assert traced.program.input_names == ("module/weight", "n") and traced.in_types[1].weak_type


# -- arguments of configs --------------------------------------------------------------------------------------


def planned_config(folder, args, more=""):
    from autoshard.api.session import plan_config
    from autoshard.config.load import load_config
    from autoshard.config.problem import build_problem

    (folder / "config_calls.py").write_text(
        "def f(x, w, *, bias=None):\n    return x @ w if bias is None else x @ w + bias\n"
    )
    (folder / "config.yaml").write_text(
        f"function: 'config_calls:f'\nargs: {args}\nmesh: {{data: 2, model: 4}}\nhardware: tpu_v5e\n{more}"
    )
    config = load_config(folder / "config.yaml")
    return plan_config(config, build_problem(config))


def test_arguments_of_a_config_go_by_name_whatever_their_order(tmp_path):
    plan = planned_config(
        tmp_path, "{w: 'float32[128, 256]', x: 'float32[64, 128]'}", "donate: [x]\npins: {x: '[{\"data\"}, {}]'}\n"
    )
    assert plan.program.input_names == ("x", "w") and plan["x"] == '[{"data"}, {}]'
    assert plan.program.type_of(plan.program.body.args[0]).shape == (64, 128) and plan.program.donated == {0}


def test_arguments_of_a_config_that_go_by_keyword_only_do(tmp_path):
    plan = planned_config(tmp_path, "{bias: 'float32[256]', w: 'float32[128, 256]', x: 'float32[64, 128]'}")
    assert plan.program.input_names == ("x", "w", "bias")


def test_a_list_of_a_config_goes_by_position(tmp_path):
    assert planned_config(tmp_path, "['float32[64, 128]', 'float32[128, 256]']").program.input_names == ("x", "w")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            "{y: 'float32[64, 128]', w: 'float32[128, 256]'}",
            r"config.yaml:2:11: args: 'y' is no parameter",
        ),
        ("{w: 'float32[128, 256]'}", r"config.yaml:2:7: args: the function also needs 'x'; found w"),
    ],
)
def test_names_that_do_not_fit_are_told_with_their_place(tmp_path, args, message):
    with pytest.raises(InputError, match=message):
        planned_config(tmp_path, args)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("in_shardings", r"constraints=\[autoshard\.Pin\(\"x\""),
        ("out_shardings", r"autoshard\.Pin\(\"out/0\""),
        ("devices", "mesh="),
        ("memory", "memory_limit="),
        ("donate_argnames", r"plan jax\.jit\(f, donate_argnames=\.\.\.\)"),
        ("donate_argnum", "did you mean 'donate_argnums'"),
    ],
)
def test_a_word_of_jax_that_is_no_option_is_refused_with_the_option_that_is_meant(word, meant):
    with pytest.raises(InputError, match=f"no such option; .*{meant}"):
        autoshard.plan(layer, X, W, **{word: 1}, **ASKED)


def scaled(x, **scales):
    return x * scales.get("scale", 1.0)


@pytest.mark.parametrize(
    ("word", "value", "meant"),
    [
        ("memory_limt", "1GiB", "write memory_limit="),
        ("donate_argnum", 0, "write donate_argnums="),
        ("in_shardings", None, "is no option of planning: state a sharding with constraints="),
    ],
)
def test_a_misspelled_option_is_no_argument_of_a_function_that_takes_any_name(word, value, meant):
    with pytest.raises(InputError, match=rf"{word}= .*{meant}.*functools.partial\(f, {word}="):
        autoshard.plan(scaled, X, **{word: value}, **ASKED)


@pytest.mark.parametrize(("word", "value"), [("scale", 2.0), ("seeds", X)])
def test_a_function_that_takes_any_name_gets_names_unlike_options_and_arrays(word, value):
    plan = autoshard.plan(scaled, X, **{word: value}, **ASKED)
    assert plan.program.input_names == ("x", word)


def test_an_argument_named_like_an_option_is_taken_where_the_function_lists_it():
    plan = autoshard.plan(lambda x, rate, memory_limits=1.0, **rest: x * rate, X, 1.0, memory_limits=2.0, **ASKED)
    assert plan.program.input_names == ("x", "rate", "memory_limits")


# -- results that compute nothing ------------------------------------------------------------------------------


def tokens(x):
    for _ in range(3):
        x = x * 2
        yield x


async def served(x):
    return x * 2


@pytest.mark.parametrize(
    ("f", "what"), [(tokens, "generator"), (lambda x: {"all": map(jnp.sin, x)}, "map")], ids=["generator", "map"]
)
def test_a_result_that_computes_nothing_until_it_is_read_is_refused(f, what):
    with pytest.raises(InputError, match=f"the function returns a {what}, .* return arrays.*function of one step"):
        trace(f, X)


@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
def test_a_coroutine_is_refused_as_a_result():
    with pytest.raises(InputError, match="the function returns a coroutine"):
        trace(served, X)


def test_what_is_no_function_is_refused():
    with pytest.raises(InputError, match="what is planned is a function, found 3"):
        autoshard.plan(3, X, **ASKED)


def descend(state: Any, x: Any) -> Any:
    return jax.tree.map(lambda s: s - x.sum() * s, state)


@pytest.mark.parametrize(
    ("options", "donated"), [({}, {0, 1}), ({"donate_argnums": ()}, set()), ({"donate_argnums": 1}, {2})], ids=str
)
def test_what_a_jit_inside_of_a_wrapper_donates_is_donated_unless_the_caller_says_otherwise(
    options: Any, donated: set[int]
) -> None:
    def wrapper(state: Any, x: Any) -> Any:  # as of flax NNX or equinox
        return jax.jit(descend, donate_argnums=0)(state, x)

    state = {"a": jax.ShapeDtypeStruct((4,), jnp.float32), "b": jax.ShapeDtypeStruct((8,), jnp.float32)}
    assert trace(wrapper, state, jax.ShapeDtypeStruct((4,), jnp.float32), **options).program.donated == donated


def test_what_a_jit_donates_that_is_a_part_of_the_program_is_not() -> None:
    f = jax.jit(descend, donate_argnums=0)
    assert not trace(lambda s, x: f(s, x) + 1, *[jax.ShapeDtypeStruct((4,), jnp.float32)] * 2).program.donated
