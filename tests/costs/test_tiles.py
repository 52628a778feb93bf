"""Reduce-scatters on machines as their compiler runs them: kept where their parts are whole tiles, else all-reduces."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autoshard.api import verbs as api
from autoshard.constraints import Pin
from autoshard.costs.tiles import scatters_tiles
from autoshard.verify import check_plan

# part of one device, the dimension that is scattered, bytes of an element, whether libtpu 0.0.42.1 keeps the scatter
SEEN = [
    ((4096, 64), 1, 4, True),  # another dimension lies last
    ((4096, 96), 1, 2, True),
    ((4096, 128), 1, 4, True),
    ((4096, 128), 1, 2, False),  # half of the lanes' bytes
    ((4096, 256), 1, 2, True),
    ((64, 64), 1, 4, False),  # neither dimension is as long as a tile
    ((8, 4096), 0, 4, True),
    ((4, 4096), 0, 4, False),
    ((128, 8, 128), 0, 2, True),  # tiles are of the last two dimensions
    ((8, 4096, 128), 2, 2, False),
    ((64, 28, 28, 64), 3, 4, False),
    ((256, 28, 28, 32), 3, 4, True),
    ((128,), 0, 4, False),
]


@pytest.mark.parametrize(("part", "dim", "element_bytes", "kept"), SEEN)
def test_a_scatter_of_whole_tiles_is_kept(part: tuple[int, ...], dim: int, element_bytes: float, kept: bool) -> None:
    assert scatters_tiles(np.array([part]), np.array([dim]), element_bytes).tolist() == [kept]


def scattered(columns: int, machine: str) -> Any:
    """A plan of a matmul whose partial sums are scattered along its columns; its rows cannot be."""
    pins = [Pin("x", '[{}, {"m"}]'), Pin("w", '[{"m"}, {}]'), Pin("out", '[{}, {"m"}]')]
    specs = jax.ShapeDtypeStruct((4099, 8192), jnp.bfloat16), jax.ShapeDtypeStruct((8192, columns), jnp.bfloat16)
    return api.plan(
        lambda x, w: x @ w, *specs, mesh={"m": 2}, hardware=machine, constraints=pins, argnames=("x", "w"),
        time_limit=20,
    )  # fmt: skip


def scatter_s(plan: Any) -> float:
    """Seconds of the plan's one reduce-scatter."""
    (row,) = [r for r in plan.cost.rows if r.kind == "reduce_scatter"]
    return row.seconds


@pytest.mark.parametrize(("columns", "longer"), [(1024, 1.0), (768, 2.0)])
def test_another_scatter_takes_as_long_as_an_all_reduce(columns: int, longer: float) -> None:
    plain, calibrated = (scattered(columns, machine) for machine in ("tpu_v5e", "tpu_v5e@compiler"))
    assert scatter_s(calibrated) / scatter_s(plain) == pytest.approx(longer, rel=0.05)


def test_the_checker_knows_which_scatters_are_compiled_to_all_reduces() -> None:
    told = scattered(768, "tpu_v5e@compiler").to_dict()
    assert check_plan(told).findings == ()
    told["hardware"]["machine"]["profile"]["compiled_work"]["scatters_tiles"] = False
    assert any("seconds, it is" in str(finding) for finding in check_plan(told).findings)
