"""Rules of ops that turn rows into other rows: the batch passes, the rest is whole."""

import pytest

from autoshard.onnx.graph import ValueType
from autoshard.onnx.rules import Call, rule_of


@pytest.mark.parametrize(
    ("op", "domain", "source", "target", "expected"),
    [
        ("TfIdfVectorizer", "", (4, 12), (4, 7), "([i, j])->([i, k]) whole={j, k}"),
        ("TfIdfVectorizer", "", (12,), (7,), "([i])->([j]) whole={i, j}"),
        ("TreeEnsemble", "ai.onnx.ml", (4, 3), (4, 2), "([i, j])->([i, k]) whole={j, k}"),
    ],
)
def test_rows_are_turned_into_other_rows(
    op: str, domain: str, source: tuple[int, ...], target: tuple[int, ...], expected: str
) -> None:
    call = Call(op, (ValueType("float32", source),), (ValueType("float32", target),))
    rule = rule_of(call, domain)
    assert rule is not None
    assert rule.text() == expected


def test_an_op_of_one_domain_has_no_rule_in_another() -> None:
    call = Call("TreeEnsemble", (ValueType("float32", (4, 3)),), (ValueType("float32", (4, 2)),))
    assert rule_of(call, "") is None
