"""Values whose parts over an axis are yet to be combined: by sums, in the Shardy of JAX 0.12 also by maxima, minima."""

import re
from collections.abc import Callable

import pytest
from jaxlib.mlir import ir

from autoshard.errors import InputError, ShardingError, UnsupportedError
from autoshard.frontends.mlir.check import check_mlir
from autoshard.frontends.mlir.context import mlir_context, module_text, parse_module, run_passes
from autoshard.frontends.mlir.program import read_mlir
from autoshard.propagation.mlir.explain import explain_mlir
from autoshard.propagation.mlir.module import propagate_mlir
from autoshard.sharding.layout import AtomMesh
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

MODULE = """
sdy.mesh @mesh = <["x"=2, "y"=4]>
func.func @main(%arg0: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}], unreduced=SUM{"x"}>}) -> tensor<8x8xf32> {
  %0 = stablehlo.transpose %arg0, dims = [1, 0] {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{?}, {?}], unreduced=SUM{"x"}>]>} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = sdy.reshard %0 <@mesh, [{?}, {?}]> : tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}
"""  # noqa: E501
UNFINISHED = re.sub(r"  %1 = .*\n", "", MODULE).replace("return %1", "return %0")


def shardy(text: str, passes: str = "sdy-propagation-pipeline") -> str:
    module = parse_module(text)
    run_passes(module, passes)
    return module_text(module)


def outcome(propagate: Callable[[str], str], text: str) -> str:
    try:
        return propagate(text)
    except InputError as error:
        return str(error)


def reads_maxima() -> bool:
    with mlir_context():
        try:
            ir.Attribute.parse('#sdy.sharding<@mesh, [{}], unreduced=max{"x"}>')
        except ir.MLIRError:
            return False
    return True


needs_maxima = pytest.mark.skipif(not reads_maxima(), reason="the Shardy of JAX 0.10 knows sums alone")


@pytest.mark.parametrize("combiner", ["", *(pytest.param(c, marks=needs_maxima) for c in ("max", "min"))])
@pytest.mark.parametrize("passes", ["sdy-propagation-pipeline", "sdy-basic-propagate"])
def test_what_parts_are_combined_by_is_kept(combiner: str, passes: str) -> None:
    text = MODULE.replace("SUM", combiner)
    strategy = "basic" if "basic" in passes else None
    assert propagate_mlir(text, strategy=strategy) == shardy(text, passes)
    assert f'[{{?}}, {{"y", ?}}], unreduced={combiner}{{"x"}}' in propagate_mlir(text, strategy="basic")


@needs_maxima
def test_maxima_pass_a_manual_computation() -> None:
    text = """
sdy.mesh @mesh = <["x"=2, "y"=4]>
func.func @main(%arg0: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}], unreduced=max{"x"}>}) -> tensor<8x8xf32> {
  %0 = sdy.manual_computation(%arg0) in_shardings=[<@mesh, [{"y"}, {?}], unreduced=max{"x"}>] out_shardings=[<@mesh, [{"y"}, {?}], unreduced=max{"x"}>] manual_axes={"x", "y"} (%arg1: tensor<2x8xf32>) {
    sdy.return %arg1 : tensor<2x8xf32>
  } : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = sdy.reshard %0 <@mesh, [{}, {}]> : tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}
"""  # noqa: E501
    assert propagate_mlir(text) == shardy(text)


@needs_maxima
def test_explain_and_check_read_maxima() -> None:
    text = MODULE.replace("SUM", "max")
    assert explain_mlir(text, "%0").sharding == '<@mesh, [{?}, {"y", ?}], unreduced=max{"x"}>'
    assert check_mlir(text) == []


@needs_maxima
def test_a_program_holds_sums_alone() -> None:
    text = MODULE.replace("SUM", "max")
    with pytest.raises(UnsupportedError, match="leaves a maximum to be taken over devices"):
        read_mlir(text)


def test_a_layout_holds_sums_alone() -> None:
    atoms = AtomMesh.split(Mesh.from_dict({"x": 2}))
    sharding = TensorSharding(None, (), (), TensorSharding.from_text("[] unreduced={x}").unreduced, "max")
    with pytest.raises(ShardingError, match="a layout has partial sums only, no maxima"):
        sharding.to_layout(atoms)


def test_a_sum_that_nothing_finishes_has_the_verdict_of_the_installed_shardy() -> None:
    """That of JAX 0.12 refuses it after propagation, that of 0.10 takes it."""
    text = UNFINISHED.replace("SUM", "")
    assert outcome(propagate_mlir, text) == outcome(shardy, text)
