"""A product is written before the update that reads it where neither operand of its matmul stays on the chip
(docs/lowering.md); price, memory, lowering and the plan checker say so alike.
"""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plan_cases import f32, needless_copies, program_of, random_assignment, unsolved_plan
from test_memory_laws import assert_the_same_bytes

import autoshard
from autoshard import Pin
from autoshard.costmodels import ProfileError, load_profile, place_mesh
from autoshard.costmodels.machine import Machine
from autoshard.costmodels.profile import Quantity
from autoshard.costs.apart import apart_under
from autoshard.planning import Model, Problem, build_model
from autoshard.sharding.mesh import Mesh
from autoshard.verify import check_plan

AXES = {"x": 2, "y": 2}
ROWS, INPUTS, OUTPUTS = 64, 16, 32


def sgd(w: Any, x: Any) -> Any:
    """A step on one weight; its gradient is the transpose of a matmul."""
    return w - 0.1 * jax.grad(lambda w: jnp.square(jnp.tanh(x @ w)).sum())(w)


def momentum(w: Any, m: Any, x: Any) -> Any:
    m = 0.9 * m + jax.grad(lambda w: jnp.square(jnp.tanh(x @ w)).sum())(w)
    return w - 0.1 * m, m


def in_bfloat16(w: Any, x: Any) -> Any:
    """The gradient is made in bfloat16 and applied in float32."""
    return w - 0.1 * jax.grad(lambda w: jnp.tanh(x @ w.astype(jnp.bfloat16)).astype(jnp.float32).sum())(w)


def machine(on_chip_bytes: int | None, axes: dict[str, int], name: str = "tpu_v5e") -> Machine:
    profile = load_profile(name)
    size = Quantity(value=on_chip_bytes or 1, unit="bytes", source="libtpu")
    memory = profile.memory.model_copy(update={"on_chip": {} if on_chip_bytes is None else {"bf16": size}})
    return place_mesh(profile.model_copy(update={"memory": memory}), axes)


def model(function: Callable[..., Any], on_chip_bytes: int, *specs: Any, name: str = "tpu_v5e") -> Model:
    program, mesh = program_of(function, *specs), Mesh.from_dict(AXES)
    return build_model(Problem.make(program, mesh, machine(on_chip_bytes, AXES, name)))


def planned(
    function: Callable[..., Any], on_chip_bytes: int | None, *specs: Any, rows: str = "", **options: Any
) -> Any:
    """On four devices, the weight cut by columns; rows: the axes that cut the rows of the input."""
    columns = Pin("w", '[{}, {"x"}]') if not rows else Pin("w", "[{}, {}]")
    pins = [columns, Pin("x", f"[{{{rows}}}, {{}}]")]
    return autoshard.plan(
        function, *specs, mesh={"x": 4}, hardware=machine(on_chip_bytes, {"x": 4}), constraints=pins, **options
    )


WEIGHT, INPUT = f32(INPUTS, OUTPUTS), f32(ROWS, INPUTS)
SMALLER = ROWS * OUTPUTS // 4 * 4
"""Bytes that a device holds of the smaller operand of the gradient's matmul where the weight is cut by columns."""


def barriers(text: str) -> list[str]:
    """The types of what passes the barriers of a StableHLO text."""
    return re.findall(r"stablehlo\.optimization_barrier %\S+ : tensor<([^>]+)>", text)


def test_a_product_is_kept_apart_where_neither_operand_stays_on_the_chip() -> None:
    assert len(planned(sgd, SMALLER - 1, WEIGHT, INPUT).apart) == 1


def test_it_is_not_where_one_of_them_does() -> None:
    assert not planned(sgd, SMALLER, WEIGHT, INPUT).apart


def test_it_is_not_on_machines_that_do_not_say_what_stays_on_the_chip() -> None:
    assert not planned(sgd, None, WEIGHT, INPUT).apart


def test_a_partial_sum_is_not_since_it_is_summed_before_the_update() -> None:
    assert not planned(sgd, 1, WEIGHT, INPUT, rows='"x"').apart


def test_a_matmul_without_an_update_is_not() -> None:
    assert not planned(lambda w, x: x @ w + 1.0, 1, WEIGHT, INPUT).apart


def test_the_barrier_comes_after_the_transpose_which_is_made_one_with_the_matmul() -> None:
    assert barriers(planned(sgd, 1, WEIGHT, INPUT).lower().stablehlo("tpu")) == [f"{INPUTS}x{OUTPUTS // 4}xf32"]


def test_the_barrier_comes_before_a_wider_type() -> None:
    plan = planned(in_bfloat16, 1, WEIGHT, jax.ShapeDtypeStruct((ROWS, INPUTS), jnp.bfloat16))
    assert barriers(plan.lower().stablehlo("tpu")) == [f"{INPUTS}x{OUTPUTS // 4}xbf16"]


def test_constraints_have_the_barrier_too() -> None:
    plan = planned(sgd, 1, WEIGHT, INPUT)
    assert barriers(plan.lower("constraints").stablehlo("tpu")) == [f"{INPUTS}x{OUTPUTS}xf32"]


def test_shardings_alone_leave_the_program_as_it_is() -> None:
    assert not barriers(planned(sgd, 1, WEIGHT, INPUT).lower("shardings").stablehlo("tpu"))


@pytest.mark.parametrize("form", ["explicit", "constraints"])
def test_numbers_are_those_of_one_device(form: str) -> None:
    random = np.random.default_rng(0)
    w, x = (random.normal(size=spec.shape).astype(np.float32) for spec in (WEIGHT, INPUT))
    plan = planned(sgd, 1, WEIGHT, INPUT)
    np.testing.assert_allclose(plan.jit(form=form)(w, x), jax.jit(sgd)(w, x), rtol=1e-5, atol=1e-5)


def test_a_product_that_is_kept_apart_takes_memory_of_its_own() -> None:
    apart, fused = (planned(sgd, size, WEIGHT, INPUT, donate_argnums=0) for size in (1, None))
    (product,) = apart.apart
    name = apart.program.values[product].name
    made = {op.results[0] for op, _ in apart.program.walk() if op.kind == "dot_general"}
    assert name not in {h.what for h in fused.memory.held}
    assert apart_products(apart) <= made
    assert apart.memory.peak_bytes >= fused.memory.peak_bytes


def apart_products(plan: Any) -> set[int]:
    from autoshard.costs.apart import fusion_on

    return set(apart_under(plan.program, plan.schedule, fusion_on(plan.program, plan.machine.profile).updates))


@pytest.mark.parametrize("function", [sgd, momentum])
@pytest.mark.parametrize("on_chip_bytes", [1, 400, 1100, 3000])
def test_network_and_simulation_hold_the_same_bytes(function: Callable[..., Any], on_chip_bytes: int) -> None:
    specs = [WEIGHT] * (2 if function is momentum else 1)
    assert_the_same_bytes(model(function, on_chip_bytes, *specs, INPUT), 40)


@pytest.mark.parametrize("name", ["tpu_v5e", "tpu_v5e@compiler"])
@pytest.mark.parametrize("on_chip_bytes", [1, 1100])
def test_the_checker_works_out_the_same_of_random_plans(name: str, on_chip_bytes: int) -> None:
    built, random, checked = model(sgd, on_chip_bytes, WEIGHT, INPUT, name=name), Random(3), set()
    for _ in range(20):
        assignment = random_assignment(built.repeats.network, random)
        assert assignment is not None
        if not needless_copies(built, assignment):
            plan = unsolved_plan(built, assignment)
            assert [str(f) for f in check_plan(plan.to_dict()).findings] == []
            checked.add(bool(apart_products(plan)))
    assert True in checked


def test_a_plan_that_does_not_name_what_is_kept_apart_is_found() -> None:
    plan = copy.deepcopy(planned(sgd, 1, WEIGHT, INPUT).to_dict())
    del plan["apart"]
    assert ["is to be written before its update" in str(f) for f in check_plan(plan).findings] == [True]


def test_a_plan_that_keeps_something_else_apart_is_found() -> None:
    plan = copy.deepcopy(planned(sgd, 1, WEIGHT, INPUT).to_dict())
    plan["apart"].append(0)
    assert ["apart names w, which no update is to be kept from" in str(f) for f in check_plan(plan).findings] == [True]


def test_types_without_a_size_of_their_own_have_that_of_bfloat16() -> None:
    memory = load_profile("tpu_v5e").memory
    assert memory.on_chip_bytes("int8") == memory.on_chip_bytes("bfloat16") < memory.on_chip_bytes("float32")


def test_what_stays_on_the_chip_may_be_more_than_a_profile_of_ones_own_has_memory(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text("base: tpu_v5e\nname: small\nmemory: {bytes: {value: 33554432}, usable: null}\n")
    assert load_profile(str(file)).memory.on_chip_bytes("bfloat16") > 2**25


def test_a_misspelled_type_of_what_stays_on_the_chip_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text("base: tpu_v5e\nname: odd\nmemory: {on_chip: {bfloat: {value: 9, unit: bytes, source: libtpu}}}\n")
    with pytest.raises(ProfileError, match=r"memory\.on_chip\.bfloat.*'bf16' or 'f32'"):
        load_profile(str(file))
