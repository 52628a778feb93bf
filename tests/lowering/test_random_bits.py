"""Random bits made in parts: bit for bit what one device draws, without communication and at the price of a block."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import f32

import autoshard
from autoshard import Pin
from autoshard.frontends.jax.function import trace
from autoshard.lowering.local.random import positions

ASKED = {"mesh": {"data": 2, "model": 4}, "hardware": "tpu_v5e"}
KEY = jax.eval_shape(lambda: jax.random.key(0))
BOTH, ROWS, COLUMNS = '[{"data"}, {"model"}]', '[{"data", "model"}, {}]', '[{}, {"model", "data"}]'


def same_bits(f, *arguments, pins=(), specs=None):
    """The plan of a function whose planned results equal those of one device in every bit."""
    given = specs or [jax.eval_shape(lambda a=a: a) for a in arguments]
    plan = autoshard.plan(f, *given, constraints=[Pin(*pin) for pin in pins], **ASKED)
    for got, want in zip(jax.tree.leaves(plan.jit()(*arguments)), jax.tree.leaves(jax.jit(f)(*arguments)), strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
    return plan


@pytest.mark.parametrize("sharding", [BOTH, ROWS, COLUMNS])
def test_bits_in_any_cut_are_those_of_one_device(sharding):
    plan = same_bits(lambda k: jax.random.bits(k, (16, 24)), jax.random.key(7), pins=[("out", sharding)])
    assert plan["out"] == sharding and len(plan.collectives) == 0


def test_bits_of_every_width():
    widths = ("uint8", "uint16", "uint32")
    same_bits(
        lambda k: [jax.random.bits(k, (8, 16), dtype) for dtype in widths],
        jax.random.key(1),
        pins=[("out/*", BOTH)],
    )


def test_sixty_four_bits():
    with jax.enable_x64(True):
        same_bits(lambda k: jax.random.bits(k, (8, 16), "uint64"), jax.random.key(1), pins=[("out", BOTH)])


def test_what_is_made_of_bits():
    def draw(k):
        return [
            jax.random.uniform(k, (16, 24)),
            jax.random.truncated_normal(k, -2, 2, (16, 24)),
            jax.random.randint(k, (16, 24), 0, 1000),
            jax.random.bernoulli(k, 0.9, (16, 24)),
            jax.random.bits(jax.random.fold_in(jax.random.split(k)[1], 5), (16, 24)),
        ]

    same_bits(draw, jax.random.key(11), pins=[("out/*", BOTH)])


def test_batches_of_keys_and_drawn_dimensions_are_cut_at_once():
    keys = jax.random.split(jax.random.key(2), 8)
    sharding = '[{"data"}, {"model"}, {}]'
    plan = same_bits(lambda keys: jax.vmap(lambda k: jax.random.bits(k, (12, 5)))(keys), keys, pins=[("out", sharding)])
    assert plan["keys"] == '[{"data"}]'


def test_dropout_in_a_loop_over_layers():
    def layers(ws, x, key):
        def layer(x, given):
            w, k = given
            y = jnp.tanh(x @ w)
            return jnp.where(jax.random.bernoulli(k, 0.9, y.shape), y / 0.9, 0.0), None

        return jax.lax.scan(layer, x, (ws, jax.random.split(key, ws.shape[0])))[0]

    ws, x = np.full((3, 32, 32), 0.01, np.float32), np.ones((64, 32), np.float32)
    plan = autoshard.plan(layers, f32(3, 32, 32), f32(64, 32), KEY, constraints=[Pin("x", ROWS)], **ASKED)
    got, want = (np.asarray(f(ws, x, jax.random.key(0))) for f in (plan.jit(), jax.jit(layers)))
    np.testing.assert_array_equal(got == 0, want == 0)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_a_sharded_initialisation_never_holds_the_whole_array():
    plan = autoshard.plan(lambda k: jax.random.normal(k, (4096, 4096)), KEY, constraints=[Pin("out", BOTH)], **ASKED)
    whole = 4096 * 4096 * 4
    assert plan.memory.peak_bytes <= 2.5 * whole / 8


def test_dropout_costs_what_it_takes_on_the_block():
    """Two passes over the block and its hashes, and not the bits of the whole array on every device."""

    def layer(x, w, key):
        y = jnp.tanh(x @ w)
        return y if key is None else y * jax.random.bernoulli(key, 0.9, y.shape)

    specs, pins = (f32(8192, 1024), f32(1024, 1024)), [Pin("x", ROWS)]
    dry = autoshard.plan(lambda x, w: layer(x, w, None), *specs, constraints=pins, **ASKED)
    wet = autoshard.plan(layer, *specs, KEY, constraints=pins, **ASKED)
    block = 8192 * 1024 / 8
    assert wet.memory.peak_bytes <= dry.memory.peak_bytes + 2 * 4 * block
    (bits,) = [op for op, _ in wet.program.walk() if op.kind == "random_bits"]
    whole = autoshard.plan(
        lambda k: jax.random.bits(k, (8192, 1024)), KEY, constraints=[Pin("out", "[{}, {}]")], **ASKED
    )
    assert wet.cost.op_seconds[bits.id] == pytest.approx(whole.cost.compute_s / 8, rel=0.05)


# -- positions in the whole array ------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.data())
def test_positions_are_counted_in_64_bits(data):
    whole = data.draw(
        st.lists(st.integers(1, 2**31 - 1) | st.sampled_from([1, 2, 2**16, 2**20]), min_size=1, max_size=3)
    )
    starts = [data.draw(st.integers(0, n - 1)) for n in whole]
    block = [min(2, n - s) for n, s in zip(whole, starts, strict=True)]
    high, low = positions(whole, block, [np.uint32(s) for s in starts])
    for index in np.ndindex(*block):
        flat = 0
        for n, s, i in zip(whole, starts, index, strict=True):
            flat = flat * n + s + i
        assert (int(high[index]) << 32) + int(low[index]) == flat % 2**64


# -- generators whose bits are made whole ----------------------------------------------------------------------


def test_other_generators_are_whole_and_say_what_they_need():
    key = jax.eval_shape(lambda: jax.random.key(0, impl="rbg"))
    plan = autoshard.plan(lambda k: jax.random.bits(k, (16, 24)), key, constraints=[Pin("out", BOTH)], **ASKED)
    (note,) = [n for n in plan.notes if n.startswith("random bits")]
    assert "rbg keys are made whole on every device" in note and 'impl="threefry2x32"' in note
    (bits,) = [op for op, _ in plan.program.walk() if op.kind == "random_bits"]
    assert bits.rule is not None and len(bits.rule.need_replication) == 2


def test_threefry_that_is_not_partitionable_is_whole_and_says_so():
    with jax.threefry_partitionable(False):
        program = trace(lambda k: jax.random.bits(k, (16, 24)), KEY).program
    assert "jax_threefry_partitionable" in program.warnings[0]
    (bits,) = program.body.ops
    assert str(bits.rule) == "([])->([i, j]) {i=16, j=24} need_replication={i, j}"


def test_bits_planned_in_parts_are_not_lowered_where_jax_would_draw_others():
    plan = autoshard.plan(lambda k: jax.random.bits(k, (16, 24)), KEY, constraints=[Pin("out", BOTH)], **ASKED)
    with (
        jax.threefry_partitionable(False),
        pytest.raises(autoshard.UnsupportedError, match="jax_threefry_partitionable is off now"),
    ):
        _ = plan.lowered


def test_the_checker_refuses_parts_of_bits_that_are_made_whole():
    from autoshard.verify import check_plan

    key = jax.eval_shape(lambda: jax.random.key(0, impl="rbg"))
    data = autoshard.plan(lambda k: jax.random.bits(k, (16, 24)), key, **ASKED).to_dict()
    data["program"]["body"]["ops"][0]["rule"]["text"] = "([])->([i, j]) {i=16, j=24}"
    assert any("bits of these keys are made whole" in str(finding) for finding in check_plan(data).findings)
