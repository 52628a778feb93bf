"""The programs: what donation saves, what loops hand on, caches in loops, and steps as users write them.

Each is a function, its abstract arguments, and the positions of those that are donated. Sizes are such that an array
takes 64 MiB or more on each of four devices: smaller ones lie on the chip.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

BF, F32 = jnp.bfloat16, jnp.float32
Case = tuple[Callable[..., Any], tuple[Any, ...], tuple[int, ...]]


def of(*shape: int, dtype: Any = F32) -> jax.ShapeDtypeStruct:
    """An abstract array."""
    return jax.ShapeDtypeStruct(shape, dtype)


BIG = of(16384, 16384)
WEIGHT = of(8192, 8192)


def fourth_power(x: Any) -> Any:
    """Two matmuls."""
    square = x @ x
    return square @ square


def sorted_twice(x: Any) -> Any:
    """Two arrays beside what they are made of."""
    for _ in range(2):
        x = jnp.sort(x, 1)[:, ::-1] + 0.5 * x
    return x


def donation() -> dict[str, Case]:
    """Arrays that are donated, with and without an output of their size."""
    return {
        "no_output": (lambda x: fourth_power(x).max(), (BIG,), (0,)),
        "output_of_its_type": (fourth_power, (BIG,), (0,)),
        "sorted_twice": (lambda x: sorted_twice(x)[:, :4].sum(), (BIG,), ()),
        "transposed": (lambda x: x.T + 1.0, (BIG,), (0,)),
        "read_after_its_next_value": (lambda a, x: (a + 1.0, (a @ x).sum()), (WEIGHT, WEIGHT), (0,)),
        "over_a_factor": (lambda a, x: a @ x, (of(16384, 8192), WEIGHT), (0,)),
        "ring_buffer": (lambda h, x: jnp.concatenate([h[1:], x[None]]), (of(64, 1024, 4096), of(1024, 4096)), (0,)),
    }


def swapped(a: Any, b: Any) -> Any:
    return b * 1.01, a + 1.0


def leapfrog(a: Any, b: Any) -> Any:
    return b, 2.0 * b - 0.999 * a


def wave(a: Any, b: Any) -> Any:
    return b, 2.0 * b - a + 0.1 * (jnp.roll(b, 1, 0) + jnp.roll(b, -1, 0) - 2.0 * b)


def staggered(e: Any, h: Any) -> Any:
    e = e + 0.1 * (jnp.roll(h, -1, 1) - h)
    return e, h + 0.1 * (jnp.roll(e, 1, 1) - e)


def jacobi(a: Any) -> Any:
    return (0.25 * (jnp.roll(a, 1, 0) + jnp.roll(a, -1, 0) + jnp.roll(a, 1, 1) + jnp.roll(a, -1, 1)),)


def looped(step: Callable[..., Any], kind: str, *state: Any) -> Any:
    """A step over and over."""
    if kind == "scan":
        return lax.scan(lambda carry, _: (step(*carry), None), state, None, 64)[0]
    return lax.while_loop(lambda carry: carry[0][0, 0] < 1e9, lambda carry: step(*carry), state)


def handed_on() -> dict[str, Case]:
    """Steps whose results have to lie where other arrays do, alone and in loops."""
    both = (BIG, BIG), (0, 1)
    found: dict[str, Case] = {"swapped": (swapped, *both), "leapfrog": (leapfrog, *both)}
    for step in (swapped, leapfrog, wave, staggered):
        for kind in ("scan", "while"):
            found[f"{step.__name__}_{kind}"] = (partial(looped, step, kind), *both)
    found["leapfrog_scan_kept"] = (partial(looped, leapfrog, "scan"), (BIG, BIG), ())
    found["three_states_scan"] = (
        partial(looped, lambda a, b, c: (b, c, 1.5 * c - a * b), "scan"),
        (BIG,) * 3,
        (0, 1, 2),
    )
    found["jacobi_scan"] = (partial(looped, jacobi, "scan"), (BIG,), (0,))
    return found


def attended(order: str, q: Any, keys: Any, values: Any) -> Any:
    if keys.dtype != BF:
        keys, values = keys.astype(BF) * 0.1, values.astype(BF) * 0.1
    scores = jnp.einsum(f"bgrk,{order}->bgrt", q, keys, preferred_element_type=F32)
    return jnp.einsum(f"bgrt,{order}->bgrk", jax.nn.softmax(scores, -1).astype(BF), values)


def cached(
    order: str = "btgk", loop: str = "scan", heads: int = 8, rows: int = 4, batch: int = 128, dtype: Any = BF,
    two: bool = False, returned: bool = True, donated: bool = True,
) -> Case:  # fmt: skip
    """Attention of new queries over a cache (two: one for keys and one for values) of 4,096 positions.

    order: of batch, time, groups and width. loop: ``no``, ``scan``, ``while``, or ``constant``: only read in a scan.
    """
    sizes = {"b": batch, "t": 4096, "g": heads, "k": 128}
    time = order.index("t")

    def write(cache: Any, q: Any, at: Any) -> Any:
        new = jnp.expand_dims(jnp.einsum("bgk->" + order.replace("t", ""), q[:, :, 0]), time).astype(cache.dtype)
        return lax.dynamic_update_slice(cache, new, tuple(at if d == time else 0 for d in range(4)))

    def step(caches: Any, q: Any, at: Any) -> Any:
        def one(carry: Any) -> Any:
            caches, q, at = carry
            caches = tuple(write(c, q, at) for c in caches)
            return caches, attended(order, q, caches[0], caches[-1]), at + 1

        if loop == "constant":
            return lax.scan(lambda q, _: (attended(order, q, caches[0], caches[-1]), None), q, None, 16)[0]
        if loop == "while":
            out = lax.while_loop(lambda carry: carry[2] < 4000, one, (caches, q, at))
        else:
            out = (
                one((caches, q, at))
                if loop == "no"
                else lax.scan(lambda c, _: (one(c), None), (caches, q, at), None, 16)[0]
            )
        return out if returned else out[1]

    cache = of(*(sizes[d] for d in order), dtype=dtype)
    queries = of(batch, heads, rows, 128, dtype=BF)
    return step, ((cache,) * (1 + two), queries, of(dtype=jnp.int32)), (0,) if donated and loop != "constant" else ()


def caches() -> dict[str, Case]:
    """Caches in every order, alone and in loops."""
    found = {f"cache_{order}_{loop}": cached(order, loop)
             for order in ("btgk", "tbgk", "bgtk", "bgkt") for loop in ("no", "scan", "while", "constant")}  # fmt: skip
    words: dict[str, dict[str, Any]] = {
        "kept": {"donated": False}, "not_returned": {"returned": False}, "int8": {"dtype": jnp.int8, "batch": 512},
        "one_head": {"heads": 1, "batch": 1024}, "two_heads": {"heads": 2, "batch": 512},
        "one_query": {"rows": 1, "batch": 256},
        "float32": {"dtype": F32}, "two": {"two": True}, "two_kept": {"two": True, "donated": False},
        "two_read": {"two": True, "loop": "constant"}, "two_one_query": {"two": True, "rows": 1},
    }  # fmt: skip
    return found | {f"cache_{name}": cached(**given) for name, given in words.items()}


def read_weights(cast: bool) -> Case:
    """A loop over two weights, which are converted in it or not."""

    def step(w: Any, x: Any) -> Any:
        wide, narrow = (jnp.asarray(w[k], BF) for k in ("a", "b"))
        return lax.scan(lambda x, _: (jnp.tanh(x @ wide) @ narrow, None), x, None, 16)[0]

    def inside(w: Any, x: Any) -> Any:
        return lax.scan(lambda x, _: (jnp.tanh(x @ w["a"].astype(BF)) @ w["b"].astype(BF), None), x, None, 16)[0]

    kind = F32 if cast else BF
    weights = {"a": of(8192, 32768, dtype=kind), "b": of(32768, 8192, dtype=kind)}
    return inside if cast else step, (weights, of(128, 8192, dtype=BF)), ()


def trained(rev: bool) -> Case:
    """A step of Adam on a small MLP; rev: moments are returned before the weights."""

    def loss(p: Any, x: Any) -> Any:
        for k, w in enumerate(p):
            x = x @ w if k % 2 else jax.nn.gelu(x @ w)
        return jnp.mean(jnp.square(x))

    def step(p: Any, m: Any, v: Any, x: Any) -> Any:
        value, g = jax.value_and_grad(loss)(p, x)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)
        p = jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), p, m, v)
        return (value, (m, v), p) if rev else (p, (m, v), value)

    p = [of(4096, 16384), of(16384, 4096)] * 2
    return step, (p, p, p, of(16384, 4096)), (0, 1, 2)


def recurrent() -> Case:
    """The gradients of an LSTM over 512 tokens."""
    d = 2048

    def loss(p: Any, x: Any) -> Any:
        def one(c: Any, row: Any) -> Any:
            h, c = c
            i, f, g, o = jnp.split(row @ p["x"] + h @ p["h"], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((x.shape[1], d))
        return jnp.mean(jnp.square(lax.scan(one, (zero, zero), x)[1]))

    return jax.value_and_grad(loss), ({"x": of(d, 4 * d), "h": of(d, 4 * d)}, of(512, 64, d)), ()


def steps() -> dict[str, Case]:
    """Steps as users write them."""
    return {
        "weights_in_a_loop": read_weights(False), "weights_cast_in_a_loop": read_weights(True),
        "adam": trained(False), "adam_returned_the_other_way": trained(True), "lstm": recurrent(),
    }  # fmt: skip


def cases() -> dict[str, Case]:
    """All by name."""
    return donation() | handed_on() | caches() | steps()
