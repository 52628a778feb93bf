"""Every planted fault is found by its code; its correct twin has none; onnx's own checker lets all pass (S1.48)."""

import onnx
import pytest
from faults import FAULTS, annotation, node, spec_of
from hand_made import COLUMNS, mlp, spec
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from autoshard.errors import AutoshardError
from autoshard.onnx import load
from autoshard.onnx.check import check
from autoshard.onnx.specs import NodeAnnotation, Part, ShardedDim, ShardingSpec, write_annotations, write_spec


def broken_and_mended(name: str) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    broken, mended = mlp(), mlp()
    for model in (broken, mended):
        FAULTS[name].plant(model)
    FAULTS[name].mend(mended)
    return broken, mended


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    # S1.9, S1.10, S1.13, S1.14, S1.15, S1.17
    fault = FAULTS[name]
    broken, _ = broken_and_mended(name)
    findings = [f for f in check(load(broken)).findings if f.code == fault.code]
    assert findings, [str(f) for f in check(load(broken)).findings]
    assert {f.severity for f in findings} == {fault.severity}
    assert all(f.advice or "count" in f.code for f in findings)
    if fault.severity == "warning":
        assert not check(load(broken), strict=True).ok


@pytest.mark.parametrize("name", FAULTS)
def test_its_correct_twin_has_no_findings_at_all(name: str) -> None:
    _, mended = broken_and_mended(name)
    assert [str(f) for f in check(load(mended)).findings] == []
    assert check(load(mended)).annotated


def test_every_fault_has_a_twin_of_its_own() -> None:
    models = [mlp(), *(broken_and_mended(name)[1] for name in FAULTS)]
    assert len({model.SerializeToString(deterministic=True) for model in models}) == 1 + len(FAULTS)


@pytest.mark.parametrize("name", [n for n, f in FAULTS.items() if f.severity == "error"])
def test_the_library_s_own_checker_finds_none_of_them(name: str) -> None:
    # S1.48
    model = mlp()
    FAULTS[name].plant(model)
    onnx.checker.check_model(model, full_check=True)


def test_a_finding_says_where_it_is() -> None:
    model = mlp()
    spec_of(model).sharded_dim[0].axis = 99
    found = check(load(model)).errors[0]
    assert (found.node, found.tensor, found.axis, found.configuration) == ("'up' (Gemm)", "x", 99, "mesh")
    assert str(found).startswith("node 'up' (Gemm), 'x' axis 99: the axis 99 does not exist: the tensor has rank 2")


def test_a_node_without_a_name_is_called_by_its_place() -> None:
    model = mlp()
    node(model).name = ""
    spec_of(model).tensor_name = "ghost"
    assert check(load(model)).errors[0].node == "#0 (Gemm)"


def test_a_misspelt_configuration_is_guessed() -> None:
    model = mlp()
    annotation(model).configuration_id = "mesg"
    assert "did you mean mesh" in check(load(model)).errors[0].advice


def test_a_sound_model_has_no_findings() -> None:
    assert check(load(mlp())).findings == ()


# S1.18: each configuration is checked alone
def test_the_fault_of_one_configuration_is_not_that_of_another() -> None:
    model = mlp()
    model.configuration.add(name="other", num_devices=2)
    one = node(model).device_configurations.add(configuration_id="other")
    write_spec(one.sharding_spec.add(), spec("x", [0, 3], {0: 2}))
    assert [f.configuration for f in check(load(model)).errors] == ["other"]
    assert check(load(model), configuration="mesh").ok
    assert not check(load(model), configuration="other").ok


def test_a_faulty_spec_is_not_followed_by_other_errors() -> None:
    model = mlp()
    spec_of(model).device[0] = 99
    assert {f.code for f in check(load(model)).errors} == {"unknown-device"}


def test_unannotated_models_have_no_findings() -> None:
    model = mlp()
    for each in model.graph.node:
        del each.device_configurations[:]
    assert check(load(model)).annotated == 0
    del model.configuration[:]
    model.ir_version = 9
    assert check(load(model)).findings == ()


def test_symbolic_sizes_are_taken_to_divide_and_that_is_told() -> None:
    # S1.46
    model = mlp()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    assert "taken as true: batch is divisible by 2" in check(load(model)).notes
    assert check(load(model, shapes={"batch": 7})).warnings[0].code == "uneven-shards"
    spec_of(model).sharded_dim[0].simple_sharding[0].dim_param = "batch"
    assert check(load(model)).ok
    assert check(load(model, shapes={"batch": 8})).ok
    spec_of(model).sharded_dim[0].simple_sharding[0].dim_value = 8
    assert [f.code for f in check(load(model)).findings] == ["dim-assumed"]


def test_an_unknown_rank_is_a_warning() -> None:
    nodes = [helper.make_node("Mystery", ["x"], ["a"], domain="own"), helper.make_node("Relu", ["a"], ["y"], name="r")]
    model = mlp()
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    write_spec(
        node(model, 1).device_configurations.add(configuration_id="mesh").sharding_spec.add(), spec("a", [0, 1], {0: 2})
    )
    assert [f.code for f in check(load(model)).warnings] == ["rank-unknown", "rank-unknown"]


def test_a_different_cut_of_the_same_axis_is_no_concern_of_others() -> None:
    model = mlp(w2=spec("w2", [-1, -2], {0: 2}, COLUMNS), more={2: [spec("y", [0, 1, 2, 3], {0: 2, 1: 2})]})
    assert check(load(model)).ok  # S1.3: the output is delivered as it says, whatever the inputs imply


_small = st.none() | st.integers(-3, 5)
_devices = st.lists(st.integers(-3, 5), max_size=5).map(tuple)
_part = st.builds(Part, _small, st.none() | st.integers(-1, 17) | st.just("n"))
_dim = st.builds(ShardedDim, _small, st.lists(_part, max_size=2).map(tuple))
_groups = st.lists(st.tuples(_small, _devices), max_size=3).map(tuple)
_spec = st.builds(
    ShardingSpec, st.sampled_from(["x", "w1", "u", ""]), _devices, _groups, st.lists(_dim, max_size=2).map(tuple)
)
_annotation = st.builds(NodeAnnotation, st.sampled_from(["mesh", "o"]), st.lists(_spec, max_size=3).map(tuple), _small)


def completes(model: onnx.ModelProto) -> bool:
    try:
        load(model).infer()
        load(model).implied()
        return True
    except AutoshardError:
        return False


@settings(max_examples=60)
@given(st.lists(_annotation, max_size=2))
def test_whatever_a_node_says_there_is_an_answer(given: list[NodeAnnotation]) -> None:
    model = mlp()
    write_annotations(node(model), given)
    assert completes(model) is check(load(model)).ok
