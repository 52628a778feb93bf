"""`ragged_all_to_all` in a user's `shard_map`: rows sent to the devices of their experts, as many as there are."""

import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from plan_cases import f32

from autoshard import plan
from autoshard.api.plans import Plan
from autoshard.verify import check_plan
from autoshard.verify.runs.hlo import hlo_collectives

MESH = jax.sharding.AbstractMesh((4,), ("x",), axis_types=(AxisType.Auto,))
ROWS, LARGER = 8, 4
"""Rows of a device, and how many times as large the buffer for what it gets is."""


def sent(rows: Any, out: Any) -> Any:
    """Every device hands two rows to each device."""
    two, at = jnp.full((4,), 2, jnp.int32), jax.lax.axis_index("x")
    starts, place = 2 * jnp.arange(4, dtype=jnp.int32), jnp.full((4,), 2 * at, jnp.int32)
    return jax.lax.ragged_all_to_all(rows, out, starts, two, place, two, axis_name="x")


def exchanged(rows: Any) -> Any:
    def body(rows: Any) -> Any:
        return sent(rows, jnp.zeros((LARGER * ROWS, rows.shape[1]), rows.dtype))

    return jax.shard_map(body, mesh=MESH, in_specs=P("x"), out_specs=P("x"), check_vma=False)(rows)


def evenly(rows: Any) -> Any:
    def body(rows: Any) -> Any:
        return jax.lax.all_to_all(rows, "x", 0, 0, tiled=True)

    return jax.shard_map(body, mesh=MESH, in_specs=P("x"), out_specs=P("x"), check_vma=False)(rows)


def and_back(rows: Any) -> Any:
    """The buffer is the operand on the way back, in the gradient as in the code."""
    return jax.value_and_grad(lambda x: (exchanged(x) ** 2).sum())(rows)


@pytest.fixture(scope="module", params=[exchanged, and_back], ids=lambda f: f.__name__)
def function(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return request.param


@pytest.fixture(scope="module")
def found(function: Callable[..., Any]) -> Plan:
    return plan(function, f32(4 * ROWS, 16), mesh={"x": 4}, hardware="tpu_v5e")


def _ragged(found: Plan) -> list[Any]:
    ragged = {op.id for op, _ in found.program.walk() if op.attrs.get("ragged")}
    return [row for row in found.cost.rows if row.op in ragged]


def test_it_is_an_even_all_to_all_of_the_rows_and_not_of_the_buffer(found: Plan) -> None:
    rows = _ragged(found)
    assert rows
    assert {(row.kind, row.bytes) for row in rows} == {("all_to_all", ROWS * 16 * 4)}
    (even,) = plan(evenly, f32(4 * ROWS, 16), mesh={"x": 4}, hardware="tpu_v5e").cost.rows
    assert {row.seconds for row in rows} == {even.seconds}


def test_the_checker_works_out_the_same_costs_and_memory(found: Plan) -> None:
    checked = check_plan(json.loads(json.dumps(found.to_dict())))
    assert checked.ok, list(map(str, checked.findings))


def test_it_is_lowered_as_planned_and_what_xla_for_cpu_cannot_run_is_not_done(
    found: Plan, function: Callable[..., Any]
) -> None:
    said = str(found.verify(function, f32(4 * ROWS, 16), mesh={"x": 4}, hardware="tpu_v5e"))
    assert "collectives as planned; compiled: not done, XLA for CPU has no ragged_all_to_all" in said
    assert "wrong" not in said


def test_a_schedule_of_the_tpu_compiler_has_it_as_an_all_to_all_of_its_first_operand() -> None:
    (one,) = hlo_collectives(
        "HloModule test, num_partitions=4\n\n"
        "ENTRY %main (p: bf16[8,16], o: bf16[32,16], s: s32[4]) -> bf16[32,16] {\n"
        "  %p = bf16[8,16]{1,0:T(8,128)} parameter(0)\n"
        "  %o = bf16[32,16]{1,0:T(8,128)} parameter(1)\n"
        "  %s = s32[4]{0} parameter(2)\n"
        "  ROOT %r = bf16[32,1,16]{2,1,0:T(1,128)S(1)} ragged-all-to-all(%p, %o, %s, %s, %s, /*index=5*/%s), "
        "channel_id=1, replica_groups={{0,1,2,3}}\n}\n"
    )
    assert (one.kind, one.elements, one.dtype, one.groups) == ("all_to_all", 128, "bfloat16", ((0, 1, 2, 3),))
