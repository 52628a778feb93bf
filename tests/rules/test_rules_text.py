"""Rules of each family as text, from shapes and parameters alone (no JAX needed)."""

from types import SimpleNamespace
from typing import Any

import pytest

from autoshard.errors import RuleError
from autoshard.program.rule import ShardingRule, rule_from_text
from autoshard.program.types import TensorType
from autoshard.rules import LITERALS, known_primitives, local_care_of, rule_for


def rule(kind: str, operands: str, results: str, **params: Any) -> ShardingRule:
    """``rule("neg", "4,8", "4,8")``; a type may carry its dtype: ``int32:4,8``."""
    match = rule_for(kind, types(operands), types(results), params)
    assert match.warning is None, match.warning
    return match.rule


def types(text: str) -> list[TensorType]:
    found = []
    for part in text.split():
        dtype, _, shape = part.rpartition(":")
        dims = tuple(int(n) for n in shape.split(",")) if shape != "()" else ()
        found.append(TensorType(dims, dtype or "float32"))
    return found


def same_up_to_names(ours: ShardingRule, text: str) -> bool:
    def canonical(r: ShardingRule) -> set:
        places: dict[int, list] = {}
        for k, t in enumerate((*r.operands, *r.results)):
            for d, dim in enumerate(t):
                for p, f in enumerate(dim):
                    places.setdefault(f, []).append((k, d, p))
        return {(tuple(at), r.factor_sizes[f], f in r.reduction, f in r.need_replication) for f, at in places.items()}

    return canonical(ours) == canonical(rule_from_text(text))


def test_batched_matmul_s2_14() -> None:
    found = rule("dot_general", "4,8,32 4,32,16", "4,8,16", dimension_numbers=(((2,), (1,)), ((0,), (0,))))
    assert same_up_to_names(found, "([i,j,l],[i,l,k])->([i,j,k]) {i=4, j=8, k=16, l=32} reduction={l}")


def test_matmul_s2_15() -> None:
    found = rule("dot_general", "8,32 32,16", "8,16", dimension_numbers=(((1,), (0,)), ((), ())))
    assert same_up_to_names(found, "([i,k],[k,j])->([i,j]) {i=8, j=16, k=32} reduction={k}")


def test_reshape_with_a_compound_factor_s2_16() -> None:
    found = rule("reshape", "8,4,5", "2,16,5")
    assert str(found) == "([ij, k, l])->([i, jk, l]) {i=2, j=4, k=4, l=5}"


def test_reshape_of_two_dimensions_s2_17() -> None:
    assert str(rule("reshape", "16,4", "8,8")) == "([ij, k])->([i, jk]) {i=8, j=2, k=4}"


@pytest.mark.parametrize(
    ("source", "target", "text"),
    [
        ("4,6", "24", "([i, j])->([ij]) {i=4, j=6}"),
        ("24", "2,3,4", "([ijk])->([i, j, k]) {i=2, j=3, k=4}"),
        ("4,1,6", "1,4,6,1", "([i, _, j])->([_, i, j, _]) {i=4, j=6}"),
        ("1,1", "()", "([_, _])->([]) {}"),
        ("2,3", "3,2", "([i, j])->([k, l]) {i=2, j=3, k=3, l=2} need_replication={i, j, k, l}"),
        ("5,2,3", "5,3,2", "([i, j, k])->([i, l, m]) {i=5, j=2, k=3, l=3, m=2} need_replication={j, k, l, m}"),
        ("2,3,5", "3,2,5", "([i, j, k])->([l, m, k]) {i=2, j=3, k=5, l=3, m=2} need_replication={i, j, l, m}"),
        ("0,4", "2,0", "([i, j])->([k, l]) {i=0, j=4, k=2, l=0} need_replication={i, j, k, l}"),
    ],
)
def test_reshapes_share_what_both_shapes_divide_into(source: str, target: str, text: str) -> None:
    found = rule("reshape", source, target)
    assert str(found) == text
    found.check([t.shape for t in types(source)], [t.shape for t in types(target)])


def test_elementwise_dimensions_of_size_one_have_no_factor_s2_24() -> None:
    assert str(rule("mul", "4,1 4,8", "4,8")) == "([i, _], [i, j])->([i, j]) {i=4, j=8}"
    assert str(rule("max", "() 4,8", "4,8")) == "([], [i, j])->([i, j]) {i=4, j=8}"
    assert str(rule("select_n", "bool:() 4 4", "4")) == "([], [i], [i])->([i]) {i=4}"
    assert str(rule("add", "1 1", "1")) == "([_], [_])->([_]) {}"


def test_elementwise_of_other_ranks_is_an_error() -> None:
    with pytest.raises(RuleError, match="operand 0 of an elementwise op has rank 1, expected 2 or a scalar"):
        rule("add", "8 4,8", "4,8")


@pytest.mark.parametrize(
    ("kind", "operands", "results", "linear"),
    [
        ("add", "4 4", "4", ((0, 1),)),
        ("sub", "4 4", "4", ((0, 1),)),
        ("mul", "4 4", "4", ((0,), (1,))),
        ("div", "4 4", "4", ((0,),)),
        ("div", "int32:4 int32:4", "int32:4", ()),
        ("add", "int32:4 int32:4", "int32:4", ((0, 1),)),
        ("neg", "4", "4", ((0,),)),
        ("max", "4 4", "4", ()),
        ("convert_element_type", "float32:4", "bfloat16:4", ((0,),)),
        ("convert_element_type", "float32:4", "int32:4", ()),
        ("convert_element_type", "int32:4", "float32:4", ()),
        ("convert_element_type", "int8:4", "int32:4", ()),
        ("convert_element_type", "bool:4", "bool:4", ()),
        ("select_n", "bool:4 4 4 4", "4", ((1, 2, 3),)),
        ("complex", "4 4", "complex64:4", ((0, 1),)),
        ("integer_pow", "4", "4", ()),
        ("reduce_precision", "4", "4", ()),
        ("optimization_barrier", "4", "4", ((0,),)),
    ],
)
def test_partial_sums_pass_where_the_op_is_additive(kind: str, operands: str, results: str, linear: tuple) -> None:
    assert rule(kind, operands, results).linear == linear


def test_a_literal_zero_leaves_its_linear_set_and_another_literal_ends_it() -> None:
    config = {"padding_config": ((1, 1, 0),)}
    assert rule("pad", "4 ()", "6", **config).linear == ((0, 1),)
    assert rule("pad", "4 ()", "6", **config, **{LITERALS: {1: 0.0}}).linear == ((0,),)
    assert rule("pad", "4 ()", "6", **config, **{LITERALS: {1: 1.0}}).linear == ()
    assert rule("add", "4 ()", "4", **{LITERALS: {1: 1.0}}).linear == ()
    assert rule("mul", "4 ()", "4", **{LITERALS: {1: 3.0}}).linear == ((0,),)
    assert rule("broadcast_in_dim", "()", "4", broadcast_dimensions=(), **{LITERALS: {0: 0.0}}).linear == ()


@pytest.mark.parametrize(
    ("kind", "combiner", "linear"),
    [("reduce_sum", "add", ((0,),)), ("reduce_max", "max", ()), ("reduce_min", "min", ())],
)
def test_reductions_name_their_combiner_s2_23(kind: str, combiner: str, linear: tuple) -> None:
    found = rule(kind, "4,8", "4", axes=(1,))
    assert found.reduction == {1} and found.combiner == combiner and found.linear == linear


@pytest.mark.parametrize("kind", ["argmax", "argmin", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor"])
def test_what_no_collective_combines_is_whole(kind: str) -> None:
    assert str(rule(kind, "4,8", "4", axes=(1,))) == "([i, j])->([i]) {i=4, j=8} need_replication={j}"


def test_what_a_matmul_of_booleans_contracts_is_whole() -> None:
    """Its partial results have no sum: adding them up makes numbers of them."""
    found = rule("dot_general", "bool:8,32 bool:32,16", "bool:8,16", dimension_numbers=(((1,), (0,)), ((), ())))
    assert same_up_to_names(found, "([i,k],[k,j])->([i,j]) {i=8, j=16, k=32} need_replication={k}")


def test_new_dimensions_of_a_broadcast_are_factors_of_the_result_alone_s2_22() -> None:
    found = rule("broadcast_in_dim", "4", "3,4", broadcast_dimensions=(1,), shape=(3, 4))
    assert str(found) == "([i])->([j, i]) {i=4, j=3}"


def test_grouped_convolution_has_its_groups_as_major_factor() -> None:
    numbers = SimpleNamespace(lhs_spec=(0, 1, 2), rhs_spec=(0, 1, 2), out_spec=(0, 1, 2))
    found = rule(
        "conv_general_dilated", "2,6,8 10,3,1", "2,10,8", dimension_numbers=numbers, feature_group_count=2,
        batch_group_count=1, window_strides=(1,), padding=((0, 0),), lhs_dilation=(1,), rhs_dilation=(1,),
    )  # fmt: skip
    assert str(found) == "([i, jk, l], [jm, k, _])->([i, jm, l]) {i=2, j=2, k=3, l=8, m=5} reduction={k}"


def gather_numbers(**changes: Any) -> SimpleNamespace:
    numbers = {
        "offset_dims": (2,), "collapsed_slice_dims": (0,), "start_index_map": (0,), "operand_batching_dims": (),
        "start_indices_batching_dims": (),
    }  # fmt: skip
    return SimpleNamespace(**(numbers | changes))


def test_the_vocabulary_of_an_embedding_lookup_acts_like_a_sum() -> None:
    found = rule("gather", "20,16 int32:4,5,1", "4,5,16", dimension_numbers=gather_numbers(), slice_sizes=(1, 16))
    assert str(found) == "([i, j], [k, l, _])->([k, l, j]) {i=20, j=16, k=4, l=5} reduction={i}"


@pytest.mark.parametrize(
    ("mode", "fill", "linear"),
    [("CLIP", None, ((0,),)), ("FILL_OR_DROP", None, ((0,),)), ("FILL_OR_DROP", 0, ((0,),)), ("FILL_OR_DROP", 3, ())],
)
def test_a_fill_value_that_cannot_be_summed_ends_partial_sums(mode: str, fill: Any, linear: tuple) -> None:
    found = rule(
        "gather", "20,16 int32:4,5,1", "4,5,16", dimension_numbers=gather_numbers(), slice_sizes=(1, 16),
        mode=SimpleNamespace(name=mode), fill_value=fill,
    )  # fmt: skip
    assert found.linear == linear


def test_scatter_add_accumulates_and_scatter_does_not() -> None:
    numbers = SimpleNamespace(
        update_window_dims=(2,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,), operand_batching_dims=(),
        scatter_indices_batching_dims=(),
    )  # fmt: skip
    shapes = "20,16 int32:4,5,1 4,5,16", "20,16"
    add = rule("scatter-add", *shapes, dimension_numbers=numbers)
    assert str(add) == "([i, j], [k, l, _], [k, l, j])->([i, j]) {i=20, j=16, k=4, l=5} reduction={k, l}"
    assert add.accumulators == (0,) and add.linear == ((0, 2),)
    plain = rule("scatter", *shapes, dimension_numbers=numbers)
    assert str(plain) == "([i, j], [k, l, _], [k, l, j])->([i, j]) {i=20, j=16, k=4, l=5} need_replication={k, l}"
    assert plain.accumulators == ()
    assert rule("scatter-max", *shapes, dimension_numbers=numbers).combiner == "max"


def test_experts_of_a_ragged_dot_act_like_a_sum() -> None:
    numbers = SimpleNamespace(
        dot_dimension_numbers=(((1,), (1,)), ((), ())), lhs_ragged_dimensions=(0,), rhs_group_dimensions=(0,)
    )
    found = rule("ragged_dot_general", "8,6 4,6,10 int32:4", "8,10", ragged_dot_dimension_numbers=numbers)
    assert str(found) == (
        "([i, j], [k, j, l], [m])->([i, l]) {i=8, j=6, k=4, l=10, m=4} reduction={j, k} need_replication={m}"
    )


def test_only_batch_dimensions_of_linear_algebra_are_shared() -> None:
    assert str(rule("cholesky", "3,4,4", "3,4,4")) == (
        "([i, j, k])->([i, l, m]) {i=3, j=4, k=4, l=4, m=4} need_replication={j, k, l, m}"
    )
    solve = rule("triangular_solve", "3,4,4 3,4,6", "3,4,6", left_side=True)
    assert str(solve) == (
        "([i, j, k], [i, l, m])->([i, n, m]) {i=3, j=4, k=4, l=4, m=6, n=4} need_replication={j, k, l, n}"
    )


def test_drawn_bits_are_whole_and_batches_of_keys_are_not() -> None:
    found = rule("random_bits", "key<fry>:8", "uint32:8,4", shape=(4,), bit_width=32)
    assert str(found) == "([i])->([i, j]) {i=8, j=4} need_replication={j}"


def test_an_unknown_primitive_is_whole_and_says_so() -> None:
    match = rule_for("my_kernel", types("4,1 8"), types("4"), {})
    assert str(match.rule) == "([i, _], [j])->([k]) {i=4, j=8, k=4} need_replication={i, j, k}"
    assert match.warning is not None
    assert "no sharding rule for my_kernel(float32[4,1], float32[8]) -> (float32[4])" in match.warning
    assert "register_rule('my_kernel', ...)" in match.warning


def test_a_primitive_with_unknown_parameters_is_whole_and_says_so() -> None:
    match = rule_for("transpose", types("4,8"), types("8,4"), {"order": (1, 0)})
    assert match.rule.shardable == ()
    assert match.warning is not None and "has no parameter permutation (found ['order'])" in match.warning


def test_a_rule_that_does_not_fit_its_types_is_an_error() -> None:
    with pytest.raises(RuleError, match="earlier dimension of the same factor"):
        rule("add", "4,8 4,6", "4,8")
    with pytest.raises(RuleError, match=r"the rule has 2 dimensions for result 0 of rank 1"):
        rule("transpose", "4,8", "8", permutation=(1, 0))


@pytest.mark.parametrize("size", [2, 3, 8])
@pytest.mark.parametrize("kind", ["abs", "pow", "threefry2x32", "erf_inv", "nextafter", "logistic", "random_fold_in"])
def test_elementwise_primitives_are_known(kind: str, size: int) -> None:
    results = "4" if kind != "threefry2x32" else "4 4"
    assert rule(kind, " ".join(["4"] * size), results).shardable == (0,)


def test_care_is_stated_for_known_primitives_only() -> None:
    assert "FILL_OR_DROP" in (local_care_of("gather") or "")
    assert local_care_of("add") is None
    assert {"gather", "scatter-add", "dot_general", "conv_general_dilated", "top_k"} <= set(known_primitives())
