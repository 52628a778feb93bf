"""`register_rule`: users' rules as text, with sizes from the shapes."""

from collections.abc import Iterator

import pytest

from autoshard.errors import RuleError
from autoshard.program.types import TensorType
from autoshard.rules import register_rule, rule_for, unregister_rule


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    unregister_rule("mine")


def rule(operands: list[tuple[int, ...]], results: list[tuple[int, ...]], kind: str = "mine") -> str:
    f32 = lambda shapes: [TensorType(s, "float32") for s in shapes]  # noqa: E731
    match = rule_for(kind, f32(operands), f32(results), {})
    assert match.warning is None
    return str(match.rule)


def test_sizes_come_from_the_shapes() -> None:
    register_rule("mine", "([i, k], [k, j])->([i, j])", reduction="k")
    assert rule([(8, 32), (32, 16)], [(8, 16)]) == "([i, j], [j, k])->([i, k]) {i=8, j=32, k=16} reduction={j}"


def test_compound_dimensions_take_their_sizes_from_others() -> None:
    register_rule("mine", "([i, j])->([ij])")
    assert rule([(4, 6)], [(24,)]) == "([i, j])->([ij]) {i=4, j=6}"


def test_a_factor_of_size_one_vanishes() -> None:
    register_rule("mine", "([i, _, k])->([i])", reduction=["k"])
    assert rule([(4, 1, 1)], [(4,)]) == "([i, _, _])->([i]) {i=4}"


def test_marks_and_linear_sets_are_kept() -> None:
    register_rule("mine", "([i, k])->([i])", need_replication="i", reduction="k", combiner="max")
    assert rule([(4, 6)], [(4,)]) == "([i, j])->([i]) {i=4, j=6} reduction={j} need_replication={i} combiner=max"
    register_rule("mine", "([i], [i])->([i])", linear=[(0,), (1,)])
    match = rule_for("mine", [TensorType((4,), "float32")] * 2, [TensorType((4,), "float32")], {})
    assert match.rule.linear == ((0,), (1,)) and match.rule.is_custom


def test_a_factor_that_no_result_has_and_that_is_no_reduction_is_whole() -> None:
    register_rule("mine", "([i, k])->([i])")
    assert rule([(4, 6)], [(4,)]) == "([i, j])->([i]) {i=4, j=6} need_replication={j}"


@pytest.mark.parametrize("factors", ["K", "j; k", "dim 1", "j, K"])
def test_names_of_factors_that_cannot_be_read_are_an_error(factors: str) -> None:
    with pytest.raises(RuleError, match="in the factors"):
        register_rule("mine", "([j, k])->([j, k])", need_replication=factors)


def test_a_users_rule_goes_before_the_built_in_one_and_can_be_forgotten() -> None:
    register_rule("neg", "([i])->([i])", need_replication="i")
    assert rule([(4,)], [(4,)], "neg") == "([i])->([i]) {i=4} need_replication={i}"
    unregister_rule("neg")
    assert rule([(4,)], [(4,)], "neg") == "([i])->([i]) {i=4}"


@pytest.mark.parametrize(
    "text",
    ["", "i, j -> j", "([i])", "([i])->([i]) {i=4}", "([I])->([I])", "([i, ])->([i])", "[i]->[i]", "([ii])->([i])"],
)
def test_malformed_text_is_an_error(text: str) -> None:
    with pytest.raises(RuleError, match="cannot read the"):
        register_rule("mine", text)


def test_marks_must_name_factors() -> None:
    with pytest.raises(RuleError, match="reduction names 'z', which no dimension has"):
        register_rule("mine", "([i])->([i])", reduction="z")
    with pytest.raises(RuleError, match="both reduction and need_replication"):
        register_rule("mine", "([i])->([])", reduction="i", need_replication="i")
    with pytest.raises(RuleError, match="combiner 'mean' is not one of add, max, min"):
        register_rule("mine", "([i])->([])", reduction="i", combiner="mean")
    with pytest.raises(RuleError, match="linear names operand 1 of 1"):
        register_rule("mine", "([i])->([i])", linear=[(1,)])


def test_a_reduction_factor_of_a_result_is_an_error() -> None:
    with pytest.raises(RuleError, match="reduction factor 'i' is in a result"):
        register_rule("mine", "([i])->([i])", reduction="i")


@pytest.mark.parametrize(
    ("operands", "results", "message"),
    [
        ([(8, 32)], [(8, 16)], "has 2 operands, the op has 1"),
        ([(8, 32), (32, 16, 1)], [(8, 16)], "gives operand 1 rank 2, it has rank 3"),
        ([(8, 32), (31, 16)], [(8, 16)], "dimension 0 of operand 1 has size 31, its factors say k=32"),
    ],
)
def test_a_rule_that_does_not_fit_its_op_is_an_error(operands: list, results: list, message: str) -> None:
    register_rule("mine", "([i, k], [k, j])->([i, j])", reduction="k")
    with pytest.raises(RuleError, match=message):
        rule(operands, results)


def test_sizes_that_do_not_follow_are_an_error() -> None:
    register_rule("mine", "([ij])->([ji])")
    with pytest.raises(RuleError, match=r"does not settle the sizes of factors \['i', 'j'\]"):
        rule([(24,)], [(24,)])
    register_rule("mine", "([_, i])->([i])")
    with pytest.raises(RuleError, match="dimension 0 of operand 0 has size 2"):
        rule([(2, 4)], [(4,)])
