"""Every planted fault is found by its code, and its correct twin is not; onnx's own checker lets all pass (S1.48)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import onnx
import pytest
from hand_made import ALL, COLUMNS, PAIRS, mlp, spec
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from autoshard.errors import AutoshardError
from autoshard.onnx import load
from autoshard.onnx.check import check
from autoshard.onnx.specs import NodeAnnotation, Part, ShardedDim, ShardingSpec, write_annotations, write_spec

Change = Callable[[onnx.ModelProto], None]


@dataclass(frozen=True)
class Fault:
    """A change that plants it, the code that tells it, and a change that does not."""

    code: str
    plant: Change
    twin: Change
    severity: str = "error"


def node(model: Any, index: int = 0) -> Any:
    return model.graph.node[index]


def annotation(model: Any, index: int = 0) -> Any:
    return node(model, index).device_configurations[0]


def spec_of(model: Any, at: int = 0) -> Any:
    return annotation(model).sharding_spec[at]


def nothing(model: Any) -> None:
    """The twin is the model itself."""


def replace(at: int, given: ShardingSpec) -> Change:
    def change(model: Any) -> None:
        target = spec_of(model, at)
        target.Clear()
        write_spec(target, given)

    return change


def fused(
    *parts: tuple[int | None, int | None], axis: int = 0, devices: tuple[int, ...] = (0, 1, 2, 3)
) -> ShardingSpec:
    return ShardingSpec("x", devices, (), (ShardedDim(axis, tuple(Part(m, n) for n, m in parts)),))


def in_pairs(*parts: tuple[int | None, int | None]) -> ShardingSpec:
    return ShardingSpec("x", (-1, -2), tuple(PAIRS.items()), fused(*parts).dims)


def groups(*given: tuple[int, tuple[int, ...]], device: tuple[int, ...] = (-1, -2)) -> ShardingSpec:
    return ShardingSpec("x", device, given, (ShardedDim(0, (Part(2),)),))


def do(statement: str) -> Change:
    """A change in one line; `m` is the model, `n` its first node, `a` its annotation, `s` the spec of x."""

    def change(model: Any) -> None:
        names = {"m": model, "n": node(model), "a": annotation(model), "s": spec_of(model), "node": node}
        exec(statement, names)

    return change


FAULTS = {
    "unknown configuration": Fault("unknown-configuration", do("a.configuration_id = 'mesg'"), nothing),
    "missing configuration": Fault("no-configuration-id", do("a.ClearField('configuration_id')"), nothing),
    "empty configuration": Fault("no-configuration-id", do("a.configuration_id = ''"), nothing),
    "no configurations at all": Fault("unknown-configuration", do("del m.configuration[:]"), nothing),
    "two configurations of one name": Fault(
        "configuration-twice",
        do("m.configuration.add(name='mesh', num_devices=4)"),
        do("m.configuration.add(name='other', num_devices=4)"),
    ),
    "configuration without name": Fault(
        "configuration-without-name",
        do("m.configuration.add(num_devices=2)"),
        do("m.configuration.add(name='b', num_devices=2)"),
    ),
    "old ir_version": Fault("old-ir-version", do("m.ir_version = 10"), do("m.ir_version = 12")),
    "wrong count of device names": Fault(
        "device-names", do("m.configuration[0].device.extend('abc')"), do("m.configuration[0].device.extend('abcd')")
    ),
    "negative num_devices": Fault("device-count", do("m.configuration[0].num_devices = -4"), nothing),
    "no num_devices": Fault("no-device-count", do("m.configuration[0].ClearField('num_devices')"), nothing),
    "absurdly many devices": Fault(
        "device-count", do("m.configuration[0].num_devices = 2**31 - 1"), do("m.configuration[0].num_devices = 4096")
    ),
    "unknown tensor": Fault("unknown-tensor", do("s.tensor_name = 'ghost'"), nothing),
    "tensor of another node": Fault("unknown-tensor", do("a.sharding_spec.add(tensor_name='y', device=[0])"), nothing),
    "missing tensor name": Fault("no-tensor-name", do("s.ClearField('tensor_name')"), nothing),
    "two specs for one tensor": Fault("spec-twice", do("a.sharding_spec.add().CopyFrom(s)"), nothing),
    "two entries for one configuration": Fault(
        "annotation-twice",
        do("n.device_configurations.add().CopyFrom(a)"),
        do("m.configuration.add(name='o', num_devices=4); n.device_configurations.add(configuration_id='o')"),
    ),
    "axis 99": Fault("axis-range", do("s.sharded_dim[0].axis = 99"), do("s.sharded_dim[0].axis = -2")),
    "axis below -r": Fault("axis-range", do("s.sharded_dim[0].axis = -3"), do("s.sharded_dim[0].axis = 0")),
    "missing axis": Fault("no-axis", do("s.sharded_dim[0].ClearField('axis')"), nothing),
    "axis twice": Fault(
        "axis-twice",
        replace(0, ShardingSpec("x", (0, 1, 2, 3), (), (ShardedDim(0, (Part(2),)), ShardedDim(0, (Part(2),))))),
        nothing,
    ),
    "axis 0 and -r": Fault(
        "axis-twice",
        replace(0, ShardingSpec("x", (0, 1, 2, 3), (), (ShardedDim(0, (Part(2),)), ShardedDim(-2, (Part(2),))))),
        nothing,
    ),
    "num_shards 0": Fault("shard-count", do("s.sharded_dim[0].simple_sharding[0].num_shards = 0"), nothing),
    "missing num_shards": Fault(
        "no-shard-count", do("s.sharded_dim[0].simple_sharding[0].ClearField('num_shards')"), nothing
    ),
    "num_shards is not the entry count": Fault(
        "device-list-length", do("s.sharded_dim[0].simple_sharding[0].num_shards = 4"), nothing
    ),
    "dim_value wrong": Fault(
        "dim-value",
        do("s.sharded_dim[0].simple_sharding[0].dim_value = 9"),
        do("s.sharded_dim[0].simple_sharding[0].dim_value = 8"),
    ),
    "dim_param wrong": Fault("dim-param", do("s.sharded_dim[0].simple_sharding[0].dim_param = 'n'"), nothing),
    "no simple_sharding": Fault("no-simple-sharding", do("del s.sharded_dim[0].simple_sharding[:]"), nothing),
    "no device": Fault("no-device", do("del s.device[:]"), nothing),
    "device 77": Fault("unknown-device", replace(0, spec("x", [0, 77], {0: 2})), nothing),
    "undefined key": Fault("undefined-group", replace(0, groups((-1, (0, 1)))), nothing),
    "member 77": Fault("unknown-device", replace(0, groups((-1, (0, 77)), (-2, (2, 3)))), nothing),
    "empty group": Fault("empty-group", replace(0, groups((-1, (0, 1)), (-2, (2, 3)), (-3, ()))), nothing),
    "repeated key": Fault("group-twice", replace(0, groups((-1, (0, 1)), (-2, (2, 3)), (-1, (0, 1)))), nothing),
    "repeated member": Fault("device-twice", replace(0, groups((-1, (0, 1, 0)), (-2, (2, 3)))), nothing),
    "missing key": Fault("group-without-key", do("s.index_to_device_group_map[0].ClearField('key')"), nothing),
    "stage -3": Fault("negative-stage", do("a.pipeline_stage = -3"), do("a.pipeline_stage = 3")),
    "fused parts do not make up the axis": Fault(
        "fused-size", replace(0, fused((2, 2), (3, 2))), replace(0, in_pairs((2, 2), (None, 1)))
    ),
    "K cut differently": Fault(
        "cut-differently",
        do("node(m, 2).device_configurations[0].sharding_spec[0].sharded_dim[0].simple_sharding[0].num_shards = 4; "
           "node(m, 2).device_configurations[0].sharding_spec[0].device.extend([-1, -2])"),
        nothing,
    ),
    "several plain devices": Fault(
        "plain-devices", replace(0, spec("x", [0, 1, 2, 3])), replace(0, spec("x", [-1], {}, ALL)), "warning"
    ),
    "axes out of order": Fault(
        "axis-order",
        replace(0, ShardingSpec("x", (0, 2, 1, 3), (), (ShardedDim(1, (Part(2),)), ShardedDim(0, (Part(1),))))),
        nothing,
        "warning",
    ),
    "a key that is a device": Fault(
        "key-is-device", replace(0, groups((1, (0, 1)), (-2, (2, 3)), device=(1, -2))), nothing, "warning"
    ),
    "sizes that do not divide": Fault(
        "uneven-shards",
        replace(0, spec("x", [0, 1, 2], {0: 3})),
        replace(0, spec("x", [-1, -2], {0: 2}, PAIRS)),
        "warning",
    ),
    "an edge to an earlier stage": Fault(
        "stage-backward",
        do("a.pipeline_stage = 1; node(m, 1).device_configurations.add(configuration_id='mesh', pipeline_stage=0)"),
        do("a.pipeline_stage = 0; node(m, 1).device_configurations.add(configuration_id='mesh', pipeline_stage=1)"),
        "warning",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_and_its_twin_is_not(name: str) -> None:
    # S1.9, S1.10, S1.13, S1.14, S1.15, S1.17
    fault = FAULTS[name]
    broken, sound = mlp(), mlp()
    fault.plant(broken)
    fault.twin(sound)
    found = [f for f in check(load(broken)).findings if f.code == fault.code]
    assert found, [str(f) for f in check(load(broken)).findings]
    assert {f.severity for f in found} == {fault.severity}
    assert all(f.advice or "count" in f.code for f in found)
    assert fault.code not in {f.code for f in check(load(sound)).findings}
    assert check(load(sound)).ok
    if fault.severity == "warning":
        assert not check(load(broken), strict=True).ok


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
