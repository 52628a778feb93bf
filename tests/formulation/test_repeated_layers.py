"""Unrolled layers that are the same up to names share one decision."""

from functools import partial
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from plan_cases import f32, problem, program_of, random_assignment

from autoshard.formulation.repeats import tandem_repeats
from autoshard.planning import Model, build_model, decide
from autoshard.program.program import Program
from autoshard.solver.network import evaluate


@pytest.mark.parametrize(
    ("text", "least", "found"),
    [
        ("xabcabcabcy", 3, [(1, 3, 3)]),
        ("abcd", 2, []),
        ("abab", 2, [(0, 2, 2)]),
        ("aaaa", 1, [(0, 1, 4)]),
        ("aaaa", 2, [(0, 2, 2)]),
        ("ababXcdcdcd", 2, [(0, 2, 2), (5, 2, 3)]),
        ("abcabcab", 3, [(0, 3, 2)]),  # the last, unfinished stretch stays alone
        ("", 1, []),
    ],
)
def test_stretches_that_follow_themselves_are_found(text: str, least: int, found: list[tuple[int, int, int]]) -> None:
    assert tandem_repeats(list(text), min_stretch=least) == found


def test_found_stretches_repeat_and_do_not_overlap() -> None:
    random = Random(0)
    for _ in range(300):
        text = "".join(random.choice("ab") for _ in range(random.randint(0, 24)))
        end = 0
        for start, period, count in tandem_repeats(list(text), min_stretch=2):
            assert start >= end and count >= 2 and period >= 2
            assert text[start : start + period] * count == text[start : start + period * count]
            end = start + period * count


def layer(x: Any, w: Any) -> Any:
    """More ops than the shortest stretch that is shared."""
    h = jnp.tanh(x @ w["in"])
    h = h * jax.nn.sigmoid(h) + 1.0
    h = h - h.mean(axis=-1, keepdims=True)
    return x + jnp.exp(-h) @ w["out"]


def specs(n: int) -> tuple[Any, Any]:
    return [{"in": f32(16, 32), "out": f32(32, 16)} for _ in range(n)], f32(8, 16)


def unrolled(n: int) -> Program:
    def f(ws: Any, x: Any) -> Any:
        for w in ws:
            x = layer(x, w)
        return x

    return program_of(f, *specs(n))


def scanned(n: int) -> Program:
    stack = jax.tree.map(lambda s: f32(n, *s.shape), specs(1)[0][0])
    return program_of(lambda ws, x: jax.lax.scan(lambda c, w: (layer(c, w), None), x, ws)[0], stack, f32(8, 16))


def model(program: Program, share: bool = True, **options: Any) -> Model:
    return build_model(problem(program, {"x": 2, "y": 2}, share_repeats=share, **options))


def test_layers_share_their_decisions_and_the_plan_says_so() -> None:
    found = model(unrolled(4))
    assert found.repeats.shared
    assert found.repeats.network.n_nodes < 0.5 * found.encoded.network.n_nodes
    (note,) = decide(found).notes
    assert note.startswith("repeated layers share one decision (up to ")
    assert note.endswith("the bound is on plans that do so")


def test_sharing_can_be_switched_off() -> None:
    found = model(unrolled(4), share=False)
    assert not found.repeats.shared
    assert decide(found).notes == ()


def test_the_quotient_costs_what_the_whole_costs_when_repeats_agree() -> None:
    found = model(unrolled(4))
    random = Random(1)
    for _ in range(10):
        assignment = random_assignment(found.repeats.network, random)
        assert assignment is not None
        whole = found.repeats.expand(assignment)
        small, large = evaluate(found.repeats.network, assignment), evaluate(found.encoded.network, whole)
        assert (small.cost, small.peak) == (large.cost, large.peak)
        assert found.repeats.contract(whole) == list(assignment)


def test_parameters_of_shared_layers_lie_alike() -> None:
    found = model(unrolled(4))
    schedule = decide(found).schedule
    program = found.problem.program
    for name in ("in", "out"):
        layouts = {
            schedule.definitions[v]
            for path, v in zip(program.input_names, program.body.args, strict=False)
            if path.endswith(f"/{name}")
        }
        assert len(layouts) <= 2  # the first layer may differ: its input is an argument


def test_letting_layers_differ_is_never_dearer_and_hardly_cheaper() -> None:
    program = unrolled(4)
    shared, free = decide(model(program)), decide(model(program, share=False))
    assert free.bound_s <= shared.objective_s + shared.rounding_s
    assert shared.objective_s <= 1.05 * free.objective_s


def test_a_scan_over_layers_costs_about_what_they_cost_unrolled() -> None:
    """The same layers; a scan adds what its carry and its slices hold and may reshard once a trip only."""
    loop, flat = decide(model(scanned(4))), decide(model(unrolled(4), share=False))
    assert flat.cost.step_s == pytest.approx(loop.cost.step_s, rel=0.25)


def test_programs_without_repeats_are_left_alone() -> None:
    found = model(program_of(lambda x, w: jnp.tanh(x @ w), f32(8, 16), f32(16, 16)))
    assert not found.repeats.shared and found.repeats.network is found.encoded.network


def trained(n: int) -> Program:
    """A step of training: all gradients are made wide, then all parameters, and then each is updated."""

    def step(ws: Any, x: Any) -> Any:
        def loss(ws: Any) -> Any:
            h = x
            for blocks in ws:
                for w in blocks:
                    h = layer(h, w)
            return (h * h).sum()

        wide = partial(jax.tree.map, lambda t: t.astype(jnp.float32))
        grads, whole = wide(jax.grad(loss)(ws)), wide(ws)
        return jax.tree.map(lambda w, g: (w - g * g).astype(jnp.bfloat16), whole, grads)

    def half(t: Any) -> Any:
        return jax.ShapeDtypeStruct(t.shape, jnp.bfloat16)

    blocks = [{"in": f32(16, wide), "out": f32(wide, 16)} for wide in (32, 48, 64, 80)]
    return program_of(step, *jax.tree.map(half, ([blocks] * n, f32(8, 16))))


def test_updates_follow_their_layers_where_longer_stretches_look_alike_too() -> None:
    """All gradients and all parameters are alike as lists; what is shared is the layers of each."""

    def decided(n: int) -> int:
        found = model(trained(n))
        ops = [
            cls for node, cls in zip(found.collected.nodes, found.repeats.class_of, strict=True) if node.op is not None
        ]
        return len(set(ops))

    assert decided(3) == decided(4)


def in_scopes(*names: str) -> Program:
    """As many layers, each in its scope."""

    def f(ws: Any, x: Any) -> Any:
        for name, w in zip(names, ws, strict=True):
            with jax.named_scope(name):
                x = layer(x, w)
        return x

    return program_of(f, *specs(len(names)))


def test_layers_in_scopes_that_are_numbered_share() -> None:
    numbered = model(in_scopes("blocks.8/dense_17", "blocks.9/dense_19", "blocks.10/dense_21"))
    assert numbered.repeats.network.n_nodes == model(unrolled(3)).repeats.network.n_nodes


def test_layers_in_scopes_of_other_names_do_not_share() -> None:
    assert not model(in_scopes("first", "second", "third")).repeats.shared
