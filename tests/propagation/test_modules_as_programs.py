"""Modules read as programs: what propagation over the program has in common with Shardy's over the module."""

import pytest
from loop_in_group import LOOP

from autoshard.errors import AutoshardError
from autoshard.frontends.mlir.program import read_mlir
from autoshard.propagation import propagate


def shardings(text: str) -> tuple[list[str], list[str]]:
    """What the arguments and the results of the main function get."""
    read = read_mlir(text)
    assert read.mesh is not None
    found = propagate(read.program, read.mesh, read.shardings, groups=read.groups)
    body = read.program.body
    return [str(found.values[v]) for v in body.args], [str(found.values[v]) for v in body.results]


RESHARD = """
sdy.mesh @mesh = <["x"=2, "y"=4]>
func.func @main(%a: tensor<8x8xf32>{given}) -> tensor<8x8xf32> {{
  %0 = stablehlo.tanh %a : tensor<8x8xf32>
  %1 = sdy.reshard %0 <@mesh, {stated}> : tensor<8x8xf32>
  %2 = stablehlo.tanh %1 : tensor<8x8xf32>
  return {returned} : tensor<8x8xf32>
}}"""
X = ' {sdy.sharding = #sdy.sharding<@mesh, [{?}, {"x", ?}]>}'

DIFFERENT = """
sdy.mesh @mesh = <["x"=2, "y"=4]>
func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}, {?}]>},
                %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y", ?}, {?}]>}) -> tensor<8x8xf32> {
  sdy.sharding_group %a group_id=0 : tensor<8x8xf32>
  sdy.sharding_group %b group_id=0 : tensor<8x8xf32>
  %0 = stablehlo.negate %a : tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
"""


def test_a_closed_reshard_does_not_bind_its_operand() -> None:
    text = RESHARD.format(given="", stated='[{"y"}, {}]', returned="%2")
    assert shardings(text) == (["[{?}, {?}]"], ['[{"y", ?}, {?}]'])


def test_nothing_passes_an_open_reshard() -> None:
    text = RESHARD.format(given=X, stated='[{"y", ?}, {?}]', returned="%2")
    assert shardings(text) == (['[{?}, {"x", ?}]'], ['[{"y", ?}, {?}]'])


def test_a_reshard_that_nothing_uses_is_dead() -> None:
    text = RESHARD.format(given="", stated='[{"y"}, {}]', returned="%0")
    assert [op.kind for op, _ in read_mlir(text).program.walk()] == ["tanh"]


def test_the_argument_of_a_loop_follows_its_group() -> None:
    arguments, _ = shardings(LOOP.format(of_carried="", of_other=X, behind=""))
    assert arguments[0] == '[{?}, {"x", ?}]'


def test_what_reaches_the_argument_of_a_loop_is_not_passed_on_to_its_group() -> None:
    arguments, _ = shardings(LOOP.format(of_carried=X, of_other="", behind=""))
    assert arguments[1] == "[{?}, {?}]"


def test_members_that_start_from_different_shardings_keep_them() -> None:
    arguments, _ = shardings(DIFFERENT)
    assert [a.split(",")[0] for a in arguments] == ['[{"x"', '[{"y"']


def test_groups_that_share_a_value_are_one() -> None:
    text = """
    sdy.mesh @mesh = <["x"=2]>
    func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}]>}, %b: tensor<8xf32>,
                    %c: tensor<8xf32>) -> tensor<8xf32> {
      return %a : tensor<8xf32>
    }"""
    read = read_mlir(text)
    assert read.mesh is not None
    a, b, c = read.program.body.args
    found = propagate(read.program, read.mesh, read.shardings, groups=[[a, b], [b, c]])
    assert {str(found.values[v]) for v in (a, b, c)} == {'[{"x", ?}]'}


CALLS = """
func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
  %0 = func.call @f(%a) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}}
func.func private @f{body}"""
AGAIN = """(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @f(%a) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}"""


@pytest.mark.parametrize(
    ("body", "message"), [("(tensor<4xf32>) -> tensor<4xf32>", "which has no body"), (AGAIN, "@f calls itself")]
)
def test_calls_that_cannot_be_inlined_are_refused(body: str, message: str) -> None:
    """In Shardy's passes they end the process."""
    with pytest.raises(AutoshardError, match=message):
        read_mlir(CALLS.format(body=body))
