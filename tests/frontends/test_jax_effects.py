"""Debug output can be left out, everything else that is no plain computation is refused with what to write."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify, io_callback

import autoshard
from autoshard import InputError, UnsupportedError
from autoshard.frontends.jax.function import trace

X = jax.ShapeDtypeStruct((64, 256), jnp.float32)
ASKED = {"mesh": {"data": 2, "model": 4}, "hardware": "tpu_v5e"}


def chatty(x):
    jax.debug.print("sum {}", x.sum())
    jax.debug.callback(lambda a: None, x)
    return jnp.tanh(x)


def test_dropped_output_leaves_nothing_behind_and_is_told_with_its_lines():
    program = trace(chatty, X, effects="drop").program
    assert [op.kind for op in program.body.ops] == ["tanh"]
    told = [w.partition(" (")[0] for w in program.warnings]
    first = chatty.__code__.co_firstlineno
    assert told == [
        f"effects='drop': left out of the program: jax.debug.print at test_jax_effects.py:{first + 1}",
        f"effects='drop': left out of the program: jax.debug.callback at test_jax_effects.py:{first + 2}",
    ]


def test_output_inside_of_loops_and_branches_is_dropped_too():
    def f(x):
        def body(c, _):
            jax.debug.print("{}", c.sum())
            return jax.lax.cond(c[0, 0] > 0, lambda c: (jax.debug.print("{}", c[0]), c)[1], lambda c: -c, c), None

        return jax.lax.scan(body, x, None, length=3)[0]

    program = trace(f, X, effects="drop").program
    assert not [op for op, _ in program.walk() if op.kind.startswith("debug")] and len(program.warnings) == 2


def test_a_plan_without_its_output_attaches_and_verifies(tmp_path):
    plan = autoshard.plan(chatty, X, effects="drop", **ASKED)
    plan.save(tmp_path / "plan.json")
    loaded = autoshard.Plan.load(tmp_path / "plan.json").attach(chatty, X)
    x = np.ones(X.shape, np.float32)
    np.testing.assert_array_equal(loaded.jit()(x), jnp.tanh(x))
    assert loaded.verify(chatty, X, **ASKED).ok


def test_debug_output_is_refused_by_default_with_the_way_out():
    with pytest.raises(UnsupportedError, match=r"jax.debug.print .*; plan with effects='drop'"):
        autoshard.plan(chatty, X, **ASKED)


def with_reference(x):
    ref = jax.new_ref(x)
    ref[...] = x + 1
    return ref[...]


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda x: jax.pure_callback(np.sin, x, x), r"pure_callback at test_jax_effects.py:\d+.*; write it in JAX"),
        (lambda x: io_callback(np.sin, x, x), r"io_callback at test_jax_effects.py:\d+.*; give back what it needs"),
        (
            with_reference,
            r"the mutable reference \(new_ref\) at test_jax_effects.py:\d+.*; take the value as an argument",
        ),
    ],
)
def test_other_effects_are_refused_whatever_is_dropped(f, message):
    with pytest.raises(UnsupportedError, match=message):
        trace(f, X, effects="drop")


def test_checks_are_refused_and_planned_once_they_are_functional():
    def f(x):
        checkify.check(jnp.all(x > 0), "not positive")
        return jnp.sqrt(x)

    with pytest.raises(UnsupportedError, match=r"check at test_jax_effects.py:\d+.*plan checkify.checkify"):
        trace(f, X)


def test_errors_of_equinox_are_told_by_their_name():
    raises = functools.partial(np.sin)
    raises.__module__ = "equinox._errors"
    with pytest.raises(UnsupportedError, match=r"equinox.error_if \(pure_callback\) .*EQX_ON_ERROR=nan"):
        trace(lambda x: jax.pure_callback(raises, x, x), X)


def test_another_word_is_refused():
    with pytest.raises(InputError, match="effects is 'keep'; give 'refuse', or 'drop'"):
        autoshard.plan(chatty, X, effects="keep", **ASKED)


def test_a_config_drops_them(tmp_path):
    from autoshard.api.session import plan_config
    from autoshard.config.load import load_config
    from autoshard.config.problem import build_problem

    (tmp_path / "config_effects.py").write_text(
        "import jax\n\ndef f(x):\n    jax.debug.print('{}', x.sum())\n    return x * 2\n"
    )
    (tmp_path / "config.yaml").write_text(
        "function: 'config_effects:f'\nargs: {x: 'float32[64, 256]'}\nmesh: {data: 8}\nhardware: tpu_v5e\n"
        "effects: drop\n"
    )
    config = load_config(tmp_path / "config.yaml")
    assert plan_config(config, build_problem(config)).notes[0].startswith("effects='drop'")


def test_a_mutable_reference_as_an_argument_is_refused_by_its_path():
    state = {"w": jax.new_ref(jnp.ones((8, 8)))}
    with pytest.raises(UnsupportedError, match=r"state\['w'\] is a mutable reference.*take the value"):
        trace(lambda state: state["w"][...] + 1, state)
