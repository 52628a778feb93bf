"""Ops that compute the same are read once, as XLA computes them once."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name

import autoshard
from autoshard import Pin
from autoshard.frontends.jax.function import trace

X, W = jax.ShapeDtypeStruct((16, 8), jnp.float32), jax.ShapeDtypeStruct((8, 8), jnp.float32)


def kinds(f, *specs):
    return [op.kind for op in trace(f, *specs).program.body.ops]


def test_an_op_on_the_same_operands_is_read_once_and_so_is_what_follows_from_it():
    assert kinds(lambda x: jnp.sin(x.sum(0)) * jnp.sin(x.sum(0)), X) == ["reduce_sum", "sin", "mul"]


def test_numbers_that_are_spread_count_as_the_same_where_they_are_read():
    def twice(x):
        return (x - x.max(0)) * (x - x.max(0))

    assert kinds(twice, X) == ["reduce_max", "broadcast_in_dim", "sub", "mul"]


def test_other_parameters_make_another_op():
    assert kinds(lambda x: x.sum(0) * x.sum(1)[:8], X).count("reduce_sum") == 2
    assert kinds(lambda x: (lax.slice_in_dim(x, 0, 4), lax.slice_in_dim(x, 4, 8)), X) == ["slice", "slice"]


def test_an_order_of_operands_makes_another_op():
    assert kinds(lambda x, w: (x @ w - x) * (x - x @ w), X, W).count("sub") == 2


def test_results_of_the_program_are_kept_apart_as_each_may_be_pinned():
    assert kinds(lambda x: {"a": jnp.sin(x), "b": jnp.sin(x), "c": jnp.sin(x) * 2}, X) == ["sin", "sin", "mul"]


def test_values_with_other_tags_are_kept_apart_as_each_may_be_pinned():
    def tagged(x):
        return checkpoint_name(jnp.sin(x), "one") * checkpoint_name(jnp.sin(x), "other") + jnp.sin(x)

    assert kinds(tagged, X).count("sin") == 3


def test_what_no_argument_goes_into_is_made_for_each_of_its_uses():
    def positions(x):
        return (x + jnp.cos(lax.iota(np.float32, 8))) * jnp.cos(lax.iota(np.float32, 8))

    assert kinds(positions, X).count("cos") == 2


def test_a_recomputation_that_jax_keeps_apart_stays():
    layer = jax.checkpoint(lambda x, w: jnp.tanh(jnp.tanh(x @ w) @ w))
    ops = kinds(jax.value_and_grad(lambda w, x: layer(x, w).sum()), W, X)
    plain = kinds(jax.value_and_grad(lambda w, x: jnp.tanh(jnp.tanh(x @ w) @ w).sum()), W, X)
    assert ops.count("dot_general") == plain.count("dot_general") + 2


def test_bodies_of_loops_are_read_in_the_same_way():
    def body(carry, _):
        return carry + jnp.sin(carry.sum(0)) * jnp.sin(carry.sum(0)), None

    program = trace(lambda x: lax.scan(body, x, None, length=3)[0], X).program
    (loop,) = [op for op in program.body.ops if op.kind == "scan"]
    assert [op.kind for op in loop.regions[0].ops].count("reduce_sum") == 1


def test_random_bits_of_one_key_are_one_value_and_of_two_keys_two():
    key = jax.eval_shape(lambda: jax.random.key(0))
    assert kinds(lambda k: jax.random.bits(k, (8,)) - jax.random.bits(k, (8,)), key).count("random_bits") == 1
    two = kinds(lambda k: jax.random.bits(k, (8,)) - jax.random.bits(jax.random.fold_in(k, 1), (8,)), key)
    assert two.count("random_bits") == 2


def test_a_loss_and_a_measure_that_both_compute_the_logits_have_the_collectives_that_xla_runs():
    """The product is summed over `model` once, however often the source asks for it."""

    def step(x, w):
        loss = jnp.square(x @ w).mean()
        return loss, jnp.abs(x @ w).max()

    x, w = jnp.ones((64, 32)), jnp.ones((32, 16))
    pins = [Pin("x", '[{}, {"model"}]'), Pin("w", '[{"model"}, {}]')]
    asked = {"mesh": {"model": 4}, "hardware": "cpu_sim", "constraints": pins}
    plan = autoshard.plan(step, x, w, **asked)
    report = plan.verify(step, x, w, **asked)
    assert report.ok, report
    assert [op.kind for op in trace(step, x, w).program.body.ops].count("dot_general") == 1
    found = plan.collectives
    assert list(zip(found["kind"], found["times"], strict=True)) == [("all_reduce", 1)]
