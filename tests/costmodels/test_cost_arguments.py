"""What the small questions may be asked with: spellings of kinds, types and names, and what is refused."""

import re
from pathlib import Path
from typing import Any

import pytest

from autoshard.costmodels.errors import ProfileError
from autoshard.costmodels.model_questions import ask_inference, ask_model
from autoshard.costmodels.models import load_model
from autoshard.costmodels.questions import (
    ask_collective,
    ask_matmul,
    collective_kind,
    dtype_bytes,
)
from autoshard.costmodels.strategy_questions import ask_critical_batch, ask_strategy
from autoshard.costmodels.transfers import ask_point_to_point


@pytest.mark.parametrize("text", ["all-gather", "all_gather", "AllGather", "all gather", "allgather", "ALL-GATHER"])
def test_a_kind_is_read_however_its_words_are_joined(text: str) -> None:
    assert collective_kind(text) == "all_gather"


def test_an_unknown_kind_is_answered_with_the_known_ones_as_they_are_written() -> None:
    with pytest.raises(
        ProfileError, match="unknown collective 'broadcast'; known are all-gather, all-reduce, all-to-all"
    ):
        collective_kind("broadcast")


@pytest.mark.parametrize(
    ("name", "bytes_"),
    [("bfloat16", 2), ("bf16", 2), ("f32", 4), ("float8_e4m3fn", 1), ("fp8", 1), ("int4", 0.5), ("u8", 1), ("bool", 1)],
)
def test_element_types_have_their_usual_names(name: str, bytes_: float) -> None:
    assert dtype_bytes(name) == bytes_


@pytest.mark.parametrize("name", ["float13", "bfloat8", "int7", "16", "", "foo16"])
def test_what_is_no_element_type_is_refused_everywhere(name: str) -> None:
    match = "unknown element type"
    with pytest.raises(ProfileError, match=match):
        dtype_bytes(name)
    with pytest.raises(ProfileError, match=match):
        ask_matmul("B D @ D F -> B F", {"B": 8, "D": 8, "F": 8}, {"x": 2}, "tpu_v5e", dtype=name)
    with pytest.raises(ProfileError, match=match):
        ask_strategy("llama3_8b", "fsdp", {"fsdp": 8}, 4e6, "tpu_v5e", dtype=name)
    with pytest.raises(ProfileError, match=match):
        ask_critical_batch("llama3_8b", "fsdp", {"fsdp": 8}, "tpu_v5e", dtype=name)


def test_an_axis_twice_is_told_as_it_was_written() -> None:
    with pytest.raises(ProfileError, match=r"the axes overlap: y:\(1\)4, y:\(1\)4 share devices"):
        ask_collective("all-gather", 1e6, {"x": 8, "y": 4}, ["y", "y"], "tpu_v5e")
    with pytest.raises(ProfileError, match=r"^x:\(3\)2: pre-size times size is 6"):
        ask_collective("all-gather", 1e6, {"x": 16}, ["x:(3)2"], "tpu_v5e")


def test_a_model_is_suggested_where_the_name_is_nearly_one(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="no model named 'llama3-70'; did you mean llama3_70b"):
        load_model("llama3-70")
    (tmp_path / "m.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProfileError, match=r"model card .* is not YAML"):
        load_model(str(tmp_path / "m.yaml"))


@pytest.mark.parametrize("tokens", [1e300, 1.1e15, 0.5, float("nan")])
def test_a_batch_that_nobody_has_is_refused_with_the_largest_that_is_priced(tokens: float) -> None:
    with pytest.raises(ProfileError, match=rf"a batch of {re.escape(f'{tokens:g}')} tokens; .* from 1 to 1e\+15"):
        ask_strategy("llama3_8b", "fsdp", {"fsdp": 8}, tokens, "tpu_v5e")
    with pytest.raises(ProfileError, match="give the tokens of the whole batch"):
        ask_critical_batch("llama3_8b", "fsdp", {"fsdp": 8}, "tpu_v5e", batch_tokens=tokens)


@pytest.mark.parametrize("name", ["seq", "microbatches", "repeats", "pieces"])
def test_counts_that_nobody_has_are_refused(name: str) -> None:
    for count, said in ((10**400, r"about 2\*\*1329"), (0, "0")):
        how: dict[str, Any] = {name: count}
        with pytest.raises(ProfileError, match=f"{name} is {said}; give a whole number from 1 to 1e"):
            ask_strategy("llama3_8b", "fsdp", {"fsdp": 8}, 4e6, "tpu_v5e", **how)


@pytest.mark.parametrize("name", ["devices", "batch", "context", "tensor"])
def test_counts_that_nobody_serves_are_refused(name: str) -> None:
    how: dict[str, Any] = {"devices": 8, name: 10**400}
    with pytest.raises(ProfileError, match=rf"{name} is about 2\*\*1329; give a whole number from 1 to 1e"):
        ask_inference("llama3_8b", hardware="tpu_v5e", **how)


def test_a_sequence_that_nobody_has_is_refused() -> None:
    with pytest.raises(ProfileError, match=r"seq is about 2\*\*1329"):
        ask_model("llama3_8b", seq=10**400)


def test_the_largest_batch_has_a_finite_step() -> None:
    answer = ask_strategy("gpt3_175b", "fsdp", {"fsdp": 2}, 1e15, "tpu_v3")
    assert 0 < answer.seconds <= answer.upper_seconds < float("inf")


def test_a_number_of_thousands_of_digits_in_an_axis_is_refused() -> None:
    with pytest.raises(ProfileError, match="cannot read axis"):
        ask_collective("all-gather", 1e6, {"x": 8}, ["x:(1)" + "1" * 5000], "tpu_v5e")


@pytest.mark.parametrize("kind", ["slice", "dynamic slice", "all-gather"])
def test_a_negative_number_of_bytes_is_refused_for_every_kind(kind: str) -> None:
    with pytest.raises(ProfileError, match="cannot move -5"):
        ask_collective(kind, -5, {"x": 8}, ["x"], "tpu_v5e")


def test_nothing_is_sent_in_a_group_of_one_device() -> None:
    answer = ask_point_to_point(1e6, {"x": 1}, ["x"], "tpu_v5e")
    assert (answer.bytes_sent, answer.seconds, answer.over) == (0.0, 0.0, "nothing")
