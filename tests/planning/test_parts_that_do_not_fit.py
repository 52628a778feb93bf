"""Parts of axes that do not fit together, or not `sub_axes`, are refused with the statements that name them."""

from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding, PartitionSpec
from plan_cases import f32

from autoshard import NoCollective, Pin, Replicated, plan
from autoshard.api.session import plan_config
from autoshard.config import load_config
from autoshard.config.problem import build_problem
from autoshard.errors import InputError
from autoshard.planning.parts import check_sub_axes, cuts_of
from autoshard.sharding.mesh import Mesh


def refusal(*stated: Any, size: int = 12, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        plan(jnp.sin, f32(48, 48), mesh={"x": size}, hardware="tpu_v5e", constraints=stated, **options)
    return str(caught.value)


TWO, THREE = Pin("x", '[{"x":(1)2}, {}]'), Pin("out", '[{"x":(1)3}, {}]')


def test_two_statements_whose_parts_do_not_fit_are_both_named() -> None:
    first, *lines = refusal(TWO, THREE).splitlines()
    assert first.startswith('statements split axis "x" of 12 devices into 2 and into 3 blocks')
    assert [line.split(": ", 1)[1] for line in lines[:2]] == [str(TWO), str(THREE)]
    assert lines[2] == 'state parts that fit, such as "x":(1)2 and "x":(2)6'


def test_what_is_to_be_tried_is_accepted() -> None:
    stated = [TWO, Pin("out", '[{"x":(2)6}, {}]')]
    assert plan(jnp.sin, f32(48, 48), mesh={"x": 12}, hardware="tpu_v5e", constraints=stated)["x"] == '[{"x":(1)2}, {}]'


def test_a_pin_and_a_restriction_may_be_at_odds() -> None:
    assert "no collective over x:(1)3 at **" in refusal(TWO, NoCollective("x:(1)3"))


def test_one_statement_that_is_at_odds_with_itself_is_named_once() -> None:
    assert refusal(Replicated("x", ["x:(1)2", "x:(3)2"]), size=6).count("replicated x over") == 1


def test_a_pin_on_another_mesh_is_told_as_it_was_written() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:6]).reshape(3, 2), ("a", "b"))
    said = refusal(Pin("x", NamedSharding(mesh, PartitionSpec("a"))), TWO, size=6)
    assert '(stated as [{"a"}, {}] on <["a"=3, "b"=2]>)' in said


def test_a_config_is_told_the_lines_of_both(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "model: mlp\nmesh: {x: 12}\nhardware: tpu_v5e\n"
        'no_collective: ["x:(1)2"]\nreplicated:\n  - {pattern: batch/x, axes: ["x:(1)3"]}\n'
    )
    config = load_config(tmp_path / "a.yaml")
    problem = build_problem(config)
    with pytest.raises(InputError, match=r"(?s)a\.yaml:4:17: no collective.*a\.yaml:6:5: replicated"):
        plan_config(config, problem)


@pytest.mark.parametrize("stated", [Pin("x", '[{"x":(1)4}, {}]'), NoCollective("x:(4)2")], ids=str)
def test_a_statement_that_splits_an_axis_elsewhere_than_sub_axes_is_named(stated: Any) -> None:
    said = refusal(stated, size=8, sub_axes={"x": (2, 4)})
    assert str(stated) in said
    assert "splits axis 'x' of 8 devices into 4 blocks, where none of the parts [2, 4] ends" in said
    assert said.endswith("leave 'x' out of sub_axes, or give it the parts [2, 2, 2]")


@pytest.mark.parametrize("parts", [(3,), (2, 2), (2, 4, 0), (-2, -4), ()], ids=str)
def test_parts_that_do_not_multiply_to_the_axis_are_refused(parts: tuple[int, ...]) -> None:
    said = refusal(size=8, sub_axes={"x": parts})
    assert said.startswith(f"sub_axes: axis 'x' has 8 devices and cannot be split into {list(parts)}")


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(2, 64))
def test_sub_axes_are_refused_exactly_where_a_statement_splits_elsewhere(parts: list[int], cut: int) -> None:
    size = prod(parts)
    ends = [1, *(prod(parts[: k + 1]) for k in range(len(parts)))]
    assert all(b % a == 0 for a, b in pairwise(sorted(cuts_of(parts))))
    if cut in ends:
        check_sub_axes({"x": parts}, {"x": {cut: "a pin"}}, Mesh.from_dict({"x": size}))
        return
    with pytest.raises(InputError, match=f"into {cut} blocks"):
        check_sub_axes({"x": parts}, {"x": {cut: "a pin"}}, Mesh.from_dict({"x": size}))


@pytest.mark.parametrize(
    ("name", "said"), [("x", "into the parts \\[2, 6\\]"), ("out", "(?s)into 2 and into 3 blocks.*pin x: .*pin out: ")]
)
def test_another_sharding_that_does_not_fit_the_parts_of_a_plan_is_refused(name: str, said: str) -> None:
    """A pin on the same value gives way to it; one on another value stays."""
    found = plan(jnp.sin, f32(48, 48), mesh={"x": 12}, hardware="tpu_v5e", constraints=TWO)
    with pytest.raises(InputError, match=said):
        found.instead(name, '[{"x":(1)3}, {}]')
