"""Planned against found collectives: what counts as the same, and what each difference says."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoshard.sharding.layout import AtomMesh
from autoshard.sharding.mesh import Mesh
from autoshard.verify.runs.collectives import FoundCollective, FoundLoop, atoms_of_groups, compare, planned_groups

MESH = AtomMesh.split(Mesh.from_dict({"x": 2, "y": 4}))
SPLIT = AtomMesh.split(Mesh.from_dict({"x": 2, "y": 4}), {"y": (2, 2)})


@dataclass(frozen=True)
class Wanted:
    """A planned collective as `compare` reads it."""

    kind: str = "all_gather"
    atoms: tuple[int, ...] = (1,)
    elements: int = 16
    dtype: str = "float32"
    where: str = "here"
    from_atoms: tuple[int, ...] = ()
    combiner: str = ""
    loops: tuple = ()
    pairs: tuple = ()


@dataclass(frozen=True)
class Around:
    kind: str
    trips: int | None


@dataclass(frozen=True)
class Found:
    kind: str = "all_gather"
    groups: tuple = ((0, 1, 2, 3), (4, 5, 6, 7))
    elements: int = 16
    dtype: str = "float32"
    loops: tuple = ()
    combiner: str = ""

    def make(self) -> FoundCollective:
        return FoundCollective(self.kind, self.groups, self.elements, self.dtype, self.loops, self.combiner)


def differences(planned: list[Wanted], found: list[Found], **options: bool) -> list[str]:
    return [str(d) for d in compare(planned, [f.make() for f in found], MESH, **options)]


def test_the_same_collective_is_no_difference():
    assert differences([Wanted()], [Found()]) == []


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (
            Found(groups=((0, 4), (1, 5), (2, 6), (3, 7))),
            'all_gather over {"x"} of 16 float32 a device: planned 0, found 1',
        ),
        (Found(elements=8), 'all_gather over {"y"} of 8 float32 a device: planned 0, found 1'),
        (Found(dtype="bfloat16"), 'all_gather over {"y"} of 16 bfloat16 a device: planned 0, found 1'),
        (Found(kind="all_to_all"), 'all_to_all over {"y"} of 16 float32 a device: planned 0, found 1'),
        (
            Found(groups=((0, 2, 1, 3), (4, 6, 5, 7))),
            'all_gather over {"y"} of 16 float32 a device: planned 0, found 1',
        ),
        (Found(groups=((0, 5), (1, 4), (2, 7), (3, 6))), "over devices [(0, 5), (1, 4)]... of 16"),
    ],
    ids=["axis", "size", "dtype", "kind", "order", "no axis"],
)
def test_another_collective_is_two_differences(found, text):
    lines = differences([Wanted()], [found])
    assert len(lines) == 2
    assert any(text in line for line in lines)
    assert any('over {"y"} of 16 float32 a device: planned 1, found 0 (here)' in line for line in lines)


def test_a_missing_one_says_where_it_was_planned():
    assert differences([Wanted(where="a"), Wanted(where="b")], [Found()]) == [
        'all_gather over {"y"} of 16 float32 a device: planned 2, found 1 (a; b)'
    ]


def test_the_order_of_devices_does_not_matter_to_an_all_reduce():
    wanted = Wanted(kind="all_reduce", combiner="add")
    assert differences([wanted], [Found(kind="all_reduce", combiner="add", groups=((3, 1, 0, 2), (4, 5, 6, 7)))]) == []


@pytest.mark.parametrize("found", [0, 1])
def test_what_never_runs_may_be_left_out_or_stand_in_a_loop_of_unknown_length(found):
    idle = Wanted(loops=(Around("while", 0),))
    assert differences([idle], [Found(loops=(FoundLoop("loop", None),))] * found) == []


def test_what_never_runs_is_not_looked_for_where_loops_are_unrolled():
    """Four trips were found as two of two; the loop of unknown length is one that runs, though one was left out."""
    wanted = [Wanted(loops=(Around("scan", trips),)) for trips in (4, 0)] + [Wanted(loops=(Around("while", None),))]
    found = [Found(loops=(FoundLoop("loop", trips),)) for trips in (2, 2, None)]
    assert differences(wanted, found) == []


@pytest.mark.parametrize("loops", [(), (FoundLoop("loop", 2),), (FoundLoop("branch", None),)])
def test_what_never_runs_as_planned_must_not_run_as_found(loops):
    assert len(differences([Wanted(loops=(Around("while", 0),))], [Found(loops=loops)])) == 1


def test_a_maximum_is_not_a_sum():
    wanted = Wanted(kind="all_reduce", combiner="max")
    assert len(differences([wanted], [Found(kind="all_reduce", combiner="add")])) == 2


def test_element_types_can_be_left_out():
    assert differences([Wanted(dtype="bfloat16")], [Found(dtype="float32")], dtypes=False) == []


def test_groups_of_one_device_communicate_nothing():
    assert differences([], [Found(groups=tuple((d,) for d in range(8)))]) == []


SCAN = (Around("scan", 4),)


def loop(*trips: int | None) -> tuple[FoundLoop, ...]:
    return tuple(FoundLoop("loop", n) for n in trips)


@pytest.mark.parametrize(
    ("planned", "found", "same"),
    [
        ([SCAN], [loop(4)], True),
        ([SCAN], [loop(None)], True),  # the text does not tell
        ([(Around("while", None),)], [loop(7)], True),  # the plan does not know
        ([(Around("cond", None),)], [(FoundLoop("branch", None),)], True),
        ([SCAN], [()], False),
        ([()], [loop(4)], False),
        ([SCAN], [loop(5)], False),
        ([SCAN], [loop(2), loop(2)], True),  # unrolled by two
        ([SCAN], [loop(2), loop(2), ()], False),
        ([SCAN, ()], [(), loop(4)], True),
        ([(Around("scan", 1),)], [()], True),  # a loop of one trip is none
        ([SCAN], [loop(4, 4)], False),
        ([(Around("scan", 0),)], [], True),  # a body that never runs is left out
        ([(Around("scan", 0),)], [()], False),
        ([SCAN, (Around("while", None),)], [loop(None), loop(2), loop(2)], True),
        ([SCAN, (Around("while", None),)], [loop(None), loop(2)], False),
    ],
)
def test_loops_around_collectives(planned, found, same):
    lines = differences([Wanted(loops=x) for x in planned], [Found(loops=x) for x in found])
    assert (lines == []) is same


def test_a_collective_that_left_its_loop_says_so():
    (line,) = differences([Wanted(loops=SCAN)], [Found()])
    assert "loops [(4,)] against [()]" in line


def test_a_permute_is_its_pairs():
    wanted = Wanted(kind="permute", atoms=(1, 0), from_atoms=(0, 1))
    pairs = planned_groups("permute", (1, 0), (0, 1), MESH)
    assert sorted(source for source, _ in pairs) == sorted(target for _, target in pairs) == list(range(8))
    assert differences([wanted], [Found(kind="permute", groups=pairs)]) == []
    assert len(differences([wanted], [Found(kind="permute", groups=tuple((d, d) for d in range(8)))])) == 2


def test_a_users_own_permute_has_its_pairs_in_every_group():
    wanted = Wanted(kind="permute", atoms=(1,), pairs=tuple((d, (d + 1) % 4) for d in range(4)))
    ring = tuple((d, d - d % 4 + (d + 1) % 4) for d in range(8))
    assert differences([wanted], [Found(kind="permute", groups=ring)]) == []
    for other in (tuple((t, s) for s, t in ring), ring[:-1], tuple((d, (d + 1) % 8) for d in range(8))):
        assert len(differences([wanted], [Found(kind="permute", groups=other)])) == 2


def test_a_permute_over_two_axes_numbers_devices_in_mesh_order():
    turned = Wanted(kind="permute", atoms=(1, 0), pairs=((0, 5),))
    assert differences([turned], [Found(kind="permute", groups=((0, 5),))]) == []


@given(st.lists(st.integers(0, 2), unique=True, min_size=1))
def test_groups_name_their_axes(atoms):
    groups = planned_groups("all_gather", tuple(atoms), (), SPLIT)
    assert atoms_of_groups(groups, SPLIT) == tuple(sorted(atoms))


def test_groups_along_no_axis_have_no_name():
    assert atoms_of_groups([(0, 3), (1, 2), (4, 7), (5, 6)], MESH) is None


def test_groups_of_a_sub_axis_are_told_apart():
    assert planned_groups("all_reduce", (1,), (), SPLIT) == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert planned_groups("all_reduce", (2,), (), SPLIT) == ((0, 1), (2, 3), (4, 5), (6, 7))
