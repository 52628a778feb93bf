"""Modules read as programs: what propagation over the program has in common with Shardy's over the module."""

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


def test_a_closed_reshard_does_not_bind_its_operand() -> None:
    text = RESHARD.format(given="", stated='[{"y"}, {}]', returned="%2")
    assert shardings(text) == (["[{?}, {?}]"], ['[{"y", ?}, {?}]'])


def test_nothing_passes_an_open_reshard() -> None:
    text = RESHARD.format(given=X, stated='[{"y", ?}, {?}]', returned="%2")
    assert shardings(text) == (['[{?}, {"x", ?}]'], ['[{"y", ?}, {?}]'])


def test_a_reshard_that_nothing_uses_is_dead() -> None:
    text = RESHARD.format(given="", stated='[{"y"}, {}]', returned="%0")
    assert [op.kind for op, _ in read_mlir(text).program.walk()] == ["tanh"]
