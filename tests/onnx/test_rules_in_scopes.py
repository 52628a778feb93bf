"""Specs on calls of functions, inside of functions, and in the bodies of `If`; and that each node is visited once."""

from typing import Any

import numpy as np
from hand_made import COLUMNS, PAIRS, annotate, graph_model, mlp, spec
from onnx import helper
from rule_cases import ROWS, codes, output

from autoshard.onnx import load
from autoshard.onnx.check import check
from autoshard.onnx.specs import NodeAnnotation, ShardingSpec, read_annotations, write_annotations
from autoshard.onnx.structure import sound_configurations
from autoshard.onnx.walk import Walk


def with_function(inner: list[ShardingSpec], outer: list[ShardingSpec]) -> Any:
    """A function of two ops, called once."""
    body = [
        helper.make_node("MatMul", ["a", "b"], ["c"], name="inside"),
        helper.make_node("Softmax", ["c"], ["d"], name="last"),
    ]
    opsets = [helper.make_opsetid("", 22)]
    model = graph_model([helper.make_node("Block", ["x", "w"], ["y"], domain="own", name="call")],
                        {"x": (8, 4)}, ["y"], {"w": (4, 6)})  # fmt: skip
    function = helper.make_function("own", "Block", ["a", "b"], ["d"], body, opsets)
    model.functions.append(function)
    annotate(model, {0: outer})
    if inner:
        write_annotations(model.functions[0].node[0], [NodeAnnotation("mesh", tuple(inner))])
    return model


def test_the_specs_of_a_call_bind_the_inputs_of_the_function() -> None:
    assert codes(with_function([], [spec("x", *ROWS)])) == set()
    assert output(with_function([], [spec("x", *ROWS)])) == "y[0: 2 of 8] on {0,1} {2,3}"
    found = check(load(with_function([], [spec("w", [-1, -2], {1: 2}, COLUMNS)]))).errors
    assert [(f.scope, f.node, f.code) for f in found] == [("function own::Block", "'last' (Softmax)", "whole-axis")]


def test_the_specs_in_a_function_bind_its_inside_in_its_own_names() -> None:
    found = check(load(with_function([spec("x", *ROWS)], []))).errors
    assert [(f.scope, f.code) for f in found] == [("function own::Block", "unknown-tensor")]
    assert check(load(with_function([spec("a", *ROWS)], []))).ok
    assert [f.code for f in check(load(with_function([spec("c", *ROWS), spec("a", [0, 1], {5: 2})], []))).errors] == [
        "axis-range"
    ]


def test_bodies_of_if_are_scopes_that_see_what_is_around_them() -> None:
    branch = helper.make_graph(
        [helper.make_node("Softmax", ["x"], ["t"], name="soft")],
        "then",
        [],
        [helper.make_tensor_value_info("t", 1, [8, 4])],
    )
    other = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["e"])], "else", [], [helper.make_tensor_value_info("e", 1, [8, 4])]
    )
    nodes = [
        helper.make_node("Exp", ["z"], ["x"]),
        helper.make_node("If", ["flag"], ["y"], then_branch=branch, else_branch=other, name="if"),
    ]
    model = graph_model(nodes, {"z": (8, 4)}, ["y"], {"flag": np.array(True)})
    annotate(model, {0: [spec("z", [-1, -2], {1: 2}, PAIRS)]})
    found = check(load(model)).errors
    assert [(f.scope, f.node, f.code) for f in found] == [
        ("node 'if' (If).then_branch", "'soft' (Softmax)", "whole-axis")
    ]
    annotate(model, {0: [spec("z", *ROWS)]})
    assert check(load(model)).ok
    done = load(model).infer().proto
    inner = next(a.g.node[0] for a in done.graph.node[1].attribute if a.name == "then_branch")
    assert [str(s) for a in read_annotations(inner) for s in a.specs] == [
        "x[0: 2 of 8] on {0,1} {2,3}",
        "t[0: 2 of 8] on {0,1} {2,3}",
    ]
    assert output(model, 1) == "y[0: 2 of 8] on {0,1} {2,3}"


def test_a_walk_visits_every_node_once() -> None:
    loaded = load(mlp())

    visits = Walk(loaded, sound_configurations(loaded.proto)[0]).run()
    assert [v.name for v in visits] == ["'up' (Gemm)", "'act' (Relu)", "'down' (Gemm)"]
