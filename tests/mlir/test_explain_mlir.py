# ruff: noqa: E501 (lines of MLIR are kept whole)
"""Where a sharding came from, in the names and lines of the file (S2.50 to S2.53)."""

import pytest

from autoshard.errors import InputError
from autoshard.propagation.mlir.explain import explain_mlir

TEXT = """sdy.mesh @mesh = <["x"=2, "y"=2]>
func.func @main(%a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}, {?}]>}, %b: tensor<16x4xf32>)
    -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}, {"y", ?}]>}) {
  %d = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
  %t = stablehlo.tanh %d : tensor<8x4xf32>
  return %t : tensor<8x4xf32>
}"""


@pytest.mark.parametrize("strategy", [None, "basic", "user-priority"])
def test_two_axes_of_a_value_can_have_two_sources(strategy: str | None) -> None:  # S2.50, S2.52
    found = explain_mlir(TEXT, "%d", strategy=strategy)
    assert found.sharding == '<@mesh, [{"x", ?}, {"y", ?}]>'
    x, y = found.origins
    assert (x.axis, x.dim, x.source) == ('"x"', 0, "argument 0 %arg0 (line 2)")
    assert (y.axis, y.dim, y.source) == ('"y"', 1, "result 0 of @main")
    assert x.path == ("stablehlo.dot_general (line 4)",)
    assert y.path == ("stablehlo.tanh (line 5)", "the output of the function")


def test_a_chain_is_told_step_by_step() -> None:  # S2.51
    (found,) = explain_mlir(TEXT, "b").origins
    assert found.path == ("stablehlo.dot_general (line 4)", "stablehlo.tanh (line 5)", "the output of the function")
    assert "through stablehlo.tanh (line 5)" in str(found)


def test_a_statement_of_ones_own_has_no_chain() -> None:
    (found,) = explain_mlir(TEXT, "%a").origins
    assert found.path == ()


def test_the_source_is_a_constraint_and_not_the_op_whose_result_it_constrains() -> None:
    text = TEXT.replace(
        "return %t", '%c = sdy.sharding_constraint %t <@mesh, [{"x"}, {}]> : tensor<8x4xf32>\n  return %c'
    )
    text = text.replace('[{"x", ?}, {?}]>}, %b', "[{}, {?}]>}, %b")
    x = explain_mlir(text, "%d").origins[0]
    assert (x.axis, x.source, x.path) == ('"x"', "sdy.sharding_constraint (line 6)", ("stablehlo.tanh (line 5)",))


def test_an_op_with_a_sharding_of_its_own_is_the_source_though_a_constraint_follows() -> None:
    own = '{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {?}]>]>}'
    text = TEXT.replace("tanh %d :", f"tanh %d {own} :")
    text = text.replace(
        "return %t", '%c = sdy.sharding_constraint %t <@mesh, [{"x"}, {}]> : tensor<8x4xf32>\n  return %c'
    )
    assert explain_mlir(text, "%t").origins[0].source == "stablehlo.tanh (line 5)"


def test_the_source_is_the_tensor_with_the_axis_on_the_same_factor() -> None:
    text = TEXT.replace(
        "%b: tensor<16x4xf32>)", '%b: tensor<16x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}, {"y", ?}]>})'
    )
    text = text.replace('[{?}, {"y", ?}]>}) {', "[{?}, {?}]>}) {")
    y = explain_mlir(text, "%d").origins[1]
    assert y.source == "argument 1 %arg1 (line 2)"


def test_nothing_reached_it_and_no_such_value_are_told_apart() -> None:
    text = TEXT.replace("%b: tensor<16x4xf32>)", "%b: tensor<16x4xf32>, %c: tensor<4xf32>)")
    assert "nothing reached it" in explain_mlir(text, "%c").sharding
    with pytest.raises(InputError, match="no value %q is defined"):
        explain_mlir(text, "%q")
    for wrong in ("what?", "%c#" + "1" * 5000):
        with pytest.raises(InputError, match="no value name"):
            explain_mlir(text, wrong)


def test_every_axis_leads_to_a_statement_and_tracing_changes_nothing(origins) -> None:  # S2.50, S2.51, S2.53
    for seed in [s for s in range(150) if s not in (27, 52, 86)]:
        verdict, detail = origins.compare(seed)
        assert not verdict.startswith("different"), f"seed {seed}: {verdict}\n{detail}"


def test_every_axis_of_a_program_leads_to_a_statement(origins) -> None:  # S2.50, S2.53
    for seed in range(80):
        verdict, detail = origins.compare_program(seed)
        assert not verdict.startswith("different"), f"seed {seed}: {verdict}\n{detail}"


GIVEN = """sdy.mesh @mesh = <["x"=2, "y"=2, "z"=2]>
func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y", ?}p1, {?}]>}, %b: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %m = sdy.manual_computation(%a) in_shardings=[<@mesh, [{?}, {"x", ?}]>] out_shardings=[<@mesh, [{?}, {"x", ?}]>] manual_axes={"x"} (%i: tensor<8x4xf32>) {
    %n = stablehlo.negate %i : tensor<8x4xf32>
    sdy.return %n : tensor<8x4xf32>
  } : (tensor<8x8xf32>) -> tensor<8x8xf32>
  sdy.sharding_group %m group_id=0 : tensor<8x8xf32>
  sdy.sharding_group %b group_id=0 : tensor<8x8xf32>
  %t = stablehlo.tanh %b : tensor<8x8xf32>
  return %t : tensor<8x8xf32>
}"""


def test_the_source_inside_a_manual_computation_is_outside() -> None:  # S2.50, S4.23
    (y,) = explain_mlir(GIVEN, "%n").origins
    assert (y.axis, y.source) == ('"y"', "argument 0 %arg0 (line 2)")
    assert y.path == ("stablehlo.negate (line 4)", "the border of sdy.manual_computation (line 3)")


def test_manual_axes_come_from_the_in_or_out_sharding_and_groups_are_named() -> None:  # S2.52, S4.8
    y, x = explain_mlir(GIVEN, "%t").origins
    assert (x.axis, x.source) == ('"x"', "out-sharding 0 of sdy.manual_computation (line 3)")
    assert (y.axis, y.source) == ('"y"', "argument 0 %arg0 (line 2)")
    assert "a sharding group" in y.path
    assert "a sharding group" in x.path


SEVERAL = """sdy.mesh @mesh = <["x"=2, "y"=2]>
func.func @main(%a: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>}, %s: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}]>}) -> tensor<8x4xf32> {
  %i = stablehlo.constant dense<0> : tensor<i32>
  %out, %mean:2 = stablehlo.optimization_barrier %a, %s, %s : tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>
  %r:2 = stablehlo.while(%j = %i, %v = %out) : tensor<i32>, tensor<8x4xf32>
  cond {
    %n = stablehlo.compare LT, %j, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %n : tensor<i1>
  } do {
    stablehlo.return %j, %v : tensor<i32>, tensor<8x4xf32>
  }
  %n:2 = stablehlo.optimization_barrier %mean#1, %r#1 : tensor<4xf32>, tensor<8x4xf32>
  return %n#1 : tensor<8x4xf32>
}"""


@pytest.mark.parametrize(
    ("value", "sharding"),
    [
        ("%out", '[{"x", ?}, {"y", ?}]'),
        ("%mean", '[{"y", ?}]'),
        ("%mean#1", '[{"y", ?}]'),
        ("%v", '[{"x", ?}, {"y", ?}]'),
        ("%n#1", '[{"x", ?}, {"y", ?}]'),  # the first %n has one result
    ],
)
def test_each_of_the_results_that_an_op_names_is_found(value: str, sharding: str) -> None:
    assert explain_mlir(SEVERAL, value).sharding == f"<@mesh, {sharding}>"


def test_more_results_than_there_are_are_told() -> None:
    with pytest.raises(InputError, match="no value %mean#2 is defined in the module"):
        explain_mlir(SEVERAL, "%mean#2")


def test_a_line_of_a_million_names_is_read_once_and_not_once_for_each() -> None:  # the limit on a test's time judges
    names = "%n, " * 1_000_000
    text = f'module attributes {{my.note = "{names}"}} {{ {" ".join(TEXT.splitlines())} }}'
    (x, _) = explain_mlir(text, "%d").origins
    assert x.source == "argument 0 %arg0 (line 1)"
