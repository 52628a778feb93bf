"""Collectives on the CPU wait for each other: by values, in the compiled program, and without a bit of difference."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collective_order import unordered_collectives
from jax import lax
from jax.sharding import PartitionSpec as P
from naive_schedule import naive_schedule

from autoshard.frontends.jax.function import trace
from autoshard.interop.jax import auto_mesh
from autoshard.lowering.lower import lower
from autoshard.lowering.order import in_order
from autoshard.sharding.layout import AtomMesh
from autoshard.sharding.mesh import Mesh
from autoshard.verify.runs.collectives import UNCOMBINED


def total(x):
    return lax.psum(x, "x")


def beside_a_scan(x, y, c):
    first = total(jnp.sin(total(x)))
    carry, ys = lax.scan(lambda a, b: (total(a * b), total(b)), c, jnp.stack([y, y]))
    second = jnp.cos(total(jnp.cos(total(y))))
    return first, second, carry, ys


def two_in_a_body(x, y, c):
    return *lax.scan(lambda a, b: ((a[0], total(a[1]) + b), total(a[0] * b)), (x, y), jnp.stack([c, y])), total(x)


def unrolled(x, y, c):
    return lax.scan(lambda a, b: (a + 1, total(b)), x, jnp.stack([y, c, y]), unroll=2), total(c)


def once(x, y, c):
    """XLA writes the body of a loop that runs once in place of the loop."""
    return total(x), lax.scan(lambda a, b: (a, total(b)), c, y[None]), total(c)


def condition(x, y, c):
    def again(state):
        return (total(state[1]).sum() < 100) & (total(state[2]).sum() < 1e6)

    return total(x), lax.while_loop(again, lambda s: (s[0] + 1, s[1] + 1, s[2]), (x, y, c)), total(c)


def condition_and_body(x, y, c):
    return total(x), lax.while_loop(lambda s: total(s).sum() < 100, lambda s: s + total(y) ** 2, c), total(y)


def branches(x, y, c):
    out = lax.cond(y.sum() > 0, lambda a: (total(a), a), lambda a: (a, a * 2), c)
    return total(x), out, total(y)


def loop_in_a_branch(x, y, c):
    def loop(a):
        return lax.fori_loop(0, 3, lambda _, s: total(s) / 8 + total(c), a)

    return (
        total(x),
        lax.switch(jnp.int32(total(x)[0] > 1e6), [loop, lambda a: a, lambda a: total(a) + total(c)], y),
        total(y),
    )


def never_runs(x, y, c):
    return total(x), lax.scan(lambda a, b: (total(a), total(b)), c, jnp.zeros((0, 4))), total(y)


def zeros(x, y, c):
    """Of two equal constants a compiler takes either."""
    return total(x), total(jnp.zeros(4)), total(jnp.zeros(4, bool) | True)


def several_at_once(x, y, c):
    return lax.psum((x, y, jnp.zeros(0), c), "x"), lax.pmax(y, "x")


def without_the_loop(x, y, c):
    """The second carry passes a loop that has nothing to do with it: not to be taken for ordered by the loop."""
    a = total(x)
    out, b = lax.fori_loop(0, 3, lambda _, s: (s[0] * 2, s[1]), (a, y))
    return out, total(b), lax.optimization_barrier((total(c), y))


PROGRAMS = [
    beside_a_scan, two_in_a_body, unrolled, once, condition, condition_and_body, branches, loop_in_a_branch,
    never_runs, zeros, several_at_once, without_the_loop,
]  # fmt: skip

ARGS = tuple(np.linspace(k, k + 3, 32, dtype=np.float32) for k in range(3))


def compiled(f, args=ARGS, options=None):
    mesh = auto_mesh(np.array(jax.devices()[:8]), ("x",))
    mapped = jax.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P(), check_vma=False)
    return jax.jit(mapped).lower(*args).compile(compiler_options=options)


def on_one_device(f, args=ARGS):
    """What device 0 gets, without devices that wait for each other."""
    return [x[0] for x in jax.vmap(f, axis_name="x")(*(jnp.reshape(x, (8, -1)) for x in args))]


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_any_two_collectives_are_ordered_in_the_compiled_program(f):
    flat = lambda *xs: tuple(jax.tree.leaves(f(*xs)))  # noqa: E731
    ours = compiled(in_order(flat))
    assert unordered_collectives(ours.as_text()) == []
    assert unordered_collectives(compiled(in_order(flat), options=UNCOMBINED).as_text()) == []
    for found, expected in zip(ours(*ARGS), on_one_device(flat), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("f", [beside_a_scan, loop_in_a_branch, condition], ids=lambda f: f.__name__)
def test_without_it_they_are_not(f):
    assert unordered_collectives(compiled(f, options=UNCOMBINED).as_text()) != []


SPECIAL = {  # every kind of bits that arithmetic could lose
    "float32": np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-42, 3.0], np.float32),
    "bfloat16": jnp.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, 3.0, -3.0], jnp.bfloat16),
    "float8_e4m3fn": jnp.array([np.nan, -0.0, 448, -448, 0.0, 1, 2, 3], jnp.float8_e4m3fn),
    "complex64": np.array([np.nan + 1j, 1j * np.inf, -0.0, 0, 1, 2, 3, 4j], np.complex64),
    "int32": np.array([-(2**31), 2**31 - 1, -1, 0, 1, 2, 3, 4], np.int32),
    "uint8": np.array([255, 0, 1, 2, 3, 4, 5, 128], np.uint8),
    "bool": np.array([True, False] * 4),
}


@pytest.mark.parametrize("before", ["float32", "bfloat16", "complex64", "int32", "bool"])
def test_what_waits_keeps_every_bit_whatever_it_waits_for(before):
    names = list(SPECIAL)

    def gathers(*xs):
        out = []
        for x in xs:
            out += [lax.all_gather(xs[names.index(before)], "x"), lax.all_gather(x, "x")]
        return tuple(out)

    args = [jnp.asarray(x) for x in SPECIAL.values()]
    found = compiled(in_order(gathers), args)
    assert unordered_collectives(found.as_text()) == []
    for ours, theirs in zip(found(*args), on_one_device(gathers, args), strict=True):
        assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()


def test_what_waits_already_is_left_as_it_is():
    def chain(x, y, c):
        out = total(jnp.sin(total(x)))
        return lax.fori_loop(0, 3, lambda _, s: total(s) / 8, out), y, c

    mesh = auto_mesh(np.array(jax.devices()[:8]), ("x",))

    def text(f):
        return str(jax.make_jaxpr(jax.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P(), check_vma=False))(*ARGS))

    assert text(in_order(chain)) == text(chain)
    assert "select_n" in text(in_order(lambda x, y, c: (total(x), total(y))))


def test_a_lowered_program_is_put_in_order_on_the_cpu_alone():
    def f(x, y):
        def body(c, a):
            return jnp.tanh(c @ a), (c @ a).sum()

        return x @ y, jnp.sin(x) @ jnp.cos(y), lax.scan(body, y, jnp.stack([y, y]))

    args = jnp.ones((8, 8)), jnp.ones((8, 8))
    traced = trace(f, *args)
    lowered = lower(traced, naive_schedule(traced.program, AtomMesh.split(Mesh.from_dict({"x": 2, "y": 4})), 3))
    assert len(lowered.planned) > 3
    text = lowered.jit().lower(*args).compile(compiler_options=UNCOMBINED).as_text()
    assert unordered_collectives(text) == []
    waiting = lowered.stablehlo("cpu").count("stablehlo.select")
    assert waiting > lowered.stablehlo("tpu").count("stablehlo.select")
