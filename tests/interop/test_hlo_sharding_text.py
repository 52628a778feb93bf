"""HLO sharding text both ways; XLA's own printing is the judge (S2.7, S0.62, S1.43)."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding

from autoshard.errors import InputError, ShardingError, UnsupportedError
from autoshard.interop.hlo_text import mesh_from_hlo, parse_hlo_sharding, sharding_from_hlo, sharding_to_hlo
from autoshard.interop.jax import mesh_to_jax, spec_to_jax
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

XY = Mesh.from_dict({"x": 8, "y": 4})


def test_the_example_of_the_talk() -> None:  # S2.7
    text = "{devices=[8,1,4]<=[32] last_tile_dim_replicate}"
    assert str(sharding_from_hlo(text, 2, XY)) == '[{"x"}, {}]'
    assert sharding_to_hlo(TensorSharding.from_text("[{x}, {}]"), XY) == text


@pytest.mark.parametrize(
    ("hlo", "text"),
    [
        ("{replicated}", "[{}, {}]"),
        ("{devices=[4,8]<=[8,4]T(1,0)}", '[{"y"}, {"x"}]'),
        ("{devices=[1,32]<=[8,4]T(1,0)}", '[{}, {"y", "x"}]'),
        ("{devices=[2,1,16]<=[32] last_tile_dim_replicate}", '[{"x":(1)2}, {}]'),
        ("{devices=[2,1,16]<=[2,2,8]T(1,0,2) last_tile_dim_replicate}", '[{"x":(2)2}, {}]'),
        ("{devices=[8,1,4]<=[32] last_tile_dims={unreduced}}", '[{"x"}, {}] unreduced={"y"}'),
    ],
)
def test_hlo_text_is_read_and_written(hlo: str, text: str) -> None:
    assert str(sharding_from_hlo(hlo, 2, XY)) == text
    assert sharding_to_hlo(TensorSharding.from_text(text), XY) == hlo


AXES = ["a", "b", "c"]


@given(st.permutations(AXES), st.integers(0, 3), st.integers(0, 3))
def test_we_write_what_xla_writes(order: list[str], first: int, second: int) -> None:
    mesh = Mesh.from_dict({"a": 2, "b": 2, "c": 2})
    dims = order[:first], order[first : first + second]
    sharding = TensorSharding.from_text(f"[{{{', '.join(dims[0])}}}, {{{', '.join(dims[1])}}}]")
    theirs = NamedSharding(mesh_to_jax(mesh), spec_to_jax(sharding, mesh))._to_xla_hlo_sharding(2)
    ours = sharding_to_hlo(sharding, mesh)
    assert ours == str(theirs)
    assert sharding_from_hlo(ours, 2, mesh) == sharding


def test_a_device_list_keeps_its_order() -> None:  # S0.62
    mesh, sharding = mesh_from_hlo("{devices=[4,2]7,6,5,4,3,2,1,0}", 2, 8)
    assert mesh == Mesh(("axis_0", "axis_1"), (4, 2), "mesh", (7, 6, 5, 4, 3, 2, 1, 0))
    assert sharding.device_blocks(mesh, (4, 2))[7] == ((0, 1), (0, 1))
    assert sharding_to_hlo(sharding, mesh) == "{devices=[4,2]7,6,5,4,3,2,1,0}"
    assert str(sharding_from_hlo("{devices=[4,2]7,6,5,4,3,2,1,0}", 2, mesh)) == '[{"axis_0"}, {"axis_1"}]'


def expressible(mesh: Mesh, parts: int) -> int:
    count = 0
    for order in permutations(range(parts)):
        try:
            sharding_from_hlo(f"{{devices=[{parts}]{','.join(map(str, order))}}}", 1, mesh)
            count += 1
        except ShardingError:
            pass
    return count


def test_few_device_orders_follow_the_axes() -> None:  # S1.43: 2 of 24
    assert expressible(Mesh.from_dict({"x": 2, "y": 2}), 4) == 2


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("devices=[2]<=[2]", InputError, "write {replicated}"),
        ("{maximal device=3}", UnsupportedError, "maximal"),
        ("{manual}", UnsupportedError, "manual"),
        ("{devices=[2,1]<=[2]}", InputError, "each of 32 devices once"),
        ("{devices=[32]<=[32]}", InputError, "1 tensor dimensions, the tensor has 2"),
        ("{devices=[32,1]<=[8,4]T(0,0)}", InputError, "not a permutation"),
        ("{devices=[16,1,2]<=[32] last_tile_dims={manual}}", UnsupportedError, "manual"),
        ("{nonsense}", InputError, "cannot read"),
        ("{devices=[4,8]<=[8,4] T(1,0)}", InputError, "cannot read"),
        ("{devices=[8,4]<=[32] nonsense}", InputError, "cannot read"),
        ("{devices=[8,1,4]<=[32] last_tile_dim_replicate last_tile_dims={unreduced}}", InputError, "cannot read"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        sharding_from_hlo(text, 2, XY)


def test_tiles_that_cut_across_axes_are_refused() -> None:
    with pytest.raises(ShardingError, match=r"does not follow the axes|mixed-radix"):
        sharding_from_hlo("{devices=[2,3]0,1,2,3,5,4}", 2, Mesh.from_dict({"x": 6}))


def test_both_forms_of_a_device_list_are_the_same() -> None:
    assert parse_hlo_sharding("{devices=[2,2]<=[2,2]T(1,0)}", 2, 4) == parse_hlo_sharding(
        "{devices=[2,2]0,2,1,3}", 2, 4
    )
