"""What unary ops and ops on several inputs of one shape allow, and where their outputs then lie, by proposal 0007."""

from typing import Any

import numpy as np
import pytest
from hand_made import COLUMNS, PAIRS, annotate, graph_model, one_op, spec, whole
from onnx import defs, helper
from rule_cases import N_ARY, ROWS, UNARY, codes, output, warned

from autoshard.onnx import load
from autoshard.onnx.check import check
from autoshard.onnx.specs import ShardingSpec

# -- S1.19 to S1.21: unary ---------------------------------------------------------------------------------------------


def typed(op: str, ins: list[str], shapes: list[tuple], specs: list[ShardingSpec], **attributes: Any) -> Any:
    """One node on inputs of an element type that it takes."""
    schema = defs.get_schema(op, 22)
    first = schema.inputs[0].types
    kind = next(
        (t for t in ("tensor(float)", "tensor(int64)", "tensor(uint8)", "tensor(bool)") if t in first), "tensor(float)"
    )
    number = {"tensor(float)": 1, "tensor(int64)": 7, "tensor(uint8)": 2, "tensor(bool)": 9}[kind]
    model = one_op(op, dict(zip(ins, shapes, strict=True)), specs, **attributes)
    for i, info in enumerate(model.graph.input):
        info.type.tensor_type.elem_type = 9 if op == "Where" and i == 0 else number
    return model


@pytest.mark.parametrize("op", UNARY)
def test_unary_ops_pass_every_cut(op: str) -> None:
    # S1.20, S1.21
    attributes = {"to": 10} if op == "Cast" else {"direction": "LEFT"} if op == "BitShift" else {}
    given = spec("x", [0, 1, 2, 3], {0: 2, 1: 2})
    model = typed(op, ["x"], [(4, 6)], [given], **attributes)
    assert codes(model) == set()
    assert output(model) == "y[0: 2 of 4, 1: 2 of 6] on 0 1 2 3"


def test_the_mask_of_dropout_is_cut_as_its_data() -> None:
    # E30
    model = one_op("Dropout", {"x": (4, 6)}, [spec("x", *ROWS)], outputs=["y", "mask"])
    assert output(model, at=1) == "mask[0: 2 of 4] on {0,1} {2,3}"


def test_constant_of_shape_is_free() -> None:
    # E29: rank and size of the output have nothing to do with the input
    node = helper.make_node("ConstantOfShape", ["shape"], ["y"])
    model = graph_model([node], {}, ["y"], {"shape": np.array([4, 6], np.int64)})
    annotate(model, {0: [whole("shape"), spec("y", *ROWS)]})
    assert codes(model) == set()


# -- S1.22 to S1.28: broadcasts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", N_ARY)
def test_inputs_that_are_cut_otherwise_do_not_fit(op: str) -> None:
    # S1.23, S1.22: two 32x1024, one cut on axis 0, the other on axis 1
    names = ["c", "a", "b"] if op == "Where" else ["a", "b"]
    attributes = {"direction": "LEFT"} if op == "BitShift" else {}
    alike = [spec(n, [0, 1], {0: 2}) for n in names]
    model = typed(op, names, [(32, 1024)] * len(names), alike, devices=2, **attributes)
    assert codes(model) == set()
    assert output(model) == "y[0: 2 of 32] on 0 1"
    other = [*alike[:-1], spec(names[-1], [0, 1], {1: 2})]
    assert "nothing-meets" in codes(typed(op, names, [(32, 1024)] * len(names), other, devices=2, **attributes))


def test_one_cut_and_one_whole_is_a_slice_and_by_the_text_an_error() -> None:
    # E37
    model = one_op("Add", {"a": (8, 8), "b": (8, 8)}, [spec("a", *ROWS), whole("b")])
    assert warned(model) == {"needs-slice"}
    assert codes(model) == set()
    assert codes(model, strict=True) == {"needs-slice"}


BROADCAST = {"a": ("M", 1), "b": (1, "N")}


def test_broadcast_axes_compose() -> None:
    # S1.25, S1.27
    model = one_op("Add", BROADCAST, [spec("a", *ROWS), spec("b", [-1, -2], {1: 2}, COLUMNS)])
    assert codes(model, strict=True) == set()
    assert output(model) == "y[0: 2 of M, 1: 2 of N] on 0 1 2 3"


def test_broadcast_axes_whose_devices_do_not_meet_are_incompatible() -> None:
    # S1.27, the variant: shard (0, 1) needs {0,1} and {2,3}
    model = one_op("Add", BROADCAST, [spec("a", *ROWS), spec("b", [-1, -2], {1: 2}, PAIRS)])
    found = check(load(model)).errors
    assert [f.code for f in found] == ["nothing-meets"]
    assert "{0,1}" in found[0].message and "{2,3}" in found[0].message


def test_three_broadcast_axes_compose() -> None:
    # S1.28
    cubes = {
        "a": {-1: (0, 1, 2, 3), -2: (4, 5, 6, 7)},
        "b": {-1: (0, 1, 4, 5), -2: (2, 3, 6, 7)},
        "c": {-1: (0, 2, 4, 6), -2: (1, 3, 5, 7)},
    }
    shapes = {"a": (2, 1, 1), "b": (1, 2, 1), "c": (1, 1, 2)}
    specs = [spec(n, [-1, -2], {axis: 2}, cubes[n]) for axis, n in enumerate("abc")]
    model = one_op("Sum", shapes, specs, devices=8)
    assert codes(model) == set()
    assert output(model) == "y[0: 2 of 2, 1: 2 of 2, 2: 2 of 2] on 0 1 2 3 4 5 6 7"


def test_a_broadcast_axis_follows_the_input_that_is_not_1() -> None:
    # S1.26
    model = one_op("Mul", {"a": (8, 1), "b": (1, 6)}, [whole("a"), spec("b", [-1, -2], {1: 2}, COLUMNS)])
    assert output(model) == "y[1: 2 of 6] on {0,2} {1,3}"
    ones = one_op("Mul", {"a": (8, 1), "b": (8, 1)}, [spec("a", *ROWS), spec("b", *ROWS)])
    assert output(ones) == "y[0: 2 of 8] on {0,1} {2,3}"


def test_before_opset_7_the_second_input_is_aligned_at_an_axis() -> None:
    given = [spec("x", [-1, -2], {1: 2}, PAIRS), spec("s", [-1, -2], {0: 2}, PAIRS)]
    shapes = {"x": (4, 6, 8), "s": (6,)}
    for op, options in (("PRelu", {}), ("Add", {"broadcast": 1, "axis": 1})):
        model = one_op(op, shapes, given, opset=6, **options)
        assert check(load(model)).findings == ()
        assert output(model) == "y[1: 2 of 6] on {0,1} {2,3}"


def test_by_the_text_a_broadcast_axis_is_on_every_device() -> None:
    # S1.24: only an empty intersection is an error, all else by the text alone
    model = one_op("Add", {"a": (8, 1), "b": (8, 6)}, [spec("a", *ROWS), spec("b", [0, 2], {0: 2})])
    assert codes(model) == set()
    assert warned(model) == {"idle-devices"}
    model = one_op("Add", {"a": (8, 1), "b": (8, 6)}, [spec("a", [0, 2], {0: 2}), spec("b", *ROWS)])
    assert "broadcast-replicated" in codes(model, strict=True)
