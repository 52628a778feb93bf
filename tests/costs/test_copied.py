"""An input that is written in part and not donated is copied first, and its copy takes time."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import ShapeDtypeStruct, lax
from plan_cases import f32, program_of

import autoshard
from autoshard.costmodels import load_profile
from autoshard.costs.copied import copies_of_inputs

CACHE, NEW, AT = f32(64, 4096, 128), f32(64, 1, 128), ShapeDtypeStruct((), jnp.int32)
BYTES = 64 * 4096 * 128 * 4


def write(cache: Any, new: Any, at: Any) -> Any:
    return lax.dynamic_update_slice(cache, new, (0, at, 0))


def asked(hardware: str = "tpu_v5e", donated: Any = ()) -> dict[str, Any]:
    return {"mesh": {"x": 2}, "hardware": hardware, "memory_limit": "none", "donate_argnums": donated}


def seconds(function: Any, *specs: Any, hardware: str = "tpu_v5e", donated: Any = ()) -> float:
    words = {**asked(hardware, donated), "mesh": {"x": 1}}
    return float(autoshard.plan(function, *specs, **words).cost.step_s)


def copies(function: Any, *specs: Any, donated: tuple[int, ...] = ()) -> list[float]:
    """Of the updates, in the order of the program."""
    program = program_of(function, *specs, donate_argnums=donated)
    found = copies_of_inputs(program)
    return [found.get(op.id, 0.0) for op, _ in program.walk() if op.kind.startswith(("dynamic_update", "scatter"))]


@pytest.mark.parametrize("hardware", ["tpu_v5e", "tpu_v5e@compiler", "h100@compiler"])
def test_it_is_read_and_written_once_at_the_rate_of_memory(hardware: str) -> None:
    profile = load_profile(hardware)
    share = 1.0 if profile.compiled_work is None else profile.compiled_work.memory
    more = seconds(write, CACHE, NEW, AT, hardware=hardware) - seconds(
        write, CACHE, NEW, AT, hardware=hardware, donated=0
    )
    assert more == pytest.approx(2 * BYTES / profile.memory.bandwidth.value / share)


def test_a_scatter_copies_as_well() -> None:
    assert copies(lambda x, rows: x.at[rows].add(1.0), f32(64, 8), ShapeDtypeStruct((4,), jnp.int32)) == [1.0]


def test_what_the_program_made_is_written_where_it_lies() -> None:
    assert copies(lambda x, new, at: write(jnp.tanh(x), new, at), CACHE, NEW, AT) == [0.0]


def test_of_two_updates_in_turn_the_first_copies() -> None:
    assert copies(lambda x, new, at: write(write(x, new, at), new, at + 1), CACHE, NEW, AT) == [1.0, 0.0]


def test_two_updates_of_one_input_copy_it_twice() -> None:
    assert copies(lambda x, new, at: (write(x, new, at), write(x, new, at + 1)), CACHE, NEW, AT) == [1.0, 1.0]


def test_a_loop_copies_what_it_carries_once() -> None:
    def steps(cache: Any, new: Any) -> Any:
        return lax.scan(lambda c, at: (write(c, new, at), None), cache, jnp.arange(4))[0]

    assert copies(steps, CACHE, NEW) == [0.25]
    assert copies(steps, CACHE, NEW, donated=(0,)) == [0.0]


def test_a_loop_copies_its_constant_in_each_trip() -> None:
    def steps(cache: Any, new: Any) -> Any:
        return lax.scan(lambda c, at: (c + write(cache, new, at).sum(), None), 0.0, jnp.arange(4))[0]

    assert copies(steps, CACHE, NEW) == [1.0]


def layers(caches: Any, at: Any) -> Any:
    return lax.scan(lambda c, cache: (c, write(cache, c, at)), jnp.ones((1, 1, 128)), caches)[1]


def test_a_slice_of_what_is_scanned_over_is_copied_in_each_trip() -> None:
    assert copies(layers, f32(4, 1, 64, 128), AT) == [1.0]


def test_slices_that_have_to_lie_in_a_donated_input_at_last_are_copied_twice() -> None:
    assert copies(layers, f32(4, 1, 64, 128), AT, donated=(0,)) == [2.0]


def test_a_donated_input_that_no_output_takes_the_place_of_is_copied_once() -> None:
    assert copies(lambda c, at: layers(c, at).sum(0), f32(4, 1, 64, 128), AT, donated=(0,)) == [1.0]


def test_slices_of_what_the_program_made_are_copied_as_well() -> None:
    assert copies(lambda caches, at: layers(caches * 2, at), f32(4, 1, 64, 128), AT) == [1.0]


def test_what_is_carried_within_a_slice_s_trip_is_copied_once_for_its_loop() -> None:
    def tokens(cache: Any) -> Any:
        return lax.scan(lambda c, at: (write(c, jnp.ones((1, 1, 128)), at), None), cache, jnp.arange(8))[0]

    assert copies(lambda caches: lax.map(tokens, caches), f32(4, 1, 64, 128)) == [1 / 8]


def test_a_plan_says_that_scanning_over_what_is_written_copies_it() -> None:
    plan = autoshard.plan(layers, f32(4, 1, 64, 128), AT, **asked(donated=(0,)))
    assert any("caches is scanned over and written in part" in note for note in plan.notes)


def test_a_branch_copies_what_enters_it() -> None:
    def step(cache: Any, new: Any, at: Any) -> Any:
        return lax.cond(at > 3, lambda c: write(c, new, at), lambda c: c, cache)

    assert copies(step, CACHE, NEW, AT) == [1.0]


def test_a_loop_in_a_loop_copies_once_for_all_its_trips() -> None:
    def inner(cache: Any, new: Any) -> Any:
        return lax.scan(lambda c, at: (write(c, new, at), None), cache, jnp.arange(4))[0]

    def outer(cache: Any, new: Any) -> Any:
        return lax.scan(lambda c, _: (inner(c, new), None), cache, None, length=8)[0]

    assert copies(outer, CACHE, NEW) == [1 / 32]


def decode(cache: Any, new: Any, at: Any) -> Any:
    def body(carry: Any, step: Any) -> Any:
        cache, x = carry
        cache = write(cache, x, at + step)
        return (cache, jnp.tanh(x + cache.mean(1, keepdims=True))), None

    return lax.scan(body, (cache, new), jnp.arange(4))[0]


def decode_layers(cache: Any, new: Any, at: Any) -> Any:
    return lax.scan(lambda x, c: (jnp.tanh(x), write(c[None], x[:1], at)), new, cache)


@pytest.mark.parametrize("function", [write, decode, decode_layers])
@pytest.mark.parametrize("donated", [(), (0,)])
@pytest.mark.parametrize("hardware", ["tpu_v5e", "tpu_v5e@compiler", "h100@compiler"])
def test_verify_finds_the_copies_itself(function: Any, hardware: str, donated: tuple[int, ...]) -> None:
    small = f32(4, 8, 16), f32(4, 1, 16), AT
    plan = autoshard.plan(function, *small, **asked(hardware, donated))
    values = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), small)
    assert plan.verify(function, *values, **asked(hardware, donated)).ok


def test_its_bytes_keep_the_memory_busy() -> None:
    kept, given = (autoshard.plan(write, CACHE, NEW, AT, **{**asked(donated=d), "mesh": {"x": 1}}) for d in ((), (0,)))
    more = kept.step_time.resources_s["memory"] - given.step_time.resources_s["memory"]
    assert more == pytest.approx(2 * BYTES / load_profile("tpu_v5e").memory.bandwidth.value)


def test_a_plan_says_which_input_is_copied_and_what_spares_it() -> None:
    def told(**words: Any) -> list[str]:
        plan = autoshard.plan(write, CACHE, NEW, AT, argnames=("cache", "new", "at"), **{**asked(), **words})
        return [note for note in plan.notes if "donate_argnums" in note]

    (note,) = told()
    assert note.startswith("cache is written in part and not donated")
    assert not told(donate_argnums=0)


def test_small_copies_are_not_told() -> None:
    def step(x: Any, w: Any, counts: Any) -> Any:
        return x @ w, counts.at[0].add(1)

    plan = autoshard.plan(step, f32(512, 512), f32(512, 512), f32(8), **asked())
    assert not [note for note in plan.notes if "donate_argnums" in note]


def test_updates_that_are_alike_but_for_their_copies_have_a_price_each() -> None:
    twice = seconds(lambda x, new, at: write(write(x, new, at), new, at + 1), CACHE, NEW, AT)
    assert twice == pytest.approx(seconds(write, CACHE, NEW, AT), rel=1e-3)
