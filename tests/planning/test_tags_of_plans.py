"""A plan answers for values by tag: ``plan["@tag"]``."""

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name

import autoshard
from autoshard.errors import InputError

X = jax.ShapeDtypeStruct((8, 64), jnp.float32)


def planned(f, *pins):
    return autoshard.plan(f, X, mesh={"data": 2}, hardware="tpu_v5e", constraints=[autoshard.Pin(*pin) for pin in pins])


def test_a_tag_is_answered_with_the_sharding_of_its_value():
    plan = planned(lambda x: jnp.tanh(checkpoint_name(x * 2, "twice")), ("@twice", '[{}, {"data"}]'))
    assert plan["@twice"] == '[{}, {"data"}]'


def test_of_a_value_in_a_loop_it_is_that_of_one_turn():
    def f(x):
        return jax.lax.scan(lambda c, row: (c, checkpoint_name(jnp.sin(row), "row")), 0.0, x)[1]

    assert planned(f, ("@row", '[{"data"}]'))["@row"] == '[{"data"}]'


def test_one_tag_on_values_that_are_sharded_differently_names_them():
    def f(x):
        first, second = checkpoint_name(jnp.sin(x), "a"), checkpoint_name(jnp.cos(x), "b")
        return checkpoint_name(first, "both"), checkpoint_name(second, "both")

    plan = planned(f, ("@a", '[{"data"}, {}]'), ("@b", '[{}, {"data"}]'))
    with pytest.raises(InputError, match="the tag '@both' is on 2 values that are sharded in different ways: "):
        plan["@both"]


def test_an_unknown_tag_is_told_with_near_ones():
    with pytest.raises(InputError, match="no value '@twic'; did you mean @twice"):
        planned(lambda x: checkpoint_name(x * 2, "twice"))["@twic"]
