"""Running softmax in parts: which forms are recognised, and that they compute the same."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_independent_loops import both, parts_of

from autoshard.frontends.jax.independent import slots_of

B, H, Q, K, D, BLOCK = 2, 3, 4, 24, 5, 4
RNG = np.random.default_rng(0)
QUERY = 3 * RNG.standard_normal((B, Q, H, D), np.float32)
KEY, VALUE = (RNG.standard_normal((B, K, H, D), np.float32) for _ in range(2))
NONE, CAUSAL = np.ones((Q, K), bool), np.arange(Q)[:, None] * 6 >= np.arange(K)
SINK = (np.arange(K) == 0) | (np.arange(K) > 13) | (np.arange(Q)[:, None] == 2)  # whole parts are hidden from most rows


def attention(
    q: Any, k: Any, v: Any, mask: Any, *, hidden: float = -jnp.inf, start: float = -jnp.inf, exp: Any = jnp.exp,
    keep: bool = False, last: bool = False, reverse: bool = False, dtype: Any = np.float32,
) -> Any:  # fmt: skip
    """Attention over blocks of keys. keep: with dimensions of size 1. last: heads and queries of the output swapped."""

    def blocks(x: Any, dim: int) -> Any:
        return jnp.moveaxis(x.reshape(*x.shape[:dim], K // BLOCK, BLOCK, *x.shape[dim + 1 :]), dim, 0)

    def body(carry: Any, block: Any) -> Any:
        m, total, out = carry
        k, v, mask = block
        s = jnp.where(mask, jnp.einsum("bqhd,bkhd->bhqk", q, k), hidden)
        new = jnp.maximum(m, s.max(-1, keepdims=keep))
        wide = (lambda x: x) if keep else (lambda x: x[..., None])
        p, decay = exp(s - wide(new)), exp(m - new)
        total = total * decay + p.sum(-1, keepdims=keep)
        if last:
            rows = jnp.swapaxes(wide(decay), 1, 2).astype(dtype)
            out = out * rows + jnp.einsum("bhqk,bkhd->bqhd", p, v).astype(dtype)
        else:
            out = wide(decay).astype(dtype) * out + jnp.einsum("bhqk,bkhd->bhqd", p, v).astype(dtype)
        return (new, total, out), None

    row = (B, H, Q, 1) if keep else (B, H, Q)
    shape = (B, Q, H, D) if last else (B, H, Q, D)
    init = jnp.full(row, start), jnp.zeros(row), jnp.zeros(shape, dtype)
    (m, total, out), _ = jax.lax.scan(body, init, (blocks(k, 1), blocks(v, 1), blocks(mask, 1)), reverse=reverse)
    wide = total if keep else total[..., None]
    return m, total, out / (jnp.swapaxes(wide, 1, 2) if last else wide).astype(dtype)


FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "backwards": {"reverse": True},
    "powers of two": {"exp": jnp.exp2},
    "rows with a dimension of size 1": {"keep": True},
    "output with queries before heads": {"last": True},
    "a number as minus infinity": {"hidden": -1e30, "start": -1e30},
    "the lowest number": {"hidden": float(np.finfo(np.float32).min)},
    "output in bfloat16": {"dtype": jnp.bfloat16},
}


@pytest.mark.parametrize("form", sorted(FORMS))
def test_a_running_softmax_runs_in_parts(form: str) -> None:
    def f(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return attention(q, k, v, mask, **FORMS[form])

    mask = NONE if form == "backwards" else CAUSAL
    assert parts_of(f, QUERY, KEY, VALUE, mask, asked=3) == ((6, 3),)
    tolerance = 3e-2 if "bfloat16" in form else 2e-6
    for ours, theirs in both(f, (QUERY, KEY, VALUE, mask), 3):
        ours, theirs = ours.astype(np.float32), theirs.astype(np.float32)
        assert np.isfinite(theirs).all()
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def test_parts_in_which_all_is_hidden_add_nothing() -> None:
    """As it stands the first block is seen by all; a part that begins with hidden blocks must not become NaN."""
    for ours, theirs in both(attention, (QUERY, KEY, VALUE, np.ascontiguousarray(SINK)), 6):
        assert np.isfinite(theirs).all()
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=2e-6)


def test_what_a_softmax_begins_with_counts_once() -> None:
    def f(q: Any, k: Any, v: Any, m: Any, total: Any) -> Any:
        def body(carry: Any, block: Any) -> Any:
            m, total = carry
            s = jnp.einsum("qd,kd->qk", q, block)
            new = jnp.maximum(m, s.max(-1))
            return (new, total * jnp.exp(m - new) + jnp.exp(s - new[:, None]).sum(-1)), None

        return jax.lax.scan(body, (m, total), k)[0]

    args = QUERY[0, :, 0], KEY[0].reshape(8, 9, D), VALUE, np.full(Q, 1.5, np.float32), np.arange(4.0, dtype=np.float32)
    for ours, theirs in both(f, args, 4):
        np.testing.assert_allclose(ours, theirs, rtol=2e-6)


def _body(change: str) -> Any:
    """One step of a softmax over rows (Q, ...) with something that is not as it should be."""

    def body(carry: Any, s: Any) -> Any:
        m, other, total = carry
        new = jnp.maximum(m, s.max(-1))
        later = jnp.maximum(new, s.min(-1) + 1)
        p, decay = jnp.exp(s - new[:, None]), jnp.exp(m - new)
        added = p.sum(-1)
        if change == "weights below the old peak":
            added = jnp.exp(s - m[:, None]).sum(-1)
        if change == "weights squared":
            added = jnp.square(p).sum(-1)
        if change == "weights over their sum":
            added = (p / p.sum(-1, keepdims=True)).sum(-1)
        if change == "weights and one":
            added = added + 1.0
        if change == "no decay":
            decay = jnp.ones_like(decay)
        if change == "decay twice":
            decay = decay * decay
        if change == "decay of the sum":
            return (new, other, (total + added) * decay), None
        if change == "decay upside down":
            decay = jnp.exp(new - m)
        if change == "decay of another row":
            decay = decay[::-1]
        if change == "decay in another base":
            decay = jnp.exp2(m - new)
        if change == "a peak that is not the last":
            return (later, other, total * decay + added), None
        if change == "a peak that is read":
            return (new, other + new, total * decay + added), None
        if change == "weights of another row":
            added = jnp.exp(s - new[None, :]).sum(0)
        if change == "a total that is returned":
            return (new, other, total * decay + added), total
        return (new, other, total * decay + added), None

    return body


WRONG = [
    "weights below the old peak", "weights squared", "weights over their sum", "weights and one", "no decay",
    "decay twice", "decay of the sum", "decay upside down", "decay of another row", "decay in another base",
    "a peak that is not the last", "a peak that is read", "a total that is returned",
]  # fmt: skip


@pytest.mark.parametrize("change", ["nothing", "weights of another row", *WRONG])
def test_what_is_not_of_the_form_stays_as_it_stands(change: str) -> None:
    def f(s: Any) -> Any:
        start = np.full(Q, -1e30, np.float32), np.zeros(Q, np.float32), np.zeros(Q, np.float32)
        return jax.lax.scan(_body(change), start, s)

    s = RNG.standard_normal((8, Q, Q), np.float32)
    assert parts_of(f, s) == (((8, 4),) if change in ("nothing", "weights of another row") else ())
    if change in ("nothing", "weights of another row"):
        for ours, theirs in both(f, (s,), 4):
            np.testing.assert_allclose(ours, theirs, rtol=2e-6)


def test_its_carries_are_a_maximum_and_totals_that_are_rescaled() -> None:
    (eqn,) = [e for e in jax.make_jaxpr(attention)(QUERY, KEY, VALUE, NONE).eqns if e.primitive.name == "scan"]
    slots = slots_of(eqn)
    assert slots is not None
    assert [s.kind for s in slots] == ["total", "rescaled", "rescaled"]
    assert slots[0].combiner == "max" and [s.peak for s in slots[1:]] == [0, 0]
