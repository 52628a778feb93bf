"""The fault bed: changes that plant a fault in a sound model, and the small ones after which it is right again."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import onnx
from hand_made import ALL, COLUMNS, PAIRS, spec, whole

from autoshard.onnx.specs import ShardingSpec, write_spec

Change = Callable[[onnx.ModelProto], None]


@dataclass(frozen=True)
class Fault:
    """A change that plants it, the code that tells it, and the small change after which the file is right."""

    code: str
    plant: Change
    mend: Change
    severity: str = "error"


def node(model: Any, index: int = 0) -> Any:
    return model.graph.node[index]


def annotation(model: Any, index: int = 0) -> Any:
    return node(model, index).device_configurations[0]


def spec_of(model: Any, at: int = 0) -> Any:
    return annotation(model).sharding_spec[at]


def do(*statements: str) -> Change:
    """A change in a few lines.

    `m` is the model, `n` its first node, `a` the annotation of that, `s`, `w1` and `b1` its specs; `w2` is that of the
    last node. `relu` and `last` add a spec to the other nodes, `first` to the first one.
    """

    def adder(model: Any, index: int) -> Callable[[ShardingSpec], Any]:
        def add(added: ShardingSpec) -> Any:
            target = node(model, index)
            if not target.device_configurations:
                target.device_configurations.add(configuration_id="mesh")
            message = target.device_configurations[0].sharding_spec.add()
            write_spec(message, added)
            return message

        return add

    def change(model: Any) -> None:
        names = {"m": model, "n": node(model), "a": annotation(model), "node": node, "spec": spec, "whole": whole}
        names |= {"s": spec_of(model), "w1": spec_of(model, 1), "b1": spec_of(model, 2)}
        names |= {"w2": annotation(model, 2).sharding_spec[0], "ALL": ALL, "PAIRS": PAIRS, "COLUMNS": COLUMNS}
        names |= {called: adder(model, at) for at, called in enumerate(("first", "relu", "last"))}
        exec("\n".join(statements), names)

    return change


def renamed(name: str) -> Change:
    """The configuration under another name, where it is declared and where it is used."""
    return do(
        f"m.configuration[0].name = {name!r}",
        f"a.configuration_id = node(m, 2).device_configurations[0].configuration_id = {name!r}",
    )


U = "spec('u', [0, 1, 2, 3], {0: 2, 1: 2})"
"""A spec of u that says where it is made."""
B2 = "last(whole('b2'))"
"""The last bias on the four devices of the other tensors, where there are more."""

FAULTS = {
    "unknown configuration": Fault("unknown-configuration", do("a.configuration_id = 'mesg'"), renamed("mesg")),
    "missing configuration": Fault("no-configuration-id", do("a.ClearField('configuration_id')"), renamed("grid")),
    "empty configuration": Fault("no-configuration-id", do("a.configuration_id = ''"), renamed("pod")),
    "no configurations at all": Fault(
        "unknown-configuration",
        do("del m.configuration[:]"),
        do("m.configuration.add(name='mesh', num_devices=4, device=['p', 'q', 'r', 's'])"),
    ),
    "two configurations of one name": Fault(
        "configuration-twice",
        do("m.configuration.add(name='mesh', num_devices=4)"),
        do("m.configuration[1].name = 'other'"),
    ),
    "configuration without name": Fault(
        "configuration-without-name", do("m.configuration.add(num_devices=2)"), do("m.configuration[1].name = 'b'")
    ),
    "old ir_version": Fault("old-ir-version", do("m.ir_version = 10"), do("m.ir_version = 12")),
    "wrong count of device names": Fault(
        "device-names", do("m.configuration[0].device.extend('abc')"), do("m.configuration[0].device.append('d')")
    ),
    "negative num_devices": Fault(
        "device-count", do("m.configuration[0].num_devices = -4"), do("m.configuration[0].num_devices = 8", B2)
    ),
    "no num_devices": Fault(
        "no-device-count",
        do("m.configuration[0].ClearField('num_devices')"),
        do("m.configuration[0].num_devices = 6", B2),
    ),
    "absurdly many devices": Fault(
        "device-count",
        do("m.configuration[0].num_devices = 2**31 - 1"),
        do("m.configuration[0].num_devices = 4096", B2),
    ),
    "unknown tensor": Fault(
        "unknown-tensor", do("s.tensor_name = 'ghost'"), do("n.input[0] = m.graph.input[0].name = 'ghost'")
    ),
    "tensor of another node": Fault(
        "unknown-tensor", do(f"first({U}).tensor_name = 'y'"), do("a.sharding_spec[-1].tensor_name = 'u'")
    ),
    "missing tensor name": Fault(
        "no-tensor-name",
        do(f"relu({U}).ClearField('tensor_name')"),
        do("node(m, 1).device_configurations[0].sharding_spec[0].tensor_name = 'r'"),
    ),
    "two specs for one tensor": Fault(
        "spec-twice",
        do(f"relu({U})", f"relu({U})"),
        do("node(m, 1).device_configurations[0].sharding_spec[1].tensor_name = 'r'"),
    ),
    "two entries for one configuration": Fault(
        "annotation-twice",
        do(*(f"node(m, {at}).device_configurations.add().CopyFrom(node(m, {at}).device_configurations[0])"
             for at in (0, 2))),
        do("m.configuration.add(name='o', num_devices=4)",
           *(f"node(m, {at}).device_configurations[1].configuration_id = 'o'" for at in (0, 2))),
    ),
    "axis 99": Fault("axis-range", do("s.sharded_dim[0].axis = 99"), do("s.sharded_dim[0].axis = -2")),
    "axis below -r": Fault("axis-range", do("w1.sharded_dim[0].axis = -3"), do("w1.sharded_dim[0].axis = -1")),
    "missing axis": Fault("no-axis", do("b1.sharded_dim[0].ClearField('axis')"), do("b1.sharded_dim[0].axis = -1")),
    "axis twice": Fault(
        "axis-twice",
        do("s.sharded_dim.add(axis=0).simple_sharding.add(num_shards=1)"),
        do("s.sharded_dim[1].axis = 1"),
    ),
    "axis 0 and -r": Fault(
        "axis-twice",
        do("s.sharded_dim.add(axis=-2).simple_sharding.add(num_shards=1)"),
        do("s.sharded_dim[1].axis = -1"),
    ),
    "num_shards 0": Fault(
        "shard-count",
        do("w2.sharded_dim.add(axis=1).simple_sharding.add(num_shards=0)"),
        do("w2.sharded_dim[1].simple_sharding[0].num_shards = 1"),
    ),
    "missing num_shards": Fault(
        "no-shard-count",
        do("s.sharded_dim[0].simple_sharding[0].ClearField('num_shards')"),
        do("s.sharded_dim[0].simple_sharding[0].num_shards = 1", "del s.device[1]", "s.device[0] = 5",
           "s.index_to_device_group_map.add(key=5, value=[0, 1, 2, 3])"),
    ),
    "num_shards is not the entry count": Fault(
        "device-list-length",
        do("s.sharded_dim[0].simple_sharding[0].num_shards = 4"),
        do("s.device[:] = [-1, -1, -2, -2]"),
    ),
    "dim_value wrong": Fault(
        "dim-value",
        do("s.sharded_dim[0].simple_sharding[0].dim_value = 9"),
        do("s.sharded_dim[0].simple_sharding[0].dim_value = 8"),
    ),
    "dim_param wrong": Fault(
        "dim-param",
        do("s.sharded_dim[0].simple_sharding[0].dim_param = 'n'"),
        do("m.graph.input[0].type.tensor_type.shape.dim[0].dim_param = 'n'"),
    ),
    "no simple_sharding": Fault(
        "no-simple-sharding",
        do("del w1.sharded_dim[0].simple_sharding[:]"),
        do("w1.sharded_dim[0].simple_sharding.add(num_shards=2, dim_value=16)"),
    ),
    "no device": Fault("no-device", do("del s.device[:]"), do("s.device.extend([-2, -1])")),
    "device 77": Fault(
        "unknown-device",
        do("relu(spec('u', [0, 1, 2, 77], {0: 2, 1: 2}))"),
        do("node(m, 1).device_configurations[0].sharding_spec[0].device[3] = 3"),
    ),
    "undefined key": Fault(
        "undefined-group", do("s.device[1] = -3"), do("s.index_to_device_group_map.add(key=-3, value=[2, 3])")
    ),
    "member 77": Fault(
        "unknown-device",
        do("s.index_to_device_group_map[1].value[:] = [3, 77]"),
        do("s.index_to_device_group_map[1].value[1] = 2"),
    ),
    "empty group": Fault(
        "empty-group",
        do("s.index_to_device_group_map.add(key=-3)"),
        do("s.index_to_device_group_map[2].value.append(0)"),
    ),
    "repeated key": Fault(
        "group-twice",
        do("s.index_to_device_group_map.add(key=-1, value=[0, 1])"),
        do("s.index_to_device_group_map[2].key = -4"),
    ),
    "repeated member": Fault(
        "device-twice",
        do("s.index_to_device_group_map[0].value[:] = [1, 0, 1]"),
        do("del s.index_to_device_group_map[0].value[2]"),
    ),
    "missing key": Fault(
        "group-without-key",
        do("s.index_to_device_group_map[0].ClearField('key')"),
        do("s.index_to_device_group_map[0].key = s.device[0] = -5"),
    ),
    "stage -3": Fault("negative-stage", do("a.pipeline_stage = -3"), do("a.pipeline_stage = 3")),
    "fused parts do not make up the axis": Fault(
        "fused-size",
        do("s.sharded_dim[0].simple_sharding[0].dim_value = 2",
           "s.sharded_dim[0].simple_sharding.add(num_shards=1, dim_value=3)"),
        do("s.sharded_dim[0].simple_sharding[1].dim_value = 4"),
    ),
    "K cut differently": Fault(
        "cut-differently",
        do("w2.sharded_dim[0].simple_sharding[0].num_shards = 4", "w2.device.extend([-1, -2])"),
        do("last(spec('r', [-1, -2, -1, -2], {1: 4}, COLUMNS))"),
    ),
    "halves on other devices": Fault(
        "nothing-meets", do("w2.device[:] = [-2, -1]"), do("w1.device[:] = b1.device[:] = [-2, -1]")
    ),
    "several plain devices": Fault(
        "plain-devices",
        do("s.device[:] = [0, 1, 2, 3]", "del s.sharded_dim[:]"),
        do("s.device[:] = [-9]", "s.index_to_device_group_map.add(key=-9, value=[0, 1, 2, 3])"),
        "warning",
    ),
    "axes out of order": Fault(
        "axis-order",
        do("relu(spec('u', [0, 2, 1, 3], {1: 2, 0: 2}))"),
        do("s = node(m, 1).device_configurations[0].sharding_spec[0]",
           "s.sharded_dim[0].axis, s.sharded_dim[1].axis = 0, 1", "s.device[:] = [0, 1, 2, 3]",
           "s.sharded_dim[0].simple_sharding[0].dim_value = 8"),
        "warning",
    ),
    "a key that is a device": Fault(
        "key-is-device",
        do("s.index_to_device_group_map[0].key = s.device[0] = 1"),
        do("s.index_to_device_group_map[0].key = s.device[0] = 4"),
        "warning",
    ),
    "sizes that do not divide": Fault(
        "uneven-shards",
        do("s.device[:] = [-1, -1, -2]", "s.sharded_dim[0].simple_sharding[0].num_shards = 3"),
        do("s.device.append(-1)", "s.sharded_dim[0].simple_sharding[0].num_shards = 4"),
        "warning",
    ),
    "one is cut, the other is not": Fault(
        "needs-slice",
        do("w2.device[:] = [7]", "w2.index_to_device_group_map.add(key=7, value=[0, 1, 2, 3])",
           "del w2.sharded_dim[:]"),
        do("last(whole('r'))"),
        "warning",
    ),
    "devices that have nothing to do": Fault(
        "idle-devices", do("m.configuration[0].num_devices = 5"), do(B2), "warning"
    ),
    "an edge to an earlier stage": Fault(
        "stage-backward",
        do("a.pipeline_stage = 1", "node(m, 1).device_configurations.add(configuration_id='mesh', pipeline_stage=0)"),
        do("node(m, 1).device_configurations[0].pipeline_stage = 1"),
        "warning",
    ),
}  # fmt: skip
