"""Placements of mesh axes on the factors of one op, against lists written by hand."""

import pytest
from plan_cases import atoms

from autoshard.placements.space import OpSpace, PartialSums, enumerate_placements, value_rule
from autoshard.placements.uneven import may_pad, uneven_factors
from autoshard.program.rule import ShardingRule, rule_from_text
from autoshard.sharding.layout import AtomMesh
from autoshard.sharding.mesh import Mesh

MATMUL = rule_from_text("([i, k], [k, j])->([i, j]) {i=8, j=8, k=8} reduction={k}")


def space(rule: ShardingRule, mesh: AtomMesh, partial: PartialSums = PartialSums(), **options: object) -> OpSpace:
    return enumerate_placements(rule, mesh, partial, **options)  # type: ignore[arg-type]


def texts(found: OpSpace, mesh: AtomMesh) -> list[str]:
    """What each strategy produces, as text."""
    return [lay.text(mesh) for lay in found.result_layouts[0]]


def factors(found: OpSpace) -> set[tuple[tuple[int, ...], ...]]:
    return {p.factors for p in found.placements}


def test_one_axis_on_a_matmul_is_unused_or_on_one_of_three_factors() -> None:
    mesh = atoms({"x": 2})
    found = space(MATMUL, mesh)
    assert [p.factors for p in found.placements] == [((), (), ()), ((0,), (), ()), ((), (0,), ()), ((), (), (0,))]
    assert texts(found, mesh) == ["[{}, {}]", '[{"x"}, {}]', '[{}, {"x"}]', '[{}, {}] unreduced={"x"}']


def test_the_operands_of_each_placement_of_a_matmul() -> None:
    mesh = atoms({"x": 2})
    found = space(MATMUL, mesh)
    wanted = [tuple(found.operand_layouts[k][s].text(mesh) for k in range(2)) for s in range(4)]
    assert wanted == [
        ("[{}, {}]", "[{}, {}]"),
        ('[{"x"}, {}]', "[{}, {}]"),
        ("[{}, {}]", '[{}, {"x"}]'),
        ('[{}, {"x"}]', '[{"x"}, {}]'),
    ]


def test_two_axes_on_a_matmul_choose_independently_in_mesh_order() -> None:
    mesh = atoms({"x": 2, "y": 2})
    found = space(MATMUL, mesh)
    assert len(found.placements) == 4 * 4
    assert texts(found, mesh)[:4] == ["[{}, {}]", '[{"y"}, {}]', '[{}, {"y"}]', '[{}, {}] unreduced={"y"}']
    assert '[{"x", "y"}, {}]' in texts(found, mesh)
    assert '[{"y", "x"}, {}]' not in texts(found, mesh)
    assert '[{"y"}, {}] unreduced={"x"}' in texts(found, mesh)


def test_an_axis_that_does_not_divide_is_not_placed() -> None:
    rule = rule_from_text("([i, j])->([i, j]) {i=6, j=8}")
    mesh = atoms({"x": 4})
    assert texts(space(rule, mesh), mesh) == ["[{}, {}]", '[{}, {"x"}]']


def test_axes_that_together_do_not_divide_are_counted_as_pruned() -> None:
    rule = rule_from_text("([i])->([i]) {i=6}")
    found = space(rule, atoms({"x": 2, "y": 2}))
    assert factors(found) == {((),), ((0,),), ((1,),)}
    assert found.pruned == {"the axes together do not divide the factor": 1}


def test_the_minor_factor_of_a_reshape_is_cut_only_when_the_major_is_used_up() -> None:
    """(2, 4) to 8: trap 7."""
    rule = rule_from_text("([i, j])->([ij]) {i=2, j=4}")
    mesh = atoms({"x": 2, "y": 2})
    found = space(rule, mesh)
    assert factors(found) == {((), ()), ((0,), ()), ((1,), ()), ((0,), (1,)), ((1,), (0,))}
    assert found.pruned["a minor factor of a compound dimension is cut before its major one is used up"] == 3


def test_an_axis_cannot_skip_a_major_factor_it_cannot_use_up() -> None:
    rule = rule_from_text("([i, j])->([ij]) {i=4, j=4}")
    assert factors(space(rule, atoms({"x": 2}))) == {((), ()), ((0,), ())}


def test_factors_that_must_be_whole_or_permute_take_no_axis() -> None:
    rule = rule_from_text("([i, j, k])->([i, j, k]) {i=4, j=4, k=4} need_replication={j} permutation={k}")
    assert factors(space(rule, atoms({"x": 2}))) == {((), (), ()), ((0,), (), ())}


def test_blocked_factors_may_still_be_cut() -> None:
    rule = rule_from_text("([i])->([i]) {i=4} blocked_propagation={i}")
    assert factors(space(rule, atoms({"x": 2}))) == {((),), ((0,),)}


def test_a_max_is_combined_inside_and_leaves_no_partial_sum() -> None:
    rule = rule_from_text("([i, j])->([i]) {i=4, j=4} reduction={j} combiner=max")
    mesh = atoms({"x": 2})
    found = space(rule, mesh)
    assert texts(found, mesh) == ["[{}]", '[{"x"}]', "[{}]"]
    assert found.placements[2].combine_atoms(rule) == (0,)


def test_an_axis_of_size_one_is_never_placed() -> None:
    assert len(space(MATMUL, atoms({"one": 1})).placements) == 1
    assert len(space(MATMUL, atoms({"x": 2, "one": 1})).placements) == 4


def test_dimensions_of_size_one_take_no_axis() -> None:
    assert value_rule((1, 4)).operands == () and value_rule((1, 4)).factor_sizes == (4,)
    mesh = atoms({"x": 2})
    assert texts(space(value_rule((1, 4)), mesh), mesh) == ["[{}, {}]", '[{}, {"x"}]']


def test_a_scalar_has_one_layout() -> None:
    assert len(space(value_rule(()), atoms({"x": 2, "y": 2})).placements) == 1


def test_partial_sums_pass_only_where_they_can_arrive() -> None:
    rule = ShardingRule((4,), (((0,),), ((0,),)), (((0,),),), linear=((0, 1),))
    mesh = atoms({"x": 2, "y": 2})
    assert len(space(rule, mesh).placements) == 4
    over_y = space(rule, mesh, PartialSums(passes=((1,),)))
    assert sorted(set(texts(over_y, mesh)) - set(texts(space(rule, mesh), mesh))) == [
        '[{"x"}] unreduced={"y"}',
        '[{}] unreduced={"y"}',
    ]


def test_a_passing_partial_sum_is_wanted_of_exactly_its_linear_set() -> None:
    """A product passes a partial sum of one side; the other side must be whole."""
    rule = ShardingRule((4,), (((0,),), ((0,),)), (((0,),),), linear=((0,), (1,)))
    mesh = atoms({"x": 2})
    found = space(rule, mesh, PartialSums(passes=((0,), (0,))))
    wanted = {tuple(found.operand_layouts[k][s].text(mesh) for k in range(2)) for s in range(len(found.placements))}
    assert wanted == {
        ("[{}]", "[{}]"),
        ('[{"x"}]', '[{"x"}]'),
        ('[{}] unreduced={"x"}', "[{}]"),
        ("[{}]", '[{}] unreduced={"x"}'),
    }


def test_zeros_count_as_a_partial_sum_over_any_axis() -> None:
    rule = ShardingRule((4,), ((),), (((0,),),))
    mesh = atoms({"x": 2})
    found = space(rule, mesh, PartialSums(zeros=(0,)))
    assert texts(found, mesh) == ["[{}]", '[{"x"}]', '[{}] unreduced={"x"}']
    assert found.placements[2].zeros == (0,)


def test_an_accumulator_is_wanted_unreduced_over_the_axes_of_the_sum() -> None:
    """The operand that a scatter adds to joins the partial sum."""
    rule = ShardingRule((4, 4), (((0,),), ((0,), (1,))), (((0,),),), reduction=frozenset({1}), accumulators=(0,))
    mesh = atoms({"x": 2})
    found = space(rule, mesh)
    (summed,) = [s for s, p in enumerate(found.placements) if p.factors == ((), (0,))]
    assert found.operand_layouts[0][summed].text(mesh) == '[{}] unreduced={"x"}'


# -- sub-axes ------------------------------------------------------------------------------------------------------

SPLIT = AtomMesh.split(Mesh.from_dict({"x": 16}), {"x": (8, 2)})


def test_eight_heads_take_the_major_part_of_an_axis_of_sixteen() -> None:
    rule = rule_from_text("([h, d])->([h, d]) {h=8, d=3}")
    assert texts(space(rule, SPLIT), SPLIT) == ["[{}, {}]", '[{"x":(1)8}, {}]']


def test_the_rest_of_a_split_axis_goes_to_another_factor() -> None:
    rule = rule_from_text("([h, d])->([h, d]) {h=8, d=2}")
    found = texts(space(rule, SPLIT), SPLIT)
    assert '[{"x":(1)8}, {"x":(8)2}]' in found and '[{"x":(1)8}, {}]' in found


def test_a_factor_that_takes_the_whole_axis_keeps_its_parts_together() -> None:
    rule = rule_from_text("([i, d])->([i, d]) {i=32, d=3}")
    assert texts(space(rule, SPLIT), SPLIT) == ["[{}, {}]", '[{"x"}, {}]']


# -- orders, facets, padding ---------------------------------------------------------------------------------------


def test_other_orders_of_axes_are_offered_where_a_pin_uses_them() -> None:
    mesh = atoms({"x": 2, "y": 2})
    rule = rule_from_text("([i])->([i]) {i=8}")
    assert '[{"y", "x"}]' not in texts(space(rule, mesh), mesh)
    assert '[{"y", "x"}]' in texts(space(rule, mesh, axis_orders=[("y", "x")]), mesh)


def test_no_placement_is_listed_twice() -> None:
    mesh = atoms({"x": 2, "y": 2})
    found = space(MATMUL, mesh, axis_orders=[("y", "x")])
    assert len(set(found.placements)) == len(found.placements) == 16 + 3  # three factors can hold both, in two orders


def test_facets_say_what_each_mesh_axis_does() -> None:
    found = space(MATMUL, atoms({"x": 2, "y": 2}))
    assert found.facets.shape == (16, 2)
    alike = {(p.factors, tuple(f)) for p, f in zip(found.placements, found.facets.tolist(), strict=True)}
    for one, mine in alike:
        for other, theirs in alike:
            where = [next((f for f, on in enumerate(p) if 0 in on), None) for p in (one, other)]
            assert (where[0] == where[1]) == (mine[0] == theirs[0])


def test_shards_are_the_products_of_axis_sizes() -> None:
    found = space(MATMUL, atoms({"x": 2, "y": 4}))
    (both,) = [s for s, p in enumerate(found.placements) if p.factors == ((0, 1), (), ())]
    assert found.shards[both].tolist() == [8, 1, 1]


def test_uneven_factors_are_padded_by_up_to_a_quarter() -> None:
    rule = rule_from_text("([i, k], [k, j])->([i, j]) {i=7, j=5, k=50257} reduction={k}")
    mesh = atoms({"x": 4})
    uneven = uneven_factors("dot_general", rule)
    # 7 to 8 and 50257 to 50260 are close; 5 to 8 is not
    assert factors(space(rule, mesh, uneven=uneven)) == {((), (), ()), ((0,), (), ()), ((), (), (0,))}
    assert factors(space(rule, mesh)) == {((), (), ())}


def test_padding_is_not_offered_for_compound_dimensions_or_unknown_ops() -> None:
    compound = rule_from_text("([i, j])->([ij]) {i=7, j=2}")
    assert uneven_factors("transpose", compound) == frozenset()
    assert uneven_factors("sort", rule_from_text("([i])->([i]) {i=7}")) == frozenset()


@pytest.mark.parametrize(
    ("size", "parts", "last", "may"),
    [(7, 8, 8, True), (7, 2, 2, True), (6, 4, 4, False), (5, 8, 8, False), (1, 2, 2, False), (13, 16, 16, True)],
)
def test_padding_wastes_at_most_a_quarter(size: int, parts: int, last: int, may: bool) -> None:
    assert may_pad(size, parts, last) is may
