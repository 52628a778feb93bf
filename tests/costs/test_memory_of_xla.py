"""The peak of small programs on one device against the buffers that XLA for CPU assigns."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from plan_cases import f32

import autoshard
from autoshard.verify import check_plan

ARRAY = 4 * 256 * 256


def peak_of_plan(function: Callable[..., Any], *specs: Any, donate: bool = False) -> float:
    plan = autoshard.plan(
        function, *specs, mesh={"x": 1}, hardware="tpu_v5e", donate_argnums=(0,) if donate else ()
    )  # fmt: skip
    assert check_plan(plan.to_dict()).findings == ()
    return plan.memory.peak_bytes


def peak_of_xla(function: Callable[..., Any], *specs: Any, donate: bool = False) -> float:
    found = jax.jit(function, donate_argnums=(0,) if donate else ()).lower(*specs).compile().memory_analysis()
    assert found is not None
    arguments, outputs = found.argument_size_in_bytes, found.output_size_in_bytes
    return arguments + outputs + found.temp_size_in_bytes - found.alias_size_in_bytes


@pytest.mark.parametrize("along", [jnp.cumsum, jnp.cumprod, lax.cummax], ids=lambda f: f.__name__)
def test_a_cumulative_op_has_its_result_beside_its_operand(along: Callable[..., Any]) -> None:
    def f(x: Any) -> Any:
        return along(x * 2.0, axis=0) * 2.0

    assert peak_of_plan(f, f32(256, 256)) == 3 * ARRAY
    assert peak_of_xla(f, f32(256, 256)) == pytest.approx(3 * ARRAY, rel=0.05)


def test_a_sort_is_done_in_place() -> None:
    def f(x: Any) -> Any:
        return jnp.sort(x * 2.0) + 1.0

    assert peak_of_plan(f, f32(256, 256)) == peak_of_xla(f, f32(256, 256)) == 2 * ARRAY


@pytest.mark.parametrize(
    ("function", "arrays"),
    [(jnp.tanh, 1), (jnp.flipud, 2), (lambda x: jnp.roll(x, 3, 0), 2), (lambda x: jnp.cumsum(x, 1), 2)],
    ids=["tanh", "flip", "roll", "cumsum"],
)
def test_what_reads_other_elements_is_not_written_over_a_donated_input(
    function: Callable[..., Any], arrays: int
) -> None:
    assert peak_of_plan(function, f32(256, 256), donate=True) == arrays * ARRAY


def test_a_fourier_transform_has_its_result_beside_its_operand() -> None:
    def f(x: Any) -> Any:
        return jnp.fft.fft(jnp.fft.fft(x) * 2.0)

    complex_array = jax.ShapeDtypeStruct((256, 256), jnp.complex64)
    assert peak_of_plan(f, complex_array) == pytest.approx(peak_of_xla(f, complex_array), rel=0.05)


def doubled_twice(x: Any) -> Any:
    doubled = x * 2.0
    return doubled, doubled


RETURNED = {
    "an input": lambda x: x,
    "an input beside its next value": lambda x: (x, x + 1.0),
    "an input twice": lambda x: (x, x, x + 1.0),
    "a result twice": doubled_twice,
}


@pytest.mark.parametrize("donate", [False, True], ids=["kept", "donated"])
@pytest.mark.parametrize("function", RETURNED.values(), ids=RETURNED)
def test_what_is_returned_and_stays_is_copied(function: Callable[..., Any], donate: bool) -> None:
    x = f32(256, 256)
    assert peak_of_plan(function, x, donate=donate) == pytest.approx(peak_of_xla(function, x, donate=donate), rel=1e-3)


def fourth_power(x: Any) -> Any:
    square = x @ x
    return square @ square


DONATED = {
    "a number": (lambda x: fourth_power(x).max(), 3),
    "a row": (lambda x: fourth_power(x).max(0), 3),
    "its elements in another shape": (lambda x: fourth_power(x).reshape(128, 512), 2),
    "an array of its type": (fourth_power, 2),
}
"""What there is to take the place of a donated array, and the arrays that are held at once."""


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
@pytest.mark.parametrize(("function", "arrays"), DONATED.values(), ids=DONATED)
def test_a_donated_array_is_written_over_where_an_output_has_its_size(
    function: Callable[..., Any], arrays: int
) -> None:
    x = f32(256, 256)
    assert peak_of_plan(function, x, donate=True) == pytest.approx(arrays * ARRAY, rel=1e-3)
    found = jax.jit(function, donate_argnums=0).lower(x).compile().memory_analysis()
    assert found is not None
    assert found.alias_size_in_bytes == (3 - arrays) * ARRAY


def test_one_output_takes_the_place_of_one_donated_array() -> None:
    """Of two halves the second stays to the end, beside a product and its square."""

    def f(state: Any) -> Any:
        product = state["a"].T @ state["b"]
        return (product @ product).reshape(2, 128, 256).max(0)

    assert peak_of_plan(f, {"a": f32(128, 256), "b": f32(128, 256)}, donate=True) == 2.5 * ARRAY


def leapfrog(state: Any) -> Any:
    before, now = state
    return now, 2.0 * now - 0.999 * before


def swapped(state: Any) -> Any:
    one, other = state
    return other * 1.01, one + 1.0


def staggered(state: Any) -> Any:
    electric, magnetic = state
    electric = electric + 0.1 * (jnp.roll(magnetic, -1, 1) - magnetic)
    return electric, magnetic + 0.1 * (jnp.roll(electric, 1, 1) - electric)


def in_scan(step: Callable[..., Any]) -> Callable[..., Any]:
    return lambda state: lax.scan(lambda carry, _: (step(carry), None), state, None, 64)[0]


def in_while(step: Callable[..., Any]) -> Callable[..., Any]:
    return lambda state: lax.while_loop(lambda carry: carry[0][0, 0] < 1e9, step, state)


HANDED_ON = {
    "leapfrog": leapfrog, "swapped": swapped, "leapfrog in scan": in_scan(leapfrog),
    "leapfrog in while": in_while(leapfrog), "swapped in scan": in_scan(swapped),
    "staggered in scan": in_scan(staggered),
}  # fmt: skip
"""Steps of two arrays of which libtpu 0.0.42.1 holds three at once, donated (XLA for CPU three or four)."""


@pytest.mark.parametrize("step", HANDED_ON.values(), ids=HANDED_ON)
def test_what_is_handed_on_is_not_written_where_another_array_has_to_lie(step: Callable[..., Any]) -> None:
    state = (f32(256, 256), f32(256, 256))
    assert peak_of_plan(step, state, donate=True) == pytest.approx(3 * ARRAY, rel=1e-3)
    assert peak_of_xla(step, state, donate=True) > 2.99 * ARRAY


def wave(state: Any) -> Any:
    before, now = state
    return now, 2.0 * now - before + 0.1 * (jnp.roll(now, 1, 0) + jnp.roll(now, -1, 0) - 2.0 * now)


def test_nothing_is_written_over_rolls_of_one_array_along_one_dimension() -> None:
    """They lie in parts: libtpu 0.0.42.1 holds five arrays, too."""
    state = (f32(256, 256), f32(256, 256))
    assert peak_of_plan(in_scan(wave), state, donate=True) == pytest.approx(5 * ARRAY, rel=1e-3)


def test_what_reads_one_roll_of_an_array_is_written_over_it() -> None:
    """libtpu 0.0.42.1 fuses them, and holds two arrays."""
    assert peak_of_plan(lambda x: jnp.roll(x, 1, 0) - x, f32(256, 256)) == 2 * ARRAY


def test_what_is_returned_in_another_layout_is_no_further_copy() -> None:
    """Half of the array, and all of it."""
    pins = [autoshard.Pin("x", '[{"x"}, {}]'), autoshard.Pin("out", "[{}, {}]")]
    plan = autoshard.plan(lambda x: x, f32(256, 256), mesh={"x": 2}, hardware="tpu_v5e", constraints=pins)
    assert plan.memory.peak_bytes == 1.5 * ARRAY
    assert check_plan(plan.to_dict()).findings == ()
