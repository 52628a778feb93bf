"""Arrays that a loop has in another order of dimensions are copied at the borders of the program.

So does libtpu 0.0.42.1 in programs like these, a few hundred times as large.
"""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from plan_cases import f32

import autoshard
from autoshard.verify import check_plan

SEQUENCES, POSITIONS, HEADS, WIDTH = 8, 512, 4, 64
FRONT, BEHIND = "bgtk", "btgk"
"""Orders of a cache: the heads before the positions, and behind them."""
SIZES = {"b": SEQUENCES, "t": POSITIONS, "g": HEADS, "k": WIDTH}
CACHE = 4 * SEQUENCES * POSITIONS * HEADS * WIDTH


def attended(order: str, queries: Any, cache: Any) -> Any:
    shares = jax.nn.softmax(jnp.einsum(f"bgrk,{order}->bgrt", queries, cache), -1)
    return jnp.einsum(f"bgrt,{order}->bgrk", shares, cache)


def carried(order: str) -> Any:
    def step(cache: Any, queries: Any) -> Any:
        def body(carry: Any, _: None) -> Any:
            cache, queries = carry
            new = jnp.expand_dims(queries[:, :, 0], order.index("t"))
            cache = lax.dynamic_update_slice(cache, new, (0, 0, 0, 0))
            return (cache, attended(order, queries, cache)), None

        return lax.scan(body, (cache, queries), None, 16)[0]

    return step


def read_only(order: str) -> Any:
    def step(cache: Any, queries: Any) -> Any:
        return lax.scan(lambda q, _: (attended(order, q, cache), None), queries, None, 16)[0]

    return step


def nested(order: str) -> Any:
    inside = carried(order)

    def step(cache: Any, queries: Any) -> Any:
        return lax.while_loop(lambda c: c[1][0, 0, 0, 0] < 1.0, lambda c: inside(*c), (cache, queries))

    return step


def converted(order: str) -> Any:
    return lambda cache, queries: read_only(order)(cache.astype(jnp.float32) * 0.5, queries)


def specs(order: str, rows: int = 4) -> tuple[Any, Any]:
    return f32(*(SIZES[d] for d in order)), f32(SEQUENCES, HEADS, rows, WIDTH)


def plan_of(step: Any, order: str, rows: int = 4, donate: bool = False, **words: Any) -> autoshard.Plan:
    asked: dict[str, Any] = {"mesh": {"x": 1}, "hardware": "tpu_v5e", **words}
    plan = autoshard.plan(step(order), *specs(order, rows), donate_argnums=(0,) if donate else (), **asked)
    assert check_plan(plan.to_dict()).findings == ()
    return plan


def more(step: Any, **words: Any) -> int:
    """Whole caches that are held at the peak more with the heads behind than with the heads in front."""
    behind, front = (plan_of(step, order, **words).memory.peak_bytes for order in (BEHIND, FRONT))
    return round((behind - front) / CACHE)


@pytest.mark.parametrize("step", [carried, nested, read_only], ids=lambda f: f.__name__)
@pytest.mark.parametrize("donate", [False, True], ids=["kept", "donated"])
def test_a_cache_with_heads_behind_positions_is_held_once_more(step: Any, donate: bool) -> None:
    assert more(step, donate=donate) == 1


def test_a_copy_for_a_loop_lasts_as_long_as_the_loop_and_is_named() -> None:
    plan = plan_of(read_only, BEHIND)
    (copy,) = [h for h in plan.memory.held if "turned" in h.what]
    assert copy.what == "cache, turned for scan:0"
    assert copy.bytes == CACHE


def test_a_copy_for_an_output_is_named() -> None:
    assert next(h.what for h in plan_of(carried, BEHIND).memory.held if "turned" in h.what) == (
        "scan:0.0, turned for output out/0"
    )


def test_for_one_query_a_head_nothing_is_turned() -> None:
    assert more(carried, rows=1) == 0


def test_where_a_device_has_one_head_nothing_is_turned() -> None:
    pins = [autoshard.Pin("cache", '[{}, {}, {"x"}, {}]'), autoshard.Pin("out/0", '[{}, {}, {"x"}, {}]')]
    plan = plan_of(carried, BEHIND, mesh={"x": HEADS}, constraints=pins)
    assert not [h for h in plan.memory.held if "turned" in h.what]


def test_what_the_program_makes_is_made_in_the_order_of_the_loop() -> None:
    assert more(converted) == 0


def test_calls_of_libraries_have_rules_of_their_own() -> None:
    plan = plan_of(read_only, BEHIND, hardware="h100")
    assert not [h for h in plan.memory.held if "turned" in h.what]
