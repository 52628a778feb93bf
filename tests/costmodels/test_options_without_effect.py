"""Options of the closed forms that would change nothing are refused, or a note says so."""

from collections.abc import Callable
from typing import Any

import pytest

from autoshard.cli import main
from autoshard.costmodels import ProfileError, load_profile, place_mesh
from autoshard.costmodels.questions import ask_collective, ask_matmul
from autoshard.costmodels.strategy_questions import ask_critical_batch, ask_strategy

EIGHT = {"t": 8}
NODES = {"d": 4, "t": 8}


def step(strategy: str, mesh: dict[str, int], **how: Any) -> Any:
    return ask_strategy("llama3_8b", strategy, mesh, 1e6, "h100", **how)


@pytest.mark.parametrize("strategy", ["data", "zero1", "tensor"])
def test_pieces_are_of_fsdp(strategy: str) -> None:
    with pytest.raises(ProfileError, match=f"pieces=4 is of fsdp, and strategy {strategy} has none: add it, or leave"):
        step(strategy, {strategy: 8}, pieces=4)


def test_repeats_are_of_a_pipeline() -> None:
    with pytest.raises(ProfileError, match="repeats=2 is of a pipeline, and strategy fsdp has none"):
        step("fsdp", {"fsdp": 8}, repeats=2)


@pytest.mark.parametrize(
    ("strategy", "mesh", "how", "told"),
    [
        ("fsdp+tensor", {"fsdp": 1, "tensor": 8}, {"pieces": 4}, "pieces=4 changes nothing: fsdp has one device"),
        ("data+pipeline", {"data": 8, "pipeline": 1}, {"repeats": 2}, "repeats=2 changes nothing: pipeline has one"),
    ],
)
def test_an_option_of_a_part_with_one_device_is_told(
    strategy: str, mesh: dict[str, int], how: dict[str, int], told: str
) -> None:
    assert any(note.startswith(told) for note in step(strategy, mesh, **how).cost.notes)
    assert not [note for note in step(strategy, mesh).cost.notes if "changes nothing" in note]


@pytest.mark.parametrize("part", ["fsdp", "fsdp_transpose"])
def test_either_part_of_fsdp_knows_pieces(part: str) -> None:
    one, four = (step(part, {part: 8}, pieces=pieces).cost.terms[0].times for pieces in (1, 4))
    assert four == 4 * one


@pytest.mark.parametrize("strategy", ["fsdp", "tensor", "data+fsdp"])
def test_a_batch_is_asked_for_the_best_split_alone(strategy: str) -> None:
    mesh = dict.fromkeys(strategy.split("+"), 8)
    with pytest.raises(ProfileError, match=r"batch_tokens is for the best split .* has no two such parts: leave it"):
        ask_critical_batch("llama3_8b", strategy, mesh, "h100", batch_tokens=1e6)


def test_a_split_over_one_device_has_no_best_one() -> None:
    with pytest.raises(ProfileError, match="batch_tokens is for the best split"):
        ask_critical_batch("llama3_8b", "fsdp+tensor", {"fsdp": 8, "tensor": 1}, "h100", batch_tokens=1e6)


@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter", "all-to-all", "permute", "slice"])
def test_switches_add_in_all_reduces_alone(kind: str) -> None:
    with pytest.raises(ProfileError, match=f"in_network_reduction is of all-reduces, found {kind}; leave it out"):
        ask_collective(kind, 1e9, EIGHT, ["t"], "h100", in_network_reduction=True)


@pytest.mark.parametrize("kind", ["all-reduce", "psum", "AllReduce"])
@pytest.mark.parametrize("axes", [["t"], ["d"], ["d", "t"]])
def test_an_all_reduce_in_the_switches_is_quicker(kind: str, axes: list[str]) -> None:
    plain, added = (ask_collective(kind, 1e9, NODES, axes, "h100", in_network_reduction=on) for on in (False, True))
    assert added.seconds < plain.seconds and all("reduced in it" in link for link in added.links)


def test_a_group_of_one_device_has_nothing_to_add() -> None:
    with pytest.raises(ProfileError, match="in_network_reduction changes nothing on a group of one device"):
        ask_collective("all-reduce", 1e9, {"d": 1, "t": 8}, ["d"], "h100", in_network_reduction=True)


def test_a_gather_beside_an_all_reduce_in_the_switches_is_not_reduced_in_them() -> None:
    machine = place_mesh(load_profile("h100"), EIGHT, in_network_reduction=True)
    assert machine.collective("all_gather", 1e9, machine.whole("t")).links == ("nvlink: 8 through the switch",)


def test_padding_needs_a_tile() -> None:
    dims: dict[str, float] = {"B": 65536, "E": 8200, "M": 8200}
    padded = ask_matmul("B_t E @ E M -> B_t M", dims, EIGHT, "h100", pad_tiles=True)
    assert padded.compute_s > ask_matmul("B_t E @ E M -> B_t M", dims, EIGHT, "h100").compute_s
    with pytest.raises(ProfileError, match="cpu_sim says no matmul_tile, so pad_tiles means nothing there"):
        ask_matmul("B_t E @ E M -> B_t M", dims, EIGHT, "cpu_sim", pad_tiles=True)


@pytest.mark.parametrize(
    "option", [["--seq", "100"], ["--pieces", "4"], ["--json"], ["--link", "t=nvlink"], ["--recompute", "1"]]
)
def test_options_of_a_step_before_another_question_are_refused(
    option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cost", *option, "model", "llama3_8b"]) == 2
    assert capsys.readouterr().err == (
        f"error: {option[0]} before 'model': write it behind, or leave the command out\n"
    )


@pytest.mark.parametrize(
    "ask",
    [
        lambda: step("fsdp", {"fsdp": 8}),
        lambda: ask_critical_batch("llama3_8b", "fsdp", {"fsdp": 8}, "h100"),
        lambda: ask_collective("all-gather", 1e9, EIGHT, ["t"], "h100"),
    ],
    ids=["step", "critical batch", "collective"],
)
def test_what_is_not_given_is_not_refused(ask: Callable[[], Any]) -> None:
    assert ask()
