# ruff: noqa: E501 (lines of MLIR are kept whole)
"""Propagation over MLIR text: equal to Shardy's passes on random modules, and the examples of the specification."""

import re
from typing import Any

import pytest

from autoshard.errors import AutoshardError, InputError
from autoshard.frontends.mlir.check import check_mlir
from autoshard.frontends.mlir.context import mlir_context, module_text, parse_module, run_passes, run_passes_isolated
from autoshard.frontends.mlir.program import read_mlir
from autoshard.propagation import propagate
from autoshard.propagation.mlir.module import propagate_mlir

# Shardy's own passes end the process on some seeds; none of these.
SEEDS = range(120)


@pytest.mark.parametrize("start", range(0, len(SEEDS), 20))
def test_random_modules_come_out_as_from_shardy(comparison, start: int) -> None:
    for seed in SEEDS[start : start + 20]:
        verdict, detail = comparison.compare(seed)
        assert verdict != "different", f"seed {seed} {comparison.way_of(seed)}\n{detail}"


WIDE_SEEDS = [s for s in range(140) if s not in (27, 52, 86)]


@pytest.mark.parametrize("start", range(0, len(WIDE_SEEDS), 23))
def test_unusual_random_modules_come_out_as_from_shardy(comparison, start: int) -> None:
    for seed in WIDE_SEEDS[start : start + 23]:
        verdict, detail = comparison.compare(seed, wide=True)
        if "has unreduced axes mismatch" in detail:  # the Shardy of JAX 0.12 refuses what that of 0.10 takes
            continue
        assert verdict != "different", f"seed {seed} {comparison.way_of(seed)}\n{detail}"


def test_most_random_modules_are_compared_and_not_refused(comparison) -> None:
    assert sum(comparison.compare(seed)[0] == "equal" for seed in SEEDS[:40]) >= 36


def found(text: str, value: str) -> str:
    match = re.search(rf"{re.escape(value)}[ :].*?(<@\w+, \[.*?\](?:, replicated=\{{[^}}]*\}})?>)", text)
    assert match is not None, text
    return match[1]


GROUP = """
sdy.mesh @mesh_xy = <["x"=2, "y"=2]>
func.func @main(%arg0: tensor<8x2xi64> {{sdy.sharding = #sdy.sharding<@mesh_xy, [{{"x"}}, {{"y"}}]>}}) -> tensor<8x2xi64> {{
  {first}
  %0 = stablehlo.constant dense<0> : tensor<8x2xi64>
  {second}
  return %0 : tensor<8x2xi64>
}}"""


def test_the_sharding_group_of_the_compiler_api() -> None:  # S4.9, S4.10
    tied = GROUP.format(
        first="sdy.sharding_group %arg0 group_id=0 : tensor<8x2xi64>",
        second="sdy.sharding_group %0 group_id=0 : tensor<8x2xi64>",
    )
    out = propagate_mlir(tied)
    assert out.count('<@mesh_xy, [{"x"}, {"y"}]>') == 3  # input, constant, output
    free = propagate_mlir(GROUP.format(first="", second=""))
    assert free.count('[{"x"}, {"y"}]') == 1


def test_the_same_by_the_output_sharding() -> None:  # S4.13
    text = GROUP.format(first="", second="").replace(
        "-> tensor<8x2xi64> {", '-> (tensor<8x2xi64> {sdy.sharding = #sdy.sharding<@mesh_xy, [{"x"}, {"y"}]>}) {'
    )
    assert propagate_mlir(text).count('[{"x"}, {"y"}]') == 3


MANUAL = """
sdy.mesh @mesh = <["data"=4, "model"=2]>
func.func @main(%x: tensor<2x16xf32> {data}, %w: tensor<16x32xf32>) -> tensor<2x32xf32> {{
  %0 = sdy.manual_computation(%x, %w)
    in_shardings=[<@mesh, [{{?}}, {{"model", ?}}]>, <@mesh, [{{"model", ?}}, {{?}}]>]
    out_shardings=[<@mesh, [{{?}}, {{?}}], replicated={{"model"}}>] manual_axes={{"model"}}
    (%a: tensor<2x8xf32>, %b: tensor<8x32xf32>) {{
    %1 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<2x8xf32>, tensor<8x32xf32>) -> tensor<2x32xf32>
    %2 = "stablehlo.all_reduce"(%1) ({{
      ^bb0(%l: tensor<f32>, %r: tensor<f32>):
        %s = stablehlo.add %l, %r : tensor<f32>
        stablehlo.return %s : tensor<f32>
    }}) {{replica_groups = dense<[[0, 1], [2, 3], [4, 5], [6, 7]]> : tensor<4x2xi64>}} : (tensor<2x32xf32>) -> tensor<2x32xf32>
    sdy.return %2 : tensor<2x32xf32>
  }} : (tensor<2x16xf32>, tensor<16x32xf32>) -> tensor<2x32xf32>
  return %0 : tensor<2x32xf32>
}}"""


@pytest.mark.smoke
def test_free_axes_pass_through_a_manual_computation() -> None:  # S2.9, S2.10, S4.21, S4.23
    data = '{sdy.sharding = #sdy.sharding<@mesh, [{"data", ?}, {?}]>}'
    out = propagate_mlir(MANUAL.format(data=data), strategy="basic")
    assert 'in_shardings=[<@mesh, [{"data", ?}, {"model", ?}]>, <@mesh, [{"model", ?}, {?}]>]' in out
    assert 'out_shardings=[<@mesh, [{"data", ?}, {?}], replicated={"model"}>]' in out
    assert out.count('#sdy.sharding_per_value<[<@mesh, [{"data", ?}, {?}]>]>') >= 2  # the dot and the all-reduce


@pytest.mark.smoke
def test_a_dangling_constraint_binds_its_operand() -> None:  # S4.3, S4.4
    text = """
    sdy.mesh @mesh = <["x"=2]>
    func.func @main(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
      %0 = stablehlo.exponential %a : tensor<8x8xf32>
      %1 = sdy.sharding_constraint %0 <@mesh, [{"x"}, {}]> : tensor<8x8xf32>
      return %0 : tensor<8x8xf32>
    }"""
    assert 'exponential %arg0 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>}' in propagate_mlir(text)


def test_a_constraint_leaves_other_uses_alone() -> None:  # S4.5
    text = """
    sdy.mesh @mesh = <["x"=2, "y"=2]>
    func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>}) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
      %1 = sdy.sharding_constraint %a <@mesh, [{"x"}, {}]> : tensor<8x8xf32>
      %2 = stablehlo.negate %1 : tensor<8x8xf32>
      %3 = stablehlo.tanh %a : tensor<8x8xf32>
      return %2, %3 : tensor<8x8xf32>, tensor<8x8xf32>
    }"""
    out = propagate_mlir(text, strategy="user-priority")
    assert found(out, "stablehlo.negate") == '<@mesh, [{"x", ?}, {?}]>'
    assert found(out, "stablehlo.tanh") == '<@mesh, [{?}, {"y", ?}]>'


def test_propagation_does_not_cross_meshes() -> None:  # S0.63, S0.64
    text = """
    sdy.mesh @one = <["x"=2]>
    sdy.mesh @two = <["y"=2]>
    func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@one, [{"x", ?}]>},
                    %b: tensor<8xf32> {sdy.sharding = #sdy.sharding<@two, [{?}]>}) -> tensor<8xf32> {
      %0 = stablehlo.add %a, %b : tensor<8xf32>
      return %0 : tensor<8xf32>
    }"""
    assert "sharding_per_value" not in propagate_mlir(text, strategy="aggressive")


@pytest.mark.smoke
def test_constants_are_split_per_use() -> None:  # S2.43, S2.45
    text = """
    sdy.mesh @mesh = <["x"=2]>
    func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
                    %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
      %c = stablehlo.constant dense<1.0> : tensor<8x8xf32>
      %0 = stablehlo.add %a, %c : tensor<8x8xf32>
      %1 = stablehlo.add %b, %c : tensor<8x8xf32>
      return %0, %1 : tensor<8x8xf32>, tensor<8x8xf32>
    }"""
    out = propagate_mlir(text)
    assert len(re.findall(r"sdy.constant", out)) == 2
    assert 'constant {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>}' in out
    assert 'constant {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {"x"}]>]>}' in out


@pytest.mark.smoke
def test_bytecode_is_read() -> None:
    text = GROUP.format(first="", second="")
    with mlir_context():
        module = parse_module(text)
        path_free = bytearray()

        class Sink:
            def write(self, data: bytes) -> int:
                path_free.extend(data)
                return len(data)

        module.operation.write_bytecode(Sink())
    assert propagate_mlir(bytes(path_free)) == propagate_mlir(text)


def test_what_comes_out_can_be_read_again_and_stays_the_same() -> None:  # S2.35
    data = '{sdy.sharding = #sdy.sharding<@mesh, [{"data", ?}, {?}]>}'
    once = propagate_mlir(MANUAL.format(data=data), strategy="user-priority")
    assert propagate_mlir(once, strategy="user-priority") == once


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("func.func @main(", "cannot read the MLIR module: line 1"),
        ("module {}", "the module has no functions"),
        (
            'sdy.mesh @mesh = <["x"=2]>\nfunc.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {\n'
            '%0 = sdy.data_flow_edge %a sharding=<@mesh, [{"x", ?}]> : tensor<8xf32>\nreturn %0 : tensor<8xf32> }',
            "sdy.data_flow_edge on argument 0 of a function",
        ),
        ("func.func @f() { return }\nfunc.func @g() { return }", "none is called main: f, g"),
    ],
)
def test_modules_that_cannot_be_propagated_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        propagate_mlir(text)


@pytest.mark.parametrize("wrong", [None, 5, ["module {}"]])
def test_what_is_no_text_is_no_module(wrong: Any) -> None:
    for asked in (propagate_mlir, check_mlir):
        with pytest.raises(InputError, match="give a module as MLIR text or bytecode"):
            asked(wrong)


def test_passes_can_run_in_a_process_of_their_own() -> None:
    text = (
        'sdy.mesh @mesh = <["x"=2]>\nfunc.func @main(%a: tensor<8xf32>) -> tensor<8xf32> { return %a : tensor<8xf32> }'
    )
    assert run_passes_isolated(text, "sdy-basic-propagate") == module_text(parse_module(text))
    with pytest.raises(InputError, match="failed"):
        run_passes_isolated(text.replace("main", "f") + text[27:].replace("main", "g"), "sdy-basic-propagate")


@pytest.mark.smoke
def test_a_module_as_program_gives_the_shardings_of_the_module() -> None:
    text = """
    sdy.mesh @mesh = <["x"=2, "y"=2]>
    func.func @main(%a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}, {?}]>}, %b: tensor<16x4xf32>)
        -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}, {"y", ?}]>}) {
      %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
      %1 = stablehlo.tanh %0 : tensor<8x4xf32>
      return %1 : tensor<8x4xf32>
    }"""
    read = read_mlir(text)
    assert read.mesh is not None
    assert read.program.input_names == ("arg0", "arg1")
    assert [op.kind for op in read.program.body.ops] == ["dot_general", "tanh"]
    result = propagate(read.program, read.mesh, read.shardings, outputs=read.outputs)
    values = [str(result.values[v]) for v in sorted(result.values)]
    assert values == ['[{"x", ?}, {?}]', '[{?}, {"y", ?}]', '[{"x", ?}, {"y", ?}]', '[{"x", ?}, {"y", ?}]']


def test_programs_and_modules_agree_with_loops() -> None:
    text = """
    sdy.mesh @mesh = <["x"=2]>
    func.func @main(%a: tensor<32x96xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}, {?}]>}) -> tensor<32x96xf32> {
      %c = stablehlo.constant dense<0> : tensor<i32>
      %r:2 = stablehlo.while(%i = %c, %v = %a) : tensor<i32>, tensor<32x96xf32>
      cond {
        %n = stablehlo.constant dense<4> : tensor<i32>
        %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      } do {
        %one = stablehlo.constant dense<1> : tensor<i32>
        %j = stablehlo.add %i, %one : tensor<i32>
        %w = stablehlo.tanh %v : tensor<32x96xf32>
        stablehlo.return %j, %w : tensor<i32>, tensor<32x96xf32>
      }
      return %r#1 : tensor<32x96xf32>
    }"""  # S2.41
    read = read_mlir(text)
    assert read.mesh is not None
    result = propagate(read.program, read.mesh, read.shardings)
    wide = [v.id for v in read.program.values if v.type.shape == (32, 96)]
    assert {str(result.values[v]) for v in wide} == {'[{"x", ?}, {?}]'}
    out = propagate_mlir(text, strategy="user-priority")
    assert found(out, "stablehlo.tanh") == '<@mesh, [{"x", ?}, {?}]>'


def test_what_the_branches_of_an_if_state_holds_in_the_program() -> None:
    text = """
    sdy.mesh @mesh = <["x"=2]>
    func.func @main(%p: tensor<i1>, %a: tensor<8xf32>) -> tensor<8xf32> {
      %r = "stablehlo.if"(%p) ({
        %0 = sdy.sharding_constraint %a <@mesh, [{"x"}]> : tensor<8xf32>
        stablehlo.return %0 : tensor<8xf32>
      }, {
        stablehlo.return %a : tensor<8xf32>
      }) : (tensor<i1>) -> tensor<8xf32>
      return %r : tensor<8xf32>
    }"""
    read = read_mlir(text)
    assert read.mesh is not None
    result = propagate(read.program, read.mesh, read.shardings)
    assert str(result.values[read.program.body.args[1]]) == '[{"x"}]'


def test_the_passes_themselves_are_registered() -> None:
    module = parse_module('sdy.mesh @mesh = <["x"=2]>')
    with mlir_context():
        run_passes(module, "sdy-lift-inlined-meshes")
    with pytest.raises((InputError, ValueError)):
        run_passes(module, "no-such-pass")


RESHAPE = """
sdy.mesh @mesh = <["x"=4]>
func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<2x4xf32> {
  %0 = stablehlo.reshape %a : (tensor<8xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}"""


def test_results_on_a_sub_axis_are_kept_or_gathered() -> None:  # S0.32, S0.33
    kept, gathered = propagate_mlir(RESHAPE, keep_sub_axes=True), propagate_mlir(RESHAPE)
    assert '-> (tensor<2x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x":(1)2}, {"x":(2)2}]>})' in kept
    assert "-> (tensor<2x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>})" in gathered


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (
            "%0 = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1] : "
            "(tensor<4x8x32xf32>, tensor<4x32x16xf32>) -> tensor<4x8x16xf32>",
            "([i, j, l], [i, l, k])->([i, j, k]) {i=4, j=8, k=16, l=32} reduction={l}",
        ),  # S2.14
        (
            "%0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : "
            "(tensor<8x32xf32>, tensor<32x16xf32>) -> tensor<8x16xf32>",
            "([i, k], [k, j])->([i, j]) {i=8, j=16, k=32} reduction={k}",
        ),  # S2.15
    ],
)
def test_rules_come_from_the_registry(line: str, rule: str) -> None:
    a, b, result = re.search(r"\((.*), (.*)\) -> (.*)", line).groups()  # type: ignore[union-attr]
    text = f"func.func @main(%a: {a}, %b: {b}) -> {result} {{\n  {line}\n  return %0 : {result}\n}}"
    assert str(read_mlir(text).program.body.ops[0].rule) == rule


FUNCTION = "func.func {kind} @{name}(%a: tensor<8xf32>) -> tensor<8xf32>"
BODY = " {{\n  %0 = func.call @{callee}(%a) : (tensor<8xf32>) -> tensor<8xf32>\n  return %0 : tensor<8xf32>\n}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "func.func private @ext(tensor<8xf32>) -> tensor<8xf32>\n"
            + FUNCTION.format(kind="public", name="main")
            + BODY.format(callee="ext"),
            "@main calls @ext, which has no body",
        ),
        (FUNCTION.format(kind="public", name="main") + BODY.format(callee="main"), "@main calls itself"),
        (
            FUNCTION.format(kind="public", name="main")
            + BODY.format(callee="g")
            + FUNCTION.format(kind="private", name="g")
            + BODY.format(callee="g"),
            "@g calls itself",
        ),
        (
            "func.func @main(%a: tensor<?xf32>) -> tensor<?xf32> {\n  %0 = stablehlo.negate %a : tensor<?xf32>\n"
            "  return %0 : tensor<?xf32>\n}",
            "static shape",
        ),
    ],
)
def test_what_would_end_the_process_is_refused(text: str, message: str) -> None:
    with pytest.raises(AutoshardError, match=message):
        propagate_mlir(text)


def test_named_computations_that_the_import_passes_refuse_are_told_what_to_try(random_module) -> None:
    text = random_module.random_module(15)
    with pytest.raises(InputError, match="--strategy user-priority"):
        propagate_mlir(text)
    assert "func.func public @main" in propagate_mlir(text, strategy="user-priority")


def test_passes_that_take_too_long_are_told() -> None:
    with pytest.raises(InputError, match=r"longer than 0\.001 s"):
        run_passes_isolated("", "sdy-basic-propagate", timeout_s=0.001)
