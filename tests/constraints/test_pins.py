"""Pins address values by pattern and are checked against the program before anything is solved."""

from pathlib import Path
from typing import Any

import pytest

import autoshard
from autoshard.constraints import MemoryLimit, Pin, conflict, match_pins
from autoshard.constraints.patterns import Addresses, path_matches
from autoshard.errors import InfeasibleError, InputError, ShardingError
from autoshard.program.program import Block, Op, Origin, Program, Value
from autoshard.program.rule import rule_from_text
from autoshard.program.types import TensorType
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

MESH = Mesh.from_dict({"data": 2, "model": 4})
INPUTS = {
    "state/params/layers/0/wq": (16, 32),
    "state/params/layers/0/norm": (16,),
    "state/params/layers/1/wq": (16, 32),
    "state/params/layers/1/norm": (16,),
    "batch/tokens": (8, 16),
}


def small_program() -> Program:
    """tokens @ wq of layer 0, then an exponential of it on the same source line; the result is tagged ``h``."""
    values = [Value(i, n, TensorType(s, "float32"), Origin.INPUT) for i, (n, s) in enumerate(INPUTS.items())]
    values.append(Value(5, "dot_general_5", TensorType((8, 32), "float32"), Origin.OP, tags=("h",)))
    values.append(Value(6, "reduce_6", TensorType((8,), "float32"), Origin.OP))
    matmul = rule_from_text("([i, k], [k, j])->([i, j]) {i=8, k=16, j=32} reduction={k}")
    reduce = rule_from_text("([i, j])->([i]) {i=8, j=32} reduction={j}")
    ops = (
        Op(0, "dot_general", (4, 0), (5,), matmul, source="/home/me/model.py:12 (layer)"),
        Op(1, "reduce_sum", (5,), (6,), reduce, source="/home/me/model.py:12 (layer)"),
    )
    return Program("small", tuple(values), Block(tuple(range(5)), ops, (6, 5)), tuple(INPUTS), ("out/loss", "out/h"))


def values_of(pattern: str, sharding: str) -> tuple[int, ...]:
    return match_pins([Pin(pattern, sharding)], small_program(), MESH)[0].values


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("a/b", "a/b", True),
        ("a/*", "a/b", True),
        ("a/*", "a/b/c", False),
        ("a/**", "a/b/c", True),
        ("a/**", "a", True),
        ("**/c", "a/b/c", True),
        ("**", "a/b/c", True),
        ("a/**/c", "a/c", True),
        ("a/w[qk]", "a/wk", True),
        ("a/w?", "a/w", False),
        ("x[0]", "x[0]", True),  # a path that looks like a glob still names itself
    ],
)
def test_globs_stay_within_one_step_and_two_stars_span_steps(pattern: str, path: str, expected: bool) -> None:
    assert path_matches(pattern, path) is expected


def test_an_exact_path_addresses_one_input() -> None:
    assert values_of("batch/tokens", '[{"data"}, {}]') == (4,)


def test_a_glob_addresses_every_input_it_fits() -> None:
    assert values_of("state/params/layers/*/wq", '[{}, {"model"}]') == (0, 2)


def test_a_tag_addresses_intermediates() -> None:
    assert values_of("@h", '[{"data"}, {"model"}]') == (5,)


def test_a_source_line_addresses_results_of_the_stated_rank() -> None:
    assert values_of("model.py:12", '[{"data"}, {}]') == (5,)
    assert values_of("model.py:12", '[{"data"}]') == (6,)


@pytest.mark.parametrize("file", ["me/model.py", "/home/me/model.py", "./model.py", "../me/model.py"])
def test_a_source_line_is_addressed_by_any_path_of_its_file(file: str) -> None:
    assert values_of(f"{file}:12", '[{"data"}, {}]') == (5,)


def test_a_path_of_another_folder_addresses_nothing_where_the_program_has_folders() -> None:
    with pytest.raises(InputError, match="the ops come from"):
        values_of("you/model.py:12", '[{"data"}, {}]')


def test_a_source_line_with_a_primitive_addresses_only_its_results() -> None:
    assert values_of("model.py:12/reduce_*", '[{"data"}]') == (6,)


def test_a_primitive_name_addresses_all_its_results() -> None:
    assert values_of("dot_general", '[{"data"}, {}]') == (5,)


def test_outputs_are_addressed_by_slot() -> None:
    matched = match_pins([Pin("out/h", '[{"data"}, {}]')], small_program(), MESH)[0]
    assert (matched.values, matched.outputs) == ((), (1,))


def test_a_matched_pin_keeps_pattern_and_source_for_the_plan() -> None:
    pin = Pin("batch/tokens", "[{data}, {}]", source="c.yaml:3:5")
    assert match_pins([pin], small_program(), MESH)[0].to_dict() == {
        "kind": "pin",
        "pattern": "batch/tokens",
        "sharding": '[{"data"}, {}]',
        "source": "c.yaml:3:5",
        "values": [4],
        "outputs": [],
    }


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("batch/token", r"'batch/token' matches no value of small; did you mean batch/tokens\?"),
        ("wq", r"did you mean state/params/layers/0/wq or state/params/layers/1/wq\?"),
        ("state/params", r"the beginning of 4 paths such as .*; write state/params/\*\* for all"),
        ("@g", r"the tags are @h"),
        ("out/los", r"did you mean out/loss"),
        ("model.py:13", r"ops of model.py come from lines 12"),
        ("model.py:12/mul", r"come from lines 12 and are dot_general, reduce_sum"),
        ("other.py:1", r"the ops come from /home/me/model.py"),
        ("zzz/yyy", r"the inputs are state/params/layers/0/wq, .*batch/tokens"),
    ],
)
def test_a_pattern_that_matches_nothing_says_what_is_near(pattern: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        match_pins([Pin(pattern, "[{}, {}]")], small_program(), MESH)


def test_wrong_rank_names_value_and_both_ranks() -> None:
    with pytest.raises(ShardingError, match=r"has 1 dimensions, but batch/tokens is float32\[8,16\] with 2"):
        values_of("batch/tokens", '[{"data"}]')


def test_a_pattern_over_several_ranks_asks_for_one_pin_each() -> None:
    with pytest.raises(ShardingError, match=r"matches values of ranks 1, 2: write one pin for each rank"):
        values_of("state/**", '[{"data"}]')


def test_unknown_axis_names_the_axes_of_the_mesh() -> None:
    with pytest.raises(ShardingError, match=r"pin 'batch/tokens'.*\"?date\"?.*data"):
        values_of("batch/tokens", '[{"date"}, {}]')


def test_an_axis_on_two_dimensions_is_refused() -> None:
    with pytest.raises(ShardingError, match=r"batch/tokens"):
        values_of("batch/tokens", '[{"data"}, {"data"}]')


def test_more_shards_than_elements_are_refused() -> None:
    mesh = Mesh.from_dict({"data": 16, "model": 2})
    with pytest.raises(ShardingError, match=r"batch/tokens"):
        match_pins([Pin("batch/tokens", "[{data, model}, {}]")], small_program(), mesh)


def test_unreadable_sharding_is_refused_when_the_pin_is_made() -> None:
    with pytest.raises(ShardingError, match=r"c.yaml:3:5: pin 'x': cannot read sharding"):
        Pin("x", "[{data}", source="c.yaml:3:5")


def test_two_pins_that_differ_on_one_value_are_both_cited() -> None:
    pins = [
        Pin("batch/*", "[{data}, {}]", source="a.yaml:1:1"),
        Pin("batch/tokens", "[{model}, {}]", source="a.yaml:2:1"),
    ]
    with pytest.raises(InfeasibleError, match=r"on batch/tokens: dimension 0(.|\n)*a.yaml:1:1(.|\n)*a.yaml:2:1"):
        match_pins(pins, small_program(), MESH)


@pytest.mark.parametrize(
    ("first", "second", "agree"),
    [
        ("[{x}]", "[{x}]", True),
        ("[{x}]", "[{}]", False),
        ("[{x, ?}]", "[{x, y}]", True),
        ("[{x, ?}]", "[{y}]", False),
        ("[{?}]", "[{x, ?}]", True),
        ("[{x, ?}]", "[{y, ?}]", False),
        ("[{x, y, ?}]", "[{x}]", False),
        ("[{?}] replicated={x}", "[{x}]", False),
        ("[{x}] unreduced={y}", "[{x}]", False),
        ("[{x:(1)2, ?}]", "[{x}]", True),
        ("[{y, x:(1)2, ?}]", "[{y, x:(1)4, ?}]", True),
        ("[{x:(1)2}]", "[{x}]", False),
        ("[{x:(2)2, ?}]", "[{x}]", False),
        ("[{x:(1)2, y, ?}]", "[{x}]", False),
    ],
)
def test_two_shardings_conflict_exactly_when_no_sharding_meets_both(first: str, second: str, agree: bool) -> None:
    one, two = TensorSharding.from_text(first), TensorSharding.from_text(second)
    assert (conflict(one, two) == "") is agree
    assert (conflict(two, one) == "") is agree


def test_a_memory_limit_is_positive() -> None:
    with pytest.raises(InputError, match="positive number of bytes per device, found 0"):
        MemoryLimit(0)


def test_addresses_lists_inputs_in_order() -> None:
    assert [name for name, _ in Addresses(small_program()).inputs] == list(INPUTS)


def test_a_path_finds_what_a_glob_of_that_path_alone_finds() -> None:
    addresses = Addresses(small_program())
    for name in (*INPUTS, *addresses.program.output_names):
        glob = f"{name[:-1]}[{name[-1]}]"
        assert addresses.find(name) == addresses.find(glob) and addresses.find(name)
    assert not addresses.find("out/none") and not addresses.find("state/params")


def test_a_line_of_more_digits_than_python_reads_is_no_value() -> None:
    with pytest.raises(InputError, match="matches no value"):
        match_pins([Pin("model.py:" + "1" * 5000, "[{}]")], small_program(), MESH)


def test_a_folder_whose_name_begins_with_that_of_the_package_holds_code_of_the_user() -> None:
    file = f"{Path(autoshard.__file__).parent}_user/train.py"
    scope: dict[str, Any] = {"Pin": Pin}
    exec(compile("made = Pin('w', '[{}]')", file, "exec"), scope)
    assert scope["made"].written.endswith("autoshard_user/train.py:1")
