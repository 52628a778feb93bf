"""Names of strategies, the mesh axes their parts get, and what they state about the inputs of a program."""

import numpy as np
import pytest

from autoshard.errors import InputError
from autoshard.placements.striping import striped_order, unstriped_order
from autoshard.sharding.mesh import Mesh
from autoshard.strategies.named import named_strategy, strategy_from_rules
from autoshard.strategies.names import assign_axes, default_baselines, parts_of


def axes(name: str, slow: tuple[str, ...] = (), **sizes: int) -> dict[str, tuple[str, ...]]:
    return assign_axes(name, Mesh.from_dict(sizes), slow)[0]


def test_parts_take_the_axes_named_for_them() -> None:
    assert axes("fsdp+tensor", tensor=8, fsdp=16) == {"fsdp": ("fsdp",), "tensor": ("tensor",)}
    assert axes("data+fsdp+tensor", data=2, fsdp=4, model=8) == {
        "data": ("data",),
        "fsdp": ("fsdp",),
        "tensor": ("model",),
    }


def test_without_names_the_last_part_takes_the_innermost_axis_and_the_first_the_rest() -> None:
    assert axes("fsdp+tensor", a=2, b=4, c=8) == {"fsdp": ("a", "b"), "tensor": ("c",)}
    assert axes("tensor+fsdp", a=2, b=4) == {"fsdp": ("a",), "tensor": ("b",)}


def test_axes_nobody_took_join_the_first_part() -> None:
    assert axes("fsdp+tensor", data=128, fsdp=16, model=8) == {"fsdp": ("data", "fsdp"), "tensor": ("model",)}
    assert axes("tensor", data=2, model=4) == {"tensor": ("data", "model")}


def test_axes_between_slices_carry_the_batch_only() -> None:
    """S3.12, S3.13: FSDP on the fast links, data parallelism across slices."""
    mesh = Mesh.from_dict({"slice": 2, "fsdp": 4})
    strategy = named_strategy("fsdp", mesh, {"slice"})
    assert strategy.rules["batch"] == ("slice", "fsdp")
    assert strategy.storage == ((("fsdp",), ("embed",)),)


def test_a_mix_needs_an_axis_for_each_part() -> None:
    with pytest.raises(InputError, match="needs a mesh axis larger than 1 for each of fsdp, tensor"):
        axes("fsdp+tensor", model=8)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fsdp+tensr", "unknown baseline 'fsdp.tensr'; known are data"),
        ("data+dp", "names data twice"),
        ("pipeline", "pipeline stages are no sharding"),
        ("zero1+fsdp", "name one of the two"),
    ],
)
def test_wrong_names_say_what_is_possible(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parts_of(name)


def test_spellings_of_papers_are_known() -> None:
    assert [parts_of(n) for n in ("megatron", "ulysses", "zero3", "ep+cp")] == [
        ("tensor",), ("sequence",), ("fsdp",), ("expert", "context"),
    ]  # fmt: skip


def test_defaults_are_those_the_mesh_has_axes_for() -> None:
    assert default_baselines(Mesh.from_dict({"x": 8})) == ("data", "fsdp", "tensor")
    assert default_baselines(Mesh.from_dict({"x": 8, "y": 2})) == ("data", "fsdp", "tensor", "fsdp+tensor")


def test_rules_map_logical_axes_to_several_mesh_axes() -> None:
    """S3.9, S3.10: activation_batch on data and fsdp is cut 8 ways with data=4, fsdp=2."""
    mesh = Mesh.from_dict({"data": 4, "fsdp": 2})
    strategy = strategy_from_rules("mine", {"activation_batch": ["data", "fsdp"], "embed": "fsdp"}, mesh)
    assert strategy.rules["batch"] == ("data", "fsdp") and mesh.axis_size("data") * mesh.axis_size("fsdp") == 8
    assert strategy.rules["embed"] == ("fsdp",)


def test_rules_about_axes_the_mesh_lacks_are_refused() -> None:
    with pytest.raises(InputError, match="rule 'embed' names mesh axis 'fsdp'"):
        strategy_from_rules("mine", {"embed": "fsdp"}, Mesh.from_dict({"data": 4}))


def test_a_striped_shard_holds_its_chunk_and_the_mirrored_one() -> None:
    """S3.19, S3.20: with n shards shard i holds chunks i and 2n-1-i; undoing it restores the order."""
    order = striped_order(16, 4)
    assert order.reshape(4, 2, 2)[1].tolist() == [[2, 3], [12, 13]]
    sequence = np.arange(16) * 3
    assert (sequence[order][unstriped_order(16, 4)] == sequence).all()


@pytest.mark.parametrize(("shards", "naive_over_mean"), [(2, 12 / 8), (4, 1.75), (8, 1.875)])
def test_striping_evens_out_causal_work(shards: int, naive_over_mean: float) -> None:
    """S3.19: chunk c costs 2c + 1 chunk units; worst over mean is 1.75 at n=4 and 1.875 at n=8, and 1 striped."""
    seq = 2 * shards * 3
    attended = np.arange(1, seq + 1)  # position p sees p + 1 keys

    def worst_over_mean(order: np.ndarray) -> float:
        work = attended[order].reshape(shards, -1).sum(axis=1)
        return work.max() / work.mean()

    chunks = np.arange(seq).reshape(2 * shards, -1)
    unit = 2.0 * np.arange(2 * shards) + 1
    naive = unit.reshape(shards, 2).sum(axis=1)
    assert naive.max() / naive.mean() == pytest.approx(naive_over_mean)
    assert worst_over_mean(striped_order(seq, shards)) == 1.0 < worst_over_mean(chunks.ravel())


def test_a_sequence_that_cannot_be_striped_is_refused() -> None:
    with pytest.raises(InputError, match="2 x 4 must divide it"):
        striped_order(12, 4)
