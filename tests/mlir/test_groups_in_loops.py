"""Sharding groups with arguments of a loop's body: the text comes out as from Shardy."""

import pytest
from loop_in_group import LOOP

from autoshard.frontends.mlir.context import mlir_context, module_text, parse_module, run_passes
from autoshard.propagation.mlir.module import propagate_mlir

X = ' {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}, {?}]>}'


def by_shardy(text: str, strategy: str | None) -> str:
    edges = f"sdy-add-data-flow-edges,sdy-{strategy}-propagate,func.func(sdy-sink-data-flow-edges)"
    module = parse_module(text)
    with mlir_context():
        run_passes(module, edges if strategy else "sdy-propagation-pipeline")
        return module_text(module)


STRATEGIES = (None, "basic", "user-priority")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_argument_of_a_loop_follows_its_group(strategy: str | None) -> None:
    text = LOOP.format(of_carried="", of_other=X, behind="")
    found = propagate_mlir(text, strategy=strategy)
    assert found == by_shardy(text, strategy)
    assert '{"x"' in found.split("stablehlo.while")[1].splitlines()[0]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_reaches_the_argument_of_a_loop_is_not_passed_on_to_its_group(strategy: str | None) -> None:
    text = LOOP.format(of_carried=X, of_other="", behind="")
    found = propagate_mlir(text, strategy=strategy)
    assert found == by_shardy(text, strategy)
    assert "sdy.sharding" not in found.split("stablehlo.negate")[1].splitlines()[0]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_argument_and_the_result_of_a_loop_may_be_in_two_groups(strategy: str | None) -> None:
    text = LOOP.format(of_carried=X, of_other="", behind="sdy.sharding_group %r#1 group_id=1 : tensor<8x8xf32>")
    assert propagate_mlir(text, strategy=strategy) == by_shardy(text, strategy)


def test_groups_that_meet_in_a_loop_start_one_after_the_other() -> None:
    stated = "{{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {{}}]>]>}}"
    first, second = stated.format('{"x", ?}'), stated.format('{"y"}')
    behind = f"""%c = stablehlo.exponential %b {second} : tensor<8x8xf32>
  sdy.sharding_group %c group_id=1 : tensor<8x8xf32>
  sdy.sharding_group %r#1 group_id=1 : tensor<8x8xf32>"""
    text = LOOP.format(of_carried="", of_other="", behind=behind).replace("negate %b", f"negate %b {first}")
    found = propagate_mlir(text, strategy="basic")
    assert found == by_shardy(text, "basic")
    assert found.count("sdy.sharding_constraint") == 2  # those of the second group, whose members differ by then


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_member_that_is_listed_twice_has_the_constraints_of_the_installed_shardy(strategy: str | None) -> None:
    text = """
sdy.mesh @mesh = <["x"=2]>
func.func @main(%a: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> tensor<2x2xf32> {
  %b = stablehlo.negate %a {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {"x"}]>]>} : tensor<2x2xf32>
  sdy.sharding_group %b group_id=0 : tensor<2x2xf32>
  sdy.sharding_group %a group_id=0 : tensor<2x2xf32>
  sdy.sharding_group %b group_id=0 : tensor<2x2xf32>
  return %b : tensor<2x2xf32>
}
"""
    assert propagate_mlir(text, strategy=strategy) == by_shardy(text, strategy)
