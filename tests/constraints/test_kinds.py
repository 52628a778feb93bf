"""Every kind of statement: to plan.json and back, told in words, and damaged entries refused."""

import json
from typing import Any

import pytest

from autoshard.config.schema import schema
from autoshard.constraints import (
    AxisOnly,
    Barrier,
    HostMemoryLimit,
    ManualComputation,
    Matched,
    MatchedKernel,
    MaxReshards,
    MemoryKind,
    MemoryLimit,
    NoCollective,
    Pin,
    Replicated,
    Restricting,
    SameSharding,
    ShardMap,
    match_groups,
    match_pins,
    match_restrictions,
    registry,
)
from autoshard.errors import InputError
from autoshard.program.program import Block, Op, Origin, Program, Value
from autoshard.program.rule import rule_from_text
from autoshard.program.types import TensorType
from autoshard.sharding.mesh import Mesh

MESH = Mesh.from_dict({"x": 2, "y": 4})


def product() -> Program:
    """``out = a @ b``, made on line 3 of m.py."""
    square = TensorType((8, 8), "float32")
    rule = rule_from_text("([i, k], [k, j])->([i, j]) {i=8, k=8, j=8} reduction={k}")
    names = ("a", "b", "dot_general:0")
    values = tuple(
        Value(k, name, square, Origin.OP if k == 2 else Origin.INPUT) for k, name in enumerate(names)
    )  # fmt: skip
    op = Op(0, "dot_general", (0, 1), (2,), rule, source="m.py:3 (f)")
    return Program("f", values, Block((0, 1), (op,), (2,)), ("a", "b"), ("out",))


def matched() -> list[Matched]:
    """One or more of every kind, as a program of two inputs has them."""
    pins = [Pin("a", '[{"x"}, {?}]', source="c.yaml:1:1"), Pin("out", '[{"y"}p1, {}] replicated={"x"}', priority=2)]
    ins, outs = ['[{"x"}, {?}]', "replicated"], ['[{"x"}, {?}]']
    restrictions: list[Restricting] = [
        Replicated("b"), Replicated("out", ["y"], "c.yaml:3:1"), AxisOnly("x", ["a", "out"]), NoCollective("y"),
        NoCollective("x", "m.py:3"), MaxReshards(3), MaxReshards(0, "y", "dot_general"), Barrier("a", "forward"),
        MemoryKind("a"), MemoryKind("out", "device"), ManualComputation("dot_general", ["x"], ins, outs),
    ]  # fmt: skip
    program = product()
    return [
        *match_pins(pins, program, MESH),
        *match_groups([SameSharding(["a", "out"], source="c.yaml:9:3")], program),
        *match_restrictions(restrictions, program, MESH),
        MemoryLimit(10**9),
        HostMemoryLimit(7),
        MatchedKernel("mine", 0, "([i])->([i]) {i=8}", {"flop": 3.0, "unit": "matmul"}, "m:f", "stated", "c.yaml:5:3"),
        MatchedKernel("mine", 1, None, {"flop": None, "unit": "vector"}, None, "inside of a shard_map"),
        ShardMap("shard_map over x", 4, ("x",), ('[{"x"}, {}]',), ("[{}]",), "m.py:5"),
    ]


EVERY = matched()
IDS = [f"{s.kind}-{k}" for k, s in enumerate(EVERY)]


def test_every_kind_is_here() -> None:
    assert {s.kind for s in EVERY} == {kind.name for kind in registry.kinds()}


@pytest.mark.parametrize("statement", EVERY, ids=IDS)
def test_it_goes_to_plan_json_and_back(statement: Matched) -> None:
    written = json.loads(json.dumps(statement.to_dict()))
    again = registry.read(written, MESH)
    assert again == statement
    assert type(again) is type(statement)
    assert again.to_dict() == written
    assert list(again.to_dict()) == list(statement.to_dict())


@pytest.mark.parametrize("statement", EVERY, ids=IDS)
def test_it_is_told_with_its_place(statement: Matched) -> None:
    for text in (statement.cited, statement.told):
        assert text.startswith(f"{statement.source}: " if statement.source else "")
        assert text.removeprefix(f"{statement.source}: ")


NEEDED = {
    "pin": "sharding", "same_sharding": "patterns", "replicated": "axes", "axis_only": "axes",
    "no_collective": "whole", "max_reshards": "limit", "barrier": "direction", "memory_kind": "direction",
    "manual_computation": "ops", "memory_limit": "bytes", "host_memory_limit": "bytes", "manual": "op",
    "kernel": "work",
}  # fmt: skip


@pytest.mark.parametrize("statement", EVERY, ids=IDS)
def test_an_entry_that_lacks_a_key_it_needs_is_refused_by_name(statement: Matched) -> None:
    whole = statement.to_dict()
    key = NEEDED[statement.kind]
    with pytest.raises(InputError, match=rf"^plan: the statement {{.*}}? has no {key}$"):
        registry.read({k: v for k, v in whole.items() if k != key}, MESH)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({}, "has no kind"),
        ({"kind": 3}, "has no kind"),
        ({"kind": "pinn"}, "there is no kind of statement 'pinn'; did you mean 'pin'"),
        ({"kind": "memory_limit", "bytes": "much"}, "a positive number of bytes per device, found much"),
        ({"kind": "pin", "pattern": "a", "sharding": "[{", "values": [], "outputs": []}, "cannot read sharding"),
        ({"kind": "pin", "pattern": "a", "sharding": "[]", "values": 3, "outputs": []}, "cannot be read"),
        ({"kind": "same_sharding", "patterns": [], "values": ["v"], "outputs": []}, "cannot be read"),
    ],
)
def test_damaged_entries_are_refused(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=r"^plan: ") as caught:
        registry.read(entry, MESH)
    assert message in str(caught.value)


def test_only_those_of_one_kind_are_read() -> None:
    written = [s.to_dict() for s in EVERY]
    assert registry.read_only(MemoryLimit, written) == (MemoryLimit(10**9),)


def test_every_key_of_a_kind_is_in_the_schema_of_configs() -> None:
    keys = {kind.config.name for kind in registry.kinds() if kind.config is not None}
    assert keys <= set(schema().model_fields)
    assert {"pins", "same_sharding", "memory_limit", "manual_computations"} <= keys


def test_the_classes_for_python_are_told_by_name() -> None:
    assert registry.stated_names() == (
        "Pin, SameSharding, Replicated, AxisOnly, NoCollective, MaxReshards, Barrier, MemoryKind, ManualComputation "
        "and Kernel"
    )
