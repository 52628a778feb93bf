"""Dimensions to factors and back, and the worked tables of factor propagation (S2.19, S2.20, S2.27 to S2.34)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoshard.program.rule import rule_from_text
from autoshard.propagation.along_factors import agreed_axes, propagate_aggressive, propagate_basic
from autoshard.propagation.directions import SCHEDULE, TABLE, Direction, OpClass
from autoshard.propagation.projection import FactorSharding, TensorFactorShardings, project, unproject
from autoshard.propagation.spec import from_spec, to_spec
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

X4Y4 = Mesh.from_dict({"x": 4, "y": 4})


def spec(text: str, mesh: Mesh):
    return to_spec(TensorSharding.from_text(text, mesh), mesh, 0)


def axes(found, mesh: Mesh) -> str:
    from autoshard.propagation.spec import axis_ref

    return ",".join(str(axis_ref(r, mesh)).replace('"', "") for r in found)


def factors(text: str, rule: str, tensor: int = 0, mesh: Mesh = X4Y4) -> dict[int, str]:
    parsed = rule_from_text(rule)
    mapping = (*parsed.operands, *parsed.results)[tensor]
    found = project(mapping, spec(text, mesh), parsed.factor_sizes)
    return {
        f: axes(s.axes, mesh) + ("|" + axes(s.overflow, mesh) if s.overflow else "") for f, s in found.factors.items()
    }


def test_an_axis_is_split_where_a_factor_ends() -> None:  # S2.19
    rule = "([ij, k])->([i, jk]) {i=8, j=2, k=4}"
    assert factors("[{x, y}, {}]", rule) == {0: "x,y:(1)2", 1: "y:(2)2", 2: ""}


def test_what_no_factor_can_take_is_kept_as_overflow() -> None:
    mesh = Mesh.from_dict({"x": 4, "y": 3})
    assert factors("[{y, x}]", "([ij])->([i, j]) {i=4, j=9}", mesh=mesh) == {0: "|y,x", 1: ""}


def test_only_the_minor_most_factor_may_be_padded() -> None:
    mesh = Mesh.from_dict({"x": 8})
    assert factors("[{x}]", "([ij])->([i, j]) {i=2, j=3}", mesh=mesh) == {0: "x:(1)2", 1: "x:(2)4"}


SIZES = st.lists(st.sampled_from([2, 3, 4, 8]), min_size=1, max_size=3)


@given(SIZES, st.permutations(["x", "y", "z"]), st.integers(0, 3))
def test_to_factors_and_back_is_the_identity(sizes: list[int], order: list[str], count: int) -> None:  # S2.20
    mesh = Mesh.from_dict({"x": 2, "y": 4, "z": 3})
    before = spec(f"[{{{', '.join(order[:count])}}}]", mesh)
    mapping = (tuple(range(len(sizes))),)
    found = project(mapping, before, tuple(sizes))
    assert unproject(found, mapping, tuple(sizes), 0, before) == before


def test_dimensions_without_factor_keep_their_axes() -> None:
    before = spec("[{x}, {}]", X4Y4)
    found = project(((), (0,)), before, (8,))
    assert unproject(found, ((), (0,)), (8,), 0, before) == before


# the worked table of conflicts (S2.30): factors F0..F3, axes a..d

NAMES = "abcd"


def table(rows: list[dict], replicated: dict[int, str]) -> list[TensorFactorShardings]:
    out = []
    for index, row in enumerate(rows):
        found = TensorFactorShardings(replicated=tuple((NAMES.index(n), 1, 2) for n in replicated.get(index, "")))
        for factor, cell in row.items():
            letters = "" if cell == "closed" else cell
            found.factors[factor] = FactorSharding(tuple((NAMES.index(n), 1, 2) for n in letters), cell == "closed")
        out.append(found)
    return out


def read(tensors: list[TensorFactorShardings]) -> list[str]:
    return [" ".join("".join(NAMES[r[0]] for r in t.factors[f].axes) or "-" for f in range(4)) for t in tensors]


STEP0 = [
    {0: "abc", 1: "", 2: "closed", 3: ""},
    {0: "", 1: "ba", 2: "", 3: "d"},
    {0: "closed", 1: "", 2: "ca", 3: ""},
    {0: "", 1: "closed", 2: "", 3: ""},
    {0: "abd", 1: "", 2: "", 3: ""},
]


def test_the_axes_to_propagate_are_the_common_prefix() -> None:  # S2.29, S2.30 step 1
    tensors = table(STEP0, {0: "d"})
    found = [agreed_axes(tensors[:4], tensors[4:], f, Direction.BOTH) for f in range(4)]
    assert ["".join(NAMES[r[0]] for r in axes_) for axes_ in found] == ["ab", "ba", "ca", "d"]


def test_the_table_of_conflicts() -> None:  # S2.30 step 3; the cell T3.F0 is one of three legal outcomes (erratum E14)
    tensors = table(STEP0, {0: "d"})
    propagate_aggressive(tensors[:4], tensors[4:], [Direction.BOTH] * 4, (64,) * 4, (2,) * 4, False, False)
    found = read(tensors)
    assert found[0] == "abc - - -"
    assert found[1] == "- ba c d"
    assert found[2] == "- b ca d"
    assert found[3] in ("ab - c d", "- - c d", "- - ca d")
    assert found[4] == "abd - c -"


def test_basic_settles_no_conflict() -> None:  # S2.32, S2.33
    tensors = table(STEP0, {0: "d"})
    propagate_basic(tensors[:4], tensors[4:], [Direction.BOTH] * 4, (64,) * 4, (2,) * 4, False)
    assert read(tensors) == ["abc - - -", "- ba - d", "- - ca -", "- - - -", "abd - - -"]


def test_no_axis_comes_twice_on_a_tensor() -> None:  # S2.34
    tensors = table(STEP0, {0: "d"})
    propagate_aggressive(tensors[:4], tensors[4:], [Direction.BOTH] * 4, (64,) * 4, (2,) * 4, False, False)
    for tensor in tensors:
        used = [r for s in tensor.factors.values() for r in s.axes]
        assert len(used) == len(set(used))


def test_a_list_that_differs_ends_the_prefix() -> None:  # S2.29
    rows = [{0: "abc"}, {0: "abd"}]
    tensors = table(rows, {})
    assert [r[0] for r in agreed_axes(tensors[:1], tensors[1:], 0, Direction.BOTH)] == [0, 1]


@pytest.mark.parametrize(
    ("direction", "expected"),
    [(Direction.FORWARD, 1), (Direction.BACKWARD, 2), (Direction.NONE, 0), (Direction.BOTH, 2)],
)
def test_only_the_source_of_a_direction_lengthens_the_list(direction: Direction, expected: int) -> None:  # S2.26
    tensors = table([{0: "a"}, {0: "ab"}], {})
    assert len(agreed_axes(tensors[:1], tensors[1:], 0, direction)) == expected


def test_the_order_of_ops_is_data() -> None:  # S2.47, S2.48
    assert len(SCHEDULE) == 5
    first = {c: TABLE[0, c, False, True] for c in OpClass}
    assert first[OpClass.PASS_THROUGH] is Direction.BOTH
    assert first[OpClass.OTHER] is Direction.NONE
    assert TABLE[2, OpClass.BROADCAST, False, True] is Direction.BACKWARD
    assert TABLE[4, OpClass.BROADCAST, False, True] is Direction.BOTH
    assert all(
        TABLE[level, c, s, p] <= TABLE[level + 1, c, s, p] | TABLE[level, c, s, p]
        for level in range(4)
        for c in OpClass
        for s in (False, True)
        for p in (False, True)
    )


def test_specs_and_shardings_are_two_forms_of_one_thing() -> None:
    mesh = Mesh.from_dict({"x": 4, "y": 2})
    text = '[{"x":(1)2}p1, {"y", ?}] replicated={"x":(2)2}'
    assert str(from_spec(spec(text, mesh), mesh, None)) == text
