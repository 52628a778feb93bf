"""Modules whose text carries locations, as JAX writes it with `debug_info`: messages name the lines of the module."""

import jax
import jax.numpy as jnp
import pytest

from autoshard.errors import InputError
from autoshard.frontends.mlir.check import check_mlir
from autoshard.frontends.mlir.context import parse_module
from autoshard.frontends.mlir.places import own_places
from autoshard.frontends.mlir.program import read_mlir
from autoshard.propagation.mlir.explain import explain_mlir
from autoshard.propagation.mlir.module import propagate_mlir

PLAIN = """
sdy.mesh @mesh = <["x"=4, "y"=2]>
func.func @main(%a: tensor<2x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", "y"}, {?}]>}) -> tensor<2x4xf32> {
  %0 = stablehlo.negate %a : tensor<2x4xf32>
  %1 = sdy.sharding_constraint %0 <@mesh, [{}, {"y"}]> : tensor<2x4xf32>
  return %1 : tensor<2x4xf32>
}
"""
LOCATED = """#loc1 = loc("train.py":77:3)
sdy.mesh @mesh = <["x"=4, "y"=2]>
func.func @main(%a: tensor<2x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", "y"}, {?}]>} loc("a")) -> tensor<2x4xf32> {
  %0 = stablehlo.negate %a : tensor<2x4xf32> loc("jit(f)/neg"(#loc1))
  %1 = sdy.sharding_constraint %0 <@mesh, [{}, {"y"}]> : tensor<2x4xf32> loc(callsite("g" at "train.py":70:1))
  return %1 : tensor<2x4xf32> loc(#loc1)
} loc("train.py":60:1)
"""  # noqa: E501


def test_a_finding_has_its_line_in_the_module() -> None:
    assert [str(f) for f in check_mlir(LOCATED)] == [str(f) for f in check_mlir(PLAIN)]
    assert check_mlir(LOCATED)[0].line == 3


def test_a_fault_that_the_verifiers_find_has_its_line_in_the_module() -> None:
    (found,) = check_mlir(LOCATED.replace('{}, {"y"}', '{"y"}, {"y"}'))
    assert found.line == 5
    with pytest.raises(InputError, match="line 5, column"):
        propagate_mlir(LOCATED.replace('{}, {"y"}', '{"y"}, {"y"}'))


@pytest.mark.parametrize("value", ["%a", "%0", "%1"])
def test_values_of_a_module_with_locations_are_explained(value: str) -> None:
    assert str(explain_mlir(LOCATED, value)) == str(explain_mlir(PLAIN, value))


def test_a_module_that_jax_wrote_with_locations_is_explained() -> None:
    text = jax.jit(lambda x: jnp.sin(x) + 1).lower(jnp.ones((4, 4))).as_text(debug_info=True)
    assert explain_mlir(text, "%0").sharding == "no sharding: nothing reached it"


def test_a_program_keeps_the_places_of_the_code() -> None:
    assert next(op.source for op in read_mlir(LOCATED).program.body.ops) == '"jit(f)/neg"("train.py":77:3)'


@pytest.mark.parametrize(
    "line",
    ['%0 = custom_call @loc(%a) {k = "x loc(1)"}', "%loc(", "// as in loc(a)", "#loc = loc(unknown)", "k = loc(1)"],
)
def test_what_is_no_location_behind_an_op_stays(line: str) -> None:
    assert own_places(line) == line


@pytest.mark.parametrize("location", ['loc("train.py":60:1', "loc(#loc7)", "loc(train)"])
def test_a_fault_in_a_location_is_a_fault_of_the_text(location: str) -> None:
    text = LOCATED.replace('loc("train.py":60:1)', location)
    with pytest.raises(InputError, match="cannot read the MLIR module"):
        parse_module(text)
    assert check_mlir(text)[0].severity == "error"
