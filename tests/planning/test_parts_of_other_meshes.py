"""Statements on another mesh over the same devices: all axes of that mesh are told apart, also those that none uses."""

from collections.abc import Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from plan_cases import f32

from autoshard import Pin, plan
from autoshard.api.verbs import ask
from autoshard.frontends.jax.function import trace
from autoshard.planning import Problem
from autoshard.planning.axis_orders import parts_apart
from autoshard.planning.parts import PART_OPS
from autoshard.questions.again import problem_of
from autoshard.request.asking import Asked
from autoshard.verify import check_plan

P = PartitionSpec
MANY_OPS = 300


def on(sizes: Sequence[int], *entries: Any) -> NamedSharding:
    names = tuple("abcd")[: len(sizes)]
    return NamedSharding(Mesh(np.array(jax.devices()[: prod(sizes)]).reshape(sizes), names), P(*entries))


def chain(ops: int) -> Any:
    def f(x: Any) -> Any:
        for _ in range(ops):
            x = jnp.sin(x)
        return x

    return f


def asked_of(f: Any, *specs: Any, axes: dict[str, int] | None = None, **options: Any) -> Asked:
    return ask(trace(f, *specs), mesh=axes or {"x": 8}, hardware="tpu_v5e", **options)


def asked(*stated: NamedSharding, ops: int = 1, **options: Any) -> Asked:
    return asked_of(chain(ops), f32(64, 64), constraints=[Pin("x", one) for one in stated], **options)


def parts(problem: Problem) -> list[str]:
    return [problem.mesh.axes_text(unit) for unit in parts_apart(problem)]


HALVES = ['"x":(1)2', '"x":(2)2', '"x":(4)2']


@pytest.mark.parametrize("entries", [("b",), ("a",), (None, "c"), ()], ids=str)
def test_all_axes_of_the_mesh_of_a_pin_are_told_apart(entries: tuple[str | None, ...]) -> None:
    assert parts(asked(on((2, 2, 2), *entries)).problem) == HALVES


def test_so_are_those_of_the_mesh_of_an_argument() -> None:
    x = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=on((2, 4)))
    assert parts(asked_of(jnp.sin, x).problem) == ['"x":(1)2', '"x":(2)4']


def test_so_are_those_of_the_mesh_of_a_constraint_in_the_code() -> None:
    def f(x: jax.Array) -> jax.Array:
        return jax.lax.with_sharding_constraint(jnp.sin(x), on((2, 4)))

    assert parts(asked_of(f, f32(64, 64)).problem) == ['"x":(1)2', '"x":(2)4']


def test_the_mesh_of_the_plan_tells_no_parts_apart() -> None:
    assert parts(asked(on((8,), "a"), axes={"a": 8}).problem) == []


def test_an_axis_that_the_user_has_whole_stays_whole() -> None:
    assert asked(on((2, 4)), sub_axes={}).problem.mesh.names == ("x",)


def test_parts_that_the_user_chose_are_kept() -> None:
    assert parts(asked(on((2, 4)), sub_axes={"x": (2, 4)}).problem) == ['"x":(1)2', '"x":(2)4']
    assert parts(asked(on((2, 4)), sub_axes={"x": (4, 2)}).problem) == []


def test_an_axis_that_a_shard_map_of_the_program_runs_over_stays_whole() -> None:
    own = Mesh(np.array(jax.devices()[:8]), ("x",))
    inner = jax.shard_map(lambda x: x * 2, mesh=own, in_specs=P("x"), out_specs=P("x"))
    found = plan(
        lambda x: inner(jnp.sin(x)), f32(64, 64), mesh=own, hardware="tpu_v5e", constraints=[Pin("x", on((2, 4)))]
    )
    assert found.atoms.names == ("x",) and found["x"] == "[{}, {}]"


def test_the_axes_of_several_meshes_are_told_apart() -> None:
    assert parts(asked(on((4, 2)), on((2, 4))).problem) == HALVES


def test_of_meshes_whose_axes_do_not_fit_together_those_of_one_are_told_apart() -> None:
    six = asked_of(jnp.sin, f32(6, 6), axes={"x": 6}, constraints=[Pin("x", on((3, 2))), Pin("out", on((2, 3)))])
    assert parts(six.problem) == ['"x":(1)2', '"x":(2)3']


def test_axes_that_cut_two_axes_of_the_plan_are_told_apart_on_both() -> None:
    found = asked(on((2, 2, 2), "c"), axes={"x": 4, "y": 2}, ops=MANY_OPS)
    assert parts(found.problem) == ['"x":(1)2', '"x":(2)2']


def test_parts_that_statements_name_come_before_other_axes_of_their_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where two axes and parts may be told apart, the named one is told from the rest."""
    monkeypatch.setattr("autoshard.planning.parts.SOME_AXES", 2)
    found = asked(on((2, 2, 2), "a"), ops=PART_OPS + 1)
    assert parts(found.problem) == ['"x":(1)2', '"x":(2)4']
    assert any(note.startswith("statements are on a mesh whose axes are parts of x; ") for note in found.notes)


def test_no_note_speaks_of_parts_where_all_are_told_apart() -> None:
    assert not any("parts of" in note for note in asked(on((2, 2, 2), "a")).notes)


def test_a_saved_plan_is_of_the_same_problem() -> None:
    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.tanh(x @ w)

    stated = [Pin("x", on((2, 2, 2), "b")), Pin("out", on((2, 2, 2), None, "a"), priority=1)]
    found = plan(f, f32(64, 64), f32(64, 64), mesh={"x": 8}, hardware="tpu_v5e", constraints=stated)
    again = problem_of(found)
    assert parts(again) == HALVES and found.atoms == again.mesh
    assert check_plan(found.to_dict()).ok
