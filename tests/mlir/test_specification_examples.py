# ruff: noqa: E501 (lines of MLIR are kept whole)
"""Statements of the specification about modules that are checked nowhere else: hierarchy, edges, loops, constants."""

import re

from jaxlib.mlir import ir

from autoshard.frontends.mlir.context import mlir_context, parse_module, run_passes
from autoshard.propagation.engine import Strategy, run_propagation
from autoshard.propagation.mlir.graph import build_module_graph
from autoshard.propagation.mlir.module import propagate_mlir
from autoshard.propagation.mlir.ops import EDGE
from autoshard.propagation.mlir.passes import ADD_EDGES, import_passes

HIERARCHY = """
sdy.mesh @mesh = <["x"=2, "y"=2]>
func.func @main(%a: tensor<8x8xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x", ?}}{by_add}, {{?}}]>}},
                %b: tensor<8x8xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"y", ?}}{by_dot}, {{?}}]>}}) -> tensor<8x8xf32> {{
  %d = stablehlo.dot_general %b, %b, contracting_dims = [1] x [1] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %s = stablehlo.add %a, %d : tensor<8x8xf32>
  return %s : tensor<8x8xf32>
}}"""


def rows_of_the_sum(by_add: str = "", by_dot: str = "") -> str:
    out = propagate_mlir(HIERARCHY.format(by_add=by_add, by_dot=by_dot), strategy="user-priority")
    match = re.search(r"stablehlo\.add .*?\[\{\"(\w)\"", out)
    assert match is not None
    return match[1]


def test_user_priorities_stand_above_op_priorities() -> None:  # S2.31
    assert rows_of_the_sum() == "x"  # op priorities: elementwise ops before matmuls
    assert rows_of_the_sum(by_add="p1") == "y"  # the user's order goes first
    assert rows_of_the_sum(by_dot="p1") == "x"


REGIONS = """
sdy.mesh @mesh = <["x"=2, "y"=2]>
func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}, {?}]>}, %b: tensor<8x8xf32>, %z: tensor<8x8xf32>, %i: tensor<i32>)
    -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) {
  %w:2 = stablehlo.while(%u = %a, %v = %z) : tensor<8x8xf32>, tensor<8x8xf32>
  cond {
    %p = stablehlo.constant dense<false> : tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %n = stablehlo.negate %u : tensor<8x8xf32>
    stablehlo.return %n, %v : tensor<8x8xf32>, tensor<8x8xf32>
  }
  %c = "stablehlo.case"(%i) ({ stablehlo.return %w#0 : tensor<8x8xf32> }, { stablehlo.return %b : tensor<8x8xf32> }) : (tensor<i32>) -> tensor<8x8xf32>
  %o = stablehlo.optimization_barrier %c : tensor<8x8xf32>
  return %w#0, %w#1, %c, %o : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}"""


def test_every_region_op_ties_what_flows_together() -> None:  # S2.39
    out = propagate_mlir(REGIONS, strategy="op-priority")
    rows = re.escape('<@mesh, [{"x", ?}, {?}]>')
    for op in ("stablehlo.while", "stablehlo.negate", "stablehlo.optimization_barrier"):
        assert re.search(rf"{op}.*{rows}", out), op
    assert re.search(
        r"\}\) \{sdy\.sharding = .*<@mesh, \[\{\"x\", \?\}, \{\?\}\]>.* \(tensor<i32>\) -> ", out
    )  # the case


def test_an_edge_for_each_carried_value_each_with_a_sharding_of_its_own() -> None:  # S2.40
    module = parse_module(REGIONS)
    with mlir_context(), ir.Location.unknown():
        run_passes(module, f"{ADD_EDGES},func.func(sdy-populate-op-sharding-rules)")
        built = build_module_graph(module)
        edges = [n.results[0] for n, name in zip(built.graph.nodes, built.index.names, strict=True) if name == EDGE]
        assert len(edges) == 4  # two of the loop, one of the branches, one of the barrier
        assert len(set(edges)) == 4
        assert all(built.graph.spec(e) is None for e in edges)
        text = '<@mesh, [{?}, {"y", ?}]>'
        attr = ir.Attribute.parse(f"#sdy.sharding{text}")
        built.graph.holders[edges[1]] = built.graph.steps.number(built.index.spec(attr))  # the second value of the loop
        run_propagation(built.graph, Strategy.BASIC)
        assert built.text(edges[1]) == text
        assert built.text(edges[0]) == '<@mesh, [{"x", ?}, {?}]>'


def test_carried_values_keep_one_sharding_whatever_the_body_wants() -> None:  # S2.42
    text = """
    sdy.mesh @mesh = <["x"=2, "y"=2]>
    func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> tensor<8x8xf32> {
      %w = stablehlo.while(%v = %a) : tensor<8x8xf32>
      cond {
        %p = stablehlo.constant dense<false> : tensor<i1>
        stablehlo.return %p : tensor<i1>
      } do {
        %n = stablehlo.negate %v : tensor<8x8xf32>
        %k = sdy.sharding_constraint %n <@mesh, [{}, {"y"}]> : tensor<8x8xf32>
        stablehlo.return %k : tensor<8x8xf32>
      }
      return %w : tensor<8x8xf32>
    }"""
    out = propagate_mlir(text)
    assert out.count("stablehlo.while") == 1
    (loop,) = re.findall(r"stablehlo\.while.*sharding_per_value<\[<@mesh, (\[.*?\])>", out)
    (reshard,) = re.findall(r"sdy\.reshard .*<@mesh, (\[.*?\])>", out)
    assert reshard == '[{}, {"y"}]'  # what the body asks for, and from there back to the loop's
    assert loop == '[{"x"}, {"y"}]'  # one sharding for init, argument and result


def test_the_whole_constant_computation_is_copied_for_each_use() -> None:  # S2.44
    text = """
    sdy.mesh @mesh = <["x"=2]>
    func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
                    %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
      %i = stablehlo.iota dim = 0 : tensor<16xf32>
      %e = stablehlo.exponential %i : tensor<16xf32>
      %s = stablehlo.slice %e [0:8] : (tensor<16xf32>) -> tensor<8xf32>
      %c = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<8xf32>) -> tensor<8x8xf32>
      %0 = stablehlo.add %a, %c : tensor<8x8xf32>
      %1 = stablehlo.add %b, %c : tensor<8x8xf32>
      return %0, %1 : tensor<8x8xf32>, tensor<8x8xf32>
    }"""
    module = parse_module(text)
    run_passes(module, import_passes())
    imported = str(module)
    for op in ("iota", "exponential", "slice", "broadcast_in_dim"):
        assert imported.count(f"stablehlo.{op} ") == 2, op
    out = propagate_mlir(text)
    assert re.search(r'broadcast_in_dim .*\[\{"x"\}, \{\}\]', out)
    assert re.search(r'broadcast_in_dim .*\[\{\}, \{"x"\}\]', out)


def test_an_open_dimension_of_a_constraint_takes_more() -> None:  # S4.7
    text = """
    sdy.mesh @mesh = <["x"=2, "y"=2]>
    func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}, {"y", ?}]>}) -> tensor<8x8xf32> {
      %0 = stablehlo.exponential %a : tensor<8x8xf32>
      %1 = sdy.sharding_constraint %0 <@mesh, [{"x"}, {SECOND}]> : tensor<8x8xf32>
      return %1 : tensor<8x8xf32>
    }"""
    found = propagate_mlir(text.replace("SECOND", "?"), strategy="user-priority")
    assert 'sharding_constraint %0 <@mesh, [{"x"}, {"y", ?}]>' in found
    found = propagate_mlir(text.replace("SECOND", ""), strategy="user-priority")
    assert 'sharding_constraint %0 <@mesh, [{"x"}, {}]>' in found
