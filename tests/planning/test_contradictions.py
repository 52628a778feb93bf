"""Planted contradictions: the set that is told is minimal, and the planted one where that is the only one."""

from collections.abc import Sequence
from math import inf
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name
from plan_cases import f32, gradient, mlp

from autoshard import AxisOnly, MaxReshards, NoCollective, Pin, Replicated, SameSharding, plan
from autoshard.api.verbs import Constraint, ask
from autoshard.deadline import Deadline
from autoshard.errors import InfeasibleError, NotFoundError
from autoshard.frontends.jax.function import trace
from autoshard.planning import Decision, Model, answer, build_model, check_room, decide, subsets
from autoshard.planning.answer import EXPLAINING_SHARE
from autoshard.planning.subsets import SEARCH_S, may_hold
from autoshard.program.program import Program
from autoshard.search_options import SearchOptions

AXES = {"x": 2, "y": 2}


def chain(ops: int) -> tuple[Program, list[str]]:
    """About so many ops on several inputs of one shape, some of the results tagged; and what can be pinned."""
    arrays = min(40, max(3, ops // 10))

    def f(*inputs: Any) -> Any:
        total, tags = inputs[0], 0
        for k in range(max(1, (ops - arrays) // 2)):
            total = jnp.tanh(total) if k % 3 else total @ inputs[k % arrays]
            total = total + inputs[(k + 1) % arrays]
            if k % 16 == 0 and tags < 6:
                total = checkpoint_name(total, f"t{tags}")
                tags += 1
        return total, *(jnp.sin(x) for x in inputs)

    program = trace(f, *[f32(16, 16)] * arrays, argnames=[f"in{k}" for k in range(arrays)]).program
    tags = sorted({f"@{tag}" for value in program.values for tag in value.tags})
    return program, [*program.input_names, *program.output_names, *tags]


def at(statement: Any, line: int) -> Any:
    """The statement as if it stood in a file."""
    kinds = {name: getattr(statement, name) for name in statement.__slots__ if name not in ("source", "written")}
    return type(statement)(**kinds, source=f"plan.yaml:{line}")


def planted(random: Random, names: Sequence[str], members: int) -> list[Any]:
    """Statements that cannot hold together, while all but any one of them can."""
    chosen = random.sample(list(names), 3)
    axis, other = random.sample(["x", "y"], 2)
    cut = Pin(chosen[0], f'[{{"{axis}"}}, {{}}]')
    match members:
        case 1:
            return [Pin(random.choice([n for n in names if n.startswith("out")]), '[{"z"}, {}]')]
        case 2:
            against = [
                Pin(chosen[0], "[{}, {?}]"),
                Pin(chosen[0], f'[{{?}}, {{"{axis}", ?}}]'),
                Replicated(chosen[0], [axis]),
                AxisOnly(axis, [chosen[1]]),
            ]
            return [cut, random.choice(against)]
        case 3:
            tied = SameSharding([chosen[0], chosen[1]])
            last = random.choice([Replicated(chosen[1], [axis]), Pin(chosen[1], f'[{{"{other}"}}, {{?}}]')])
            return [cut, tied, last]
        case _:
            ties = [SameSharding([chosen[0], chosen[1]]), SameSharding([chosen[1], chosen[2]])]
            return [cut, *ties, random.choice([Replicated(chosen[2]), Pin(chosen[2], f'[{{?}}, {{"{axis}"}}]')])]


def bystanders(random: Random, names: Sequence[str], used: set[str], count: int) -> list[Any]:
    """Statements on other values, which contradict nothing."""
    rest = [n for n in names if n not in used]
    return [
        random.choice([Pin(name, "[{?}, {}]"), Pin(name, '[{}, {"y", ?}]'), Replicated(name, ["x"])])
        for name in random.sample(rest, min(count, len(rest)))
    ]


Sizes = dict[str, int]


def can_hold(program: Program, statements: Sequence[Constraint], mesh: Sizes, limit: int | None = None) -> bool:
    """Whether planning goes through, for programs where that is quick; else whether the network allows anything."""
    try:
        asked = ask(program, mesh=mesh, hardware="tpu_v5e", constraints=statements, memory_limit=limit)
        model = build_model(asked.problem)
        check_room(model)
        if len(program.ops) > 60:
            found = may_hold(model, Deadline.after(SEARCH_S))
            assert found is not None, "not settled in time"
            return found
        decide(model)
    except (InfeasibleError, NotFoundError):
        return False
    return True


def plan_it(program: Program, statements: Sequence[Constraint], mesh: Sizes, limit: int | None = None) -> None:
    asked = ask(program, mesh=mesh, hardware="tpu_v5e", constraints=statements, memory_limit=limit)
    model = build_model(asked.problem)
    check_room(model)
    answer(model)


def told(program: Program, statements: Sequence[Constraint], mesh: Sizes, limit: int | None = None) -> list[str]:
    """The places of the statements that planning tells to be at odds."""
    with pytest.raises(InfeasibleError) as caught:
        plan_it(program, statements, mesh, limit)
    assert all(line in str(caught.value) for line in caught.value.conflict)
    return [line.split(": ")[0] for line in caught.value.conflict]


def judge(seed: int, ops: int, members: int, *, drops: bool = True) -> None:
    random = Random(seed)
    program, names = chain(ops)
    mesh = {**AXES, "z": 5} if members == 1 else AXES
    core = planted(random, names, members)
    used = {p for s in core for p in [getattr(s, "pattern", ""), *getattr(s, "patterns", ())]}
    others = [] if any(isinstance(s, AxisOnly) for s in core) else bystanders(random, names, used, random.randint(0, 6))
    stated = [*core, *others]
    random.shuffle(stated)
    stated = [at(s, k + 1) for k, s in enumerate(stated)]
    expected = sorted(s.source for s in stated if any(at(c, 0) == at(s, 0) for c in core))
    assert sorted(told(program, stated, mesh)) == expected, (seed, members)
    for place in expected if drops else ():
        assert can_hold(program, [s for s in stated if s.source != place], mesh), (seed, place)


@pytest.mark.parametrize("members", [1, 2, 3, 4])
def test_planted_contradictions_between_layouts_are_told_exactly(members: int) -> None:
    for seed in range(4):
        judge(100 * members + seed, 12, members)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("members", [1, 2, 3, 4])
@pytest.mark.parametrize(("ops", "count"), [(10, 30), (60, 15), (300, 6), (1500, 2), (5000, 1)])
def test_planted_contradictions_in_programs_of_10_to_5000_ops(ops: int, count: int, members: int) -> None:
    for seed in range(count):
        judge(10_000 * members + seed, ops, members, drops=ops <= 300)


# -- contradictions that layouts alone do not show -----------------------------------------------------------------

WIDE = (f32(64, 64), f32(64, 64), f32(32, 64))


def of(f: Any, *specs: Any) -> Program:
    return trace(f, *specs).program


def test_pins_that_force_a_collective_contradict_a_region_without_any() -> None:
    program = of(mlp, *WIDE)
    stated = [
        Pin("x", "[{?}, {?}]", source="a:1"),
        Pin("w1", '[{"x"}, {}]', source="a:2"),
        NoCollective("x", source="a:3"),
        Pin("w2", "[{}, {?}]", source="a:4"),
        Pin("out", "[{}, {}]", source="a:5"),
    ]
    found = told(program, stated, AXES)
    assert "a:3" in found and len(found) >= 2
    for place in found:
        assert can_hold(program, [s for s in stated if s.source != place], AXES)


def test_pins_that_force_reshards_contradict_a_limit_on_their_number() -> None:
    program = of(mlp, *WIDE)
    stated = [
        Pin("w1", '[{"x"}, {}]', source="a:1"),
        MaxReshards(0, source="a:2"),
        Pin("w2", "[{?}, {?}]", source="a:3"),
    ]
    assert told(program, stated, AXES) == ["a:1", "a:2"]


def test_a_memory_limit_names_the_statements_that_take_the_room() -> None:
    program = of(mlp, *WIDE)
    stated = [
        Pin("w1", "[{}, {}]", source="a:1"),
        Pin("x", "[{?}, {?}]", source="a:2"),
        Pin("w2", "[{}, {}]", source="a:3"),
    ]
    with pytest.raises(InfeasibleError) as caught:
        answer(build_model(ask(
            program, mesh={"x": 2, "y": 4}, hardware="tpu_v5e", constraints=stated, memory_limit=30_000
        ).problem))  # fmt: skip
    error = caught.value
    assert [c.split(":")[:2] for c in error.conflict[1:]] == [["a", "1"], ["a", "3"]]
    facts = error.facts
    assert facts["least_bytes"] > facts["limit_bytes"] == 30_000 and facts["proved"]
    assert {"w1", "w2"} <= {item["name"] for item in facts["held"]}
    drops = [r for r in facts["relaxations"] if r["kind"] == "drop"]
    assert len(drops) == 2 and all(r["fits"] and r["least_bytes"] <= 30_000 for r in drops)
    assert "the fullest point is" in str(error) and "what would make room" in str(error)
    for place in ("a:1", "a:3"):
        assert can_hold(program, [s for s in stated if s.source != place], {"x": 2, "y": 4}, 30_000)


def test_a_limit_that_is_too_small_alone_says_which_axis_would_do() -> None:
    program, pins = of(gradient, *WIDE), [Pin("x", "[{?}, {?}]")]

    def peak(size: int) -> int:
        return decide(build_model(ask(
            program, mesh={"x": size}, hardware="tpu_v5e", memory_limit=24_000, constraints=pins
        ).problem)).memory.peak_bytes  # fmt: skip

    model = build_model(ask(program, mesh={"x": 2}, hardware="tpu_v5e", memory_limit=24_000, constraints=pins).problem)
    with pytest.raises(InfeasibleError) as caught:
        answer(model)
    assert len(caught.value.conflict) == 1
    (axis,) = [r for r in caught.value.facts["relaxations"] if r["kind"] == "axis"]
    # the bound leaves room with 4 and with 8: whether a plan has it takes longer to rule out than is given
    assert axis["text"] in [f"a mesh axis x of {size} instead of 2" for size in (4, 8, 16)]
    assert axis["found_bytes"] is None or axis["found_bytes"] <= 24_000
    assert peak(16) <= 24_000


@pytest.mark.parametrize("limit", [12_000, 20_000, 30_000])
def test_what_is_told_to_make_room_does(limit: int) -> None:
    program = of(mlp, *WIDE)
    pins = [Pin("w1", "[{}, {}]", source="a:1"), Pin("w2", '[{"x"}, {}]', source="a:2")]
    with pytest.raises(InfeasibleError) as caught:
        answer(build_model(ask(
            program, mesh=AXES, hardware="tpu_v5e", constraints=pins, memory_limit=limit
        ).problem))  # fmt: skip
    told = caught.value.facts["relaxations"]
    assert told and all(r["fits"] for r in told)
    assert [r["found_bytes"] is None for r in told] == sorted(r["found_bytes"] is None for r in told)
    for r in told:
        if r["kind"] == "drop":
            kept = [p for p in pins if f"'{p.source}: " not in r["text"]]
            assert can_hold(program, kept, AXES, limit)
        if r["kind"] == "limit":
            assert can_hold(program, pins, AXES, r["found_bytes"])


def test_what_is_held_at_the_fullest_point_is_told_as_it_is_pinned() -> None:
    program = of(gradient, *WIDE)
    pins = [Pin("w1", "[{}, {}]"), Pin("w2", '[{}, {"x"}]'), Pin("x", '[{"y"}, {}]')]
    with pytest.raises(InfeasibleError) as caught:
        answer(build_model(ask(
            program, mesh=AXES, hardware="tpu_v5e", constraints=pins, memory_limit=10_000
        ).problem))  # fmt: skip
    told = {item["name"]: item["layout"] for item in caught.value.facts["held"]}
    assert told["w1"] == "[{}, {}]" and told["w2"] == '[{}, {"x"}]' and told["x"] == '[{"y"}, {}]'


def test_what_is_kept_for_the_backward_pass_is_told_as_something_to_recompute() -> None:
    def f(w: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            h = x
            for _ in range(6):
                h = jnp.sort(h @ w, axis=-1)
            return h.sum()

        return jax.grad(loss)(w)

    program = of(f, f32(8, 8), f32(4096, 8))
    with pytest.raises(InfeasibleError) as caught:
        answer(build_model(ask(program, mesh={"x": 2}, hardware="tpu_v5e", memory_limit=500_000).problem))
    kept = [r for r in caught.value.facts["relaxations"] if r["kind"] == "recompute"]
    assert kept and kept[0]["least_bytes"] < caught.value.facts["least_bytes"]


def test_searches_for_the_smallest_set_keep_within_half_of_the_time_for_explaining(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A time limit is about all of planning: what explains a refusal has no twelve seconds of its own."""
    left: list[float] = []

    def spied(model: Model, options: SearchOptions) -> Decision:
        left.append(options.deadline.left() or inf)
        return decide(model, options)

    monkeypatch.setattr(subsets, "decide", spied)
    stated = [Pin("w1", '[{"x"}, {}]'), Pin("out", "[{}, {}]")]
    specs = f32(64, 128), f32(128, 64), f32(32, 64)
    with pytest.raises(InfeasibleError):
        plan(
            mlp, *specs, mesh={"x": 2, "y": 2}, hardware="tpu_v5e",
            constraints=stated, memory_limit=36_000, time_limit=6,
        )  # fmt: skip
    assert len(left) > 1
    assert EXPLAINING_SHARE * 6 / 2 >= left[0] > left[1]
