"""What else a value could have been: figures that re-planning never exceeds."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from autoshard import MaxReshards, MemoryKind, Pin, plan, solver
from autoshard.api.plans import Plan
from autoshard.questions.alternatives import Alternatives
from autoshard.solver.solution import Stopped

SPEC = jax.ShapeDtypeStruct


def f(w1, w2, x):
    return jnp.tanh(x @ w1) @ w2


@pytest.fixture(scope="module")
def found() -> Plan:
    return plan(
        f, SPEC((64, 128), jnp.float32), SPEC((128, 64), jnp.float32), SPEC((32, 64), jnp.float32),
        mesh={"x": 2, "y": 4}, hardware="tpu_v5e", constraints=[Pin("out", "[{}, {}]"), Pin("w2", '[{"y", ?}, {}]')],
    )  # fmt: skip


def test_every_other_sharding_that_the_statements_leave_is_told_once_cheapest_first(found: Plan) -> None:
    (told,) = found.explain("w1")
    shardings = [a.sharding for a in told.alternatives]
    assert told.sharding not in shardings
    assert len(set(shardings)) == len(shardings) >= 8
    assert [a.extra_s for a in told.alternatives] == sorted(a.extra_s for a in told.alternatives)
    assert all(a.sharding.startswith('[{"y"') for a in found.explain("w2")[0].alternatives)


def test_planning_with_that_sharding_costs_no_more_than_is_told(found: Plan) -> None:
    for value in ("w1", "x"):
        for other in found.explain(value)[0].alternatives[:4]:
            exact = found.instead(value, other.sharding)
            assert exact.extra_s <= other.extra_s + 2 * exact.other.rounding_s


def test_in_a_small_program_the_figure_is_exact(found: Plan) -> None:
    """All of it lies near the value."""
    for other in found.explain("w1")[0].alternatives[:3]:
        exact = found.instead("w1", other.sharding)
        assert other.extra_s == pytest.approx(exact.extra_s, abs=4 * exact.other.rounding_s)


def test_among_many_decisions_the_figure_of_a_value_laid_otherwise_is_exact_where_few_follow() -> None:
    """Few decisions around the value are solved first: among 150, little work ended at 7 times the figure."""

    def unit(rows):
        return rows / jnp.linalg.norm(rows, axis=-1, keepdims=True)

    def step(weights, images, texts):
        def loss(w):
            scores = unit(images @ w["images"]) @ unit(texts @ w["texts"]).T
            return -jnp.trace(jax.nn.log_softmax(scores) + jax.nn.log_softmax(scores.T))

        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights))

    square = SPEC((64, 64), jnp.float32)
    weights = {"images": square, "texts": square}
    contrasted = plan(step, weights, square, square, mesh={"data": 4, "model": 2}, hardware="cpu_sim")
    told = {a.sharding: a.extra_s for a in contrasted.explain("weights/images")[0].alternatives}
    columns = '[{}, {"data", "model"}]'
    assert told[columns] == pytest.approx(contrasted.instead("weights/images", columns).extra_s, rel=1e-6)


def test_no_alternative_is_cheaper_than_a_proven_optimum(found: Plan) -> None:
    assert found.status == "optimal"
    others = Alternatives(found)
    for value in found.program.body.args:
        assert all(a.extra_s >= -others.model.encoded.tick_s for a in others.of(value))


def test_outputs_and_intermediates_have_alternatives_too(found: Plan) -> None:
    assert any(v.alternatives for v in found.explain("tanh:1"))
    assert found.explain("out")[0].alternatives == ()  # pinned


def test_the_stage_that_fixed_a_value_is_told_with_its_cost_and_asked_again_in_stages() -> None:
    staged = plan(
        f, SPEC((64, 128), jnp.float32), SPEC((128, 64), jnp.float32), SPEC((32, 64), jnp.float32),
        mesh={"x": 2, "y": 4}, hardware="tpu_v5e",
        constraints=[Pin("x", '[{"x"}, {?}]'), Pin("w1", '[{?}, {"y", ?}]', priority=1)],
    )  # fmt: skip
    assert len(staged.stages) == 2
    assert "in stage 1 of 2 (priority 0)" in staged.explain("x")[0].stage
    assert "in stage 2 of 2 (priority 1)" in staged.explain("w1")[0].stage
    told = staged.instead("w2", "[{}, {}]")
    assert len(told.other.stages) == 2
    assert told.extra_s >= -told.other.rounding_s


def test_ctrl_c_in_the_price_of_one_ends_them_all(found: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    solve = solver.solve
    monkeypatch.setattr(
        solver, "solve", lambda *given, **words: replace(solve(*given, **words), stats={"stopped": Stopped.INTERRUPT})
    )
    with pytest.raises(KeyboardInterrupt):
        found.explain("w1")


@pytest.mark.parametrize(
    ("stated", "limit"),
    [
        ([MaxReshards(0)], None),
        ([MemoryKind("x"), MemoryKind("y")], {"device": "1MB", "pinned_host": 128}),
    ],
)
def test_alternatives_keep_to_stated_numbers_of_reshards_and_to_host_memory(stated, limit) -> None:
    """They were priced as if nothing limited either: some cost less than the optimum, and none could be planned."""

    def outer(x, y):
        return jnp.broadcast_to(x, (4, *x.shape)), jnp.tanh(y @ y.T)

    limited = plan(
        outer, SPEC((4, 8), jnp.float32), SPEC((8, 8), jnp.float32),
        mesh={"x": 2, "y": 2}, hardware="h100", constraints=stated, memory_limit=limit,
    )  # fmt: skip
    others = [(name, a) for name in ("x", "y", "out/0", "out/1") for a in limited.explain(name)[0].alternatives]
    assert others
    for name, other in others[::3]:
        assert other.extra_s >= limited.bound_s - limited.objective_s - 2 * limited.rounding_s
        exact = limited.instead(name, other.sharding)
        assert exact.extra_s <= other.extra_s + 2 * exact.other.rounding_s


@pytest.fixture(scope="module")
def staged() -> Plan:
    """A first stage cuts the rows of the weights, which costs more than all at once would."""
    return plan(
        f, SPEC((64, 128), jnp.float32), SPEC((128, 64), jnp.float32), SPEC((32, 64), jnp.float32),
        mesh={"x": 2, "y": 4}, hardware="tpu_v5e",
        constraints=[Pin("w1", '[{"y", ?}, {?}]'), Pin("x", '[{?}, {"x", ?}]', priority=1)],
    )  # fmt: skip


def test_beside_stages_alternatives_are_told_to_be_all_at_once(staged: Plan) -> None:
    assert staged.joint is not None
    told = str(staged.explain("w2")[0]).splitlines()
    others = [line for line in told if line.startswith("  instead")]
    assert others
    assert all("all at once, without the stages" in line for line in others)


def test_what_costs_less_is_not_told_to_cost_the_same(found: Plan) -> None:
    (told,) = found.explain("w1")
    cheaper = replace(told.alternatives[0], extra_s=-2e-6)
    assert "costs at least 2 us less" in str(replace(told, alternatives=(cheaper,)))
