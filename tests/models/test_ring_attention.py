"""Attention in parts of the sequence, which keys and values go round."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autoshard
from autoshard import Pin
from autoshard.models.layers import attention
from autoshard.models.ring import ring_attention
from autoshard.models.zigzag import zigzag_attention, zigzag_order
from autoshard.verify import Runnable, verify_plan
from autoshard.verify.derived import ASKED

PARTS = 8
ROWS = '[{}, {"context"}, {}, {}]'
ROUND = '[{"context"}, {}, {}, {}, {}]'


def arrays(seq: int, heads: int, kv_heads: int, head_dim: int = 16) -> list[jax.Array]:
    rng = np.random.default_rng(3)
    return [jnp.asarray(rng.normal(size=(2, seq, n, head_dim)), jnp.float32) for n in (heads, kv_heads, kv_heads)]


def gradients(function, *qkv):
    return jax.value_and_grad(lambda *qkv: jnp.square(function(*qkv)).sum(), argnums=(0, 1, 2))(*qkv)


@pytest.mark.parametrize("window", [pytest.param(None, marks=pytest.mark.slow), 20, 1])
def test_results_and_gradients_are_those_of_attention(window):
    qkv = arrays(64, 4, 2)
    whole = gradients(lambda *qkv: attention(*qkv, window=window), *qkv)
    ring = gradients(lambda *qkv: ring_attention(*qkv, PARTS, window), *qkv)
    for ours, theirs in zip(jax.tree.leaves(ring), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("parts", "window"), [pytest.param(2, None, marks=pytest.mark.slow), (PARTS, 20)])
def test_in_zigzag_order_results_and_gradients_are_those_of_attention(parts, window):
    qkv = arrays(64, 4, 2)
    order = zigzag_order(64, parts)
    whole = gradients(lambda *qkv: attention(*qkv, window=window), *qkv)[1]
    ring = gradients(lambda *qkv: zigzag_attention(*qkv, parts, window), *(x[:, order] for x in qkv))[1]
    for ours, theirs in zip(ring, whole, strict=True):
        np.testing.assert_allclose(ours, theirs[:, order], rtol=1e-4, atol=1e-4)


def step(q, k, v):
    return jax.value_and_grad(lambda *qkv: jnp.square(ring_attention(*qkv, PARTS)).mean(), argnums=(0, 1, 2))(q, k, v)


def test_parts_that_are_cut_are_handed_on_by_permutes_and_the_values_are_those_of_one_device():
    qkv = arrays(64, 4, 2)
    pins = [*(Pin(name, ROWS) for name in ("q", "k", "v", "out/1/*")), Pin("@ring_*", ROUND)]
    plan = autoshard.plan(step, *qkv, mesh={"context": PARTS}, hardware="tpu_v5e", constraints=pins)
    sent = plan.collectives.query("kind == 'permute'")
    assert sent["times"].sum() == PARTS * (2 + 4)
    found = verify_plan(json.loads(json.dumps(plan.to_dict())), Runnable(plan.traced, step, lambda: qkv))
    assert [c.name for c in found.checks if c.status.value != "ok"] == [ASKED], str(found)


def test_where_memory_is_short_keys_and_values_are_not_gathered():
    specs = [jax.ShapeDtypeStruct((1, 16384, 1, 128), jnp.bfloat16)] * 3
    pins = [Pin(name, ROWS) for name in ("q", "k", "v")]

    def plan(limit):
        return autoshard.plan(
            lambda q, k, v: jnp.square(ring_attention(q, k, v, PARTS)).mean(), *specs, mesh={"context": PARTS},
            hardware="tpu_v5e", argnames=["q", "k", "v"], constraints=pins, memory_limit=limit,
        )  # fmt: skip

    free = plan("none")
    assert "all_gather" in set(free.collectives["kind"])
    within = plan(int(0.75 * free.memory.peak_bytes))
    assert within.status == "optimal"
    assert "all_gather" not in set(within.collectives["kind"])
    assert within.collectives["times"].max() == PARTS  # in every round


def in_zigzag(q, k, v):
    def loss(*qkv):
        return jnp.square(zigzag_attention(*qkv, PARTS)).mean()

    return jax.value_and_grad(loss, argnums=(0, 1, 2))(q, k, v)


def test_in_zigzag_order_a_device_does_half_of_the_work_and_hands_on_as_much():
    qkv = arrays(64, 4, 2)
    pins = [Pin(name, ROWS) for name in ("q", "k", "v", "out/1/*")]

    def plan(function, rounds):
        return autoshard.plan(
            function, *qkv, mesh={"context": PARTS}, hardware="tpu_v5e", constraints=[*pins, Pin("@ring_*", rounds)]
        )

    given, zigzag = plan(step, ROUND), plan(in_zigzag, '[{"context"}, {}, {}, {}, {}, {}]')
    flop = [p.step_time.matmul_flop_per_device for p in (given, zigzag)]
    np.testing.assert_allclose(flop[1] / flop[0], (2 * PARTS + 1) / (4 * PARTS), rtol=0.03)
    sent = zigzag.collectives.query("kind == 'permute'")
    assert sent["times"].sum() == (PARTS - 1) * (2 + 4) + 2
    found = verify_plan(json.loads(json.dumps(zigzag.to_dict())), Runnable(zigzag.traced, in_zigzag, lambda: qkv))
    assert [c.name for c in found.checks if c.status.value != "ok"] == [ASKED], str(found)
