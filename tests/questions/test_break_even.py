"""Break-even: where a sharding flips as bandwidth, batch or memory moves, judged by planning on both sides of it."""

import json
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from autoshard import InfeasibleError, InputError, Pin, UnsupportedError, plan
from autoshard.api.plans import Plan
from autoshard.cli import main
from autoshard.questions.again import Changed, solve_again
from autoshard.questions.break_even import BreakEven, break_even, quick_options, with_bandwidth
from autoshard.report.progress import Progress

SPEC = jax.ShapeDtypeStruct

CONFIG = """\
function: break_even_program:f
args: {x: "float32[512,256]", w: "float32[256,2048]"}
mesh: {a: 8}
hardware: tpu_v5e
pins: {x: '[{"a"}, {}]', out: "[{}, {}]"}
logical_axes: {x: [batch, null], w: [null, null]}
baselines: []
"""


def f(x, w):
    return jnp.tanh(jnp.tanh(x @ w) @ w.T)


@pytest.fixture(scope="module")
def found() -> Plan:
    """On the rows nothing is sent but the result; on the columns of w what is computed can be, at a price."""
    pins = [Pin("out", "[{}, {}]")]
    return plan(
        f, SPEC((512, 256), jnp.float32), SPEC((256, 2048), jnp.float32), mesh={"a": 8}, hardware="tpu_v5e",
        constraints=pins,
    )  # fmt: skip


@pytest.fixture(scope="module")
def by_bandwidth(found: Plan) -> BreakEven:
    return break_even(found, "w", "bandwidth", instead='[{}, {"a"}]')


def test_beyond_a_flip_the_rival_is_cheaper_and_before_it_the_plan(found: Plan, by_bandwidth: BreakEven) -> None:
    now = found.explain("w")[0].sharding
    for flip in by_bandwidth.flips:
        assert max(flip.stands_at, flip.flips_at) / min(flip.stands_at, flip.flips_at) <= 1.05
        for factor, cheaper in ((flip.stands_at, now), (flip.flips_at, '[{}, {"a"}]')):
            machine = with_bandwidth(found.machine, factor)
            at = Plan.instead(replace(found, machine=machine), "w", cheaper).other
            other = '[{}, {"a"}]' if cheaper == now else now
            rival = Plan.instead(replace(found, machine=machine), "w", other).other
            assert at.objective_s <= rival.objective_s + at.rounding_s + rival.rounding_s


def test_a_decision_that_never_flips_says_so_with_what_was_searched(found: Plan) -> None:
    told = break_even(found, "x", "bandwidth", instead=found.explain("x")[0].sharding)
    assert told.flips == ()
    assert "stands everywhere from" in str(told)
    assert told.searched == (4.0**-3, 4.0**3)


def test_every_point_that_is_tried_is_a_line_of_progress(found: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        break_even(found, "w", "bandwidth", options=replace(quick_options(found), progress=progress))
    told = [line.partition(" s  ")[2] for line in capsys.readouterr().err.splitlines()]
    assert told[:2] == [f"break-even by bandwidth at {factor} x the bandwidth" for factor in (1, 0.25)]


def test_bandwidth_alone_is_scaled(found: Plan) -> None:
    machine = with_bandwidth(found.machine, 2.0)
    parts = machine.whole("a")
    slow, fast = (m.alpha_beta("all_gather", parts) for m in (found.machine, machine))
    assert fast[0] == slow[0]
    assert fast[1] == pytest.approx(slow[1] / 2)
    assert solve_again(found, Changed(machine=machine)).cost.communication_s <= found.cost.communication_s


def test_below_a_memory_limit_the_plan_changes_or_there_is_none(found: Plan) -> None:
    told = break_even(found, "w", "memory")
    (flip,) = [f for f in told.flips if f.direction == "down"]
    assert flip.flips_at < flip.stands_at <= found.memory.peak_bytes
    assert solve_again(found, Changed(memory_limit=int(flip.stands_at))).memory.peak_bytes <= flip.stands_at
    assert told.now == found.memory_limit.bytes
    assert "below" in str(told) and "now 13.7 GiB" in str(told)


def test_where_neither_sharding_has_a_plan_the_decision_does_not_stand(found: Plan) -> None:
    told = break_even(found, "w", "memory", instead='[{}, {"a"}]')
    (flip,) = [f for f in told.flips if f.direction == "down"]
    assert flip.cost_kept_s is None
    if flip.sharding is None:
        assert "no plan exists with either" in str(told)
    with pytest.raises(InfeasibleError):
        replace_limit(found, int(flip.flips_at)).instead("w", found["w"])


def test_a_program_that_holds_nothing_stands_from_one_byte_on() -> None:
    empty = plan(lambda x: jnp.tanh(x), SPEC((0, 64), jnp.float32), mesh={"a": 8}, hardware="tpu_v5e")
    told = break_even(empty, "x", "memory")
    assert (empty.memory.peak_bytes, told.flips, told.stands_now, told.searched[0]) == (0, (), True, 1)


@pytest.fixture(scope="module", params=["none", 2**30])
def kept_by_a_pin(request: pytest.FixtureRequest) -> Plan:
    """Whole, w costs less than as it is pinned, and takes more memory than the plan holds."""
    return plan(
        lambda x, w: jnp.tanh(x @ w) @ w, SPEC((64, 512), jnp.float32), SPEC((512, 512), jnp.float32), mesh={"a": 8},
        hardware="tpu_v5e", constraints=[Pin("w", '[{"a"}, {}]')], memory_limit=request.param,
    )  # fmt: skip


def test_a_cheaper_sharding_that_needs_more_than_the_plan_holds_wins_above_a_border(kept_by_a_pin: Plan) -> None:
    told = break_even(kept_by_a_pin, "w", "memory", instead="[{}, {}]")
    (flip,) = told.flips
    assert (flip.direction, flip.sharding, told.stands_now) == ("up", "[{}, {}]", False)
    assert kept_by_a_pin.memory.peak_bytes < flip.stands_at < flip.flips_at < 1.05 * flip.stands_at
    with pytest.raises(InfeasibleError):
        replace_limit(kept_by_a_pin, int(flip.stands_at)).instead("w", "[{}, {}]")


def test_a_search_that_its_time_limit_ends_is_a_point_where_no_plan_was_found(found: Plan) -> None:
    told = break_even(found, "w", "memory", each_s=1e-6)
    (flip,) = [f for f in told.flips if f.direction == "down"]
    assert flip.sharding is None and not flip.proved
    assert "no plan was found" in str(told)


def replace_limit(made: Plan, limit: int) -> Plan:
    rest = [s for s in made.statements if s["kind"] != "memory_limit"]
    return replace(made, statements=(*rest, {"kind": "memory_limit", "bytes": limit, "source": ""}))


def test_a_sharding_that_a_statement_keeps_from_being_cheaper_is_told_to_be_so_already_now() -> None:
    pinned = plan(
        f, SPEC((512, 256), jnp.float32), SPEC((256, 2048), jnp.float32), mesh={"a": 8}, hardware="tpu_v5e",
        constraints=[Pin("x", "[{}, {}]"), Pin("w", "[{}, {}]")],
    )  # fmt: skip
    told = break_even(pinned, "x", "bandwidth", instead='[{"a"}, {}]')
    assert not told.stands_now
    assert all(flip.direction == "up" and flip.flips_at <= 1.0 for flip in told.flips)
    assert ("stands nowhere" if not told.flips else "does not stand now") in str(told)


def step(w, x):
    def loss(w):
        return jnp.mean(jnp.square(jax.nn.relu(x @ w["up"]) @ w["down"] - x))

    return jax.tree.map(lambda a, b: a - 0.1 * b, w, jax.grad(loss)(w))


def test_flips_of_plans_in_stages_by_names_are_those_of_planning_in_stages() -> None:
    weights = {"up": SPEC((256, 512), jnp.float32), "down": SPEC((512, 256), jnp.float32)}
    specs = weights, SPEC((64, 256), jnp.float32)
    roles = {"w/up": ("embed", "mlp"), "w/down": ("mlp", "embed"), "x": ("batch", "embed")}

    def staged(machine, *pins: Pin) -> Plan:
        return plan(
            step, *specs, mesh={"data": 2, "model": 2}, hardware=machine, priorities=["data", "fsdp"], roles=roles,
            constraints=pins, carry=False,
        )  # fmt: skip

    made = staged("tpu_v5e")
    assert abs(made.instead("w/up", made["w/up"]).extra_s) <= made.rounding_s
    told = break_even(made, "w/up", "bandwidth")
    assert told.stands_now
    (flip,) = told.flips
    assert flip.sharding != made["w/up"]
    beyond, before = (staged(with_bandwidth(made.machine, at)) for at in (flip.flips_at, flip.stands_at))
    assert (beyond["w/up"], before["w/up"]) == (flip.sharding, made["w/up"])
    # the rows stay on the first stage's axis on both sides
    assert beyond["x"] == before["x"] == made["x"]


def test_asking_a_plan_in_stages_for_what_it_has_gives_the_plan() -> None:
    """The pin of a question does not move what has priority, though it has none of its own."""
    specs = SPEC((64, 32), jnp.float32), SPEC((32, 64), jnp.float32), SPEC((64, 16), jnp.float32)
    pins = [Pin("out", '[{}, {"b"}]'), Pin("v", '[{"b"}, {?}]', priority=1)]
    made = plan(
        lambda x, w, v: jnp.tanh(x @ w) @ v, *specs, mesh={"a": 2, "b": 4}, hardware="tpu_v5e", constraints=pins,
        argnames=["x", "w", "v"],
    )  # fmt: skip
    assert len(made.stages) == 2
    for name in ("x", "w", "v"):
        told = made.instead(name, made[name])
        assert abs(told.extra_s) <= made.rounding_s + told.other.rounding_s
        assert [s.cost_s for s in told.other.stages] == pytest.approx([s.cost_s for s in made.stages])


def test_carried_state_flips_at_one_place_whichever_of_its_two_names_is_asked_about() -> None:
    """docs/explain.md: pinned alone, an output left as no next call takes it and seemed to stand 5 times as far."""

    def descend(w, x):
        return {"w": w - 0.1 * jax.grad(lambda w: jnp.square(jnp.tanh(x @ w)).mean())(w)}

    carried = plan(
        descend, SPEC((256, 256), jnp.float32), SPEC((2048, 256), jnp.float32), mesh={"x": 8}, hardware="cpu_sim",
        donate_argnums=0, constraints=[Pin("x", '[{"x"}, {}]')],
    )  # fmt: skip
    before, after = (carried.break_even(name, "bandwidth") for name in ("w", "out/w"))
    assert len(before.flips) == 1
    assert [f.to_dict() for f in after.flips] == [f.to_dict() for f in before.flips]


def test_wrong_questions_are_refused(found: Plan) -> None:
    with pytest.raises(InputError, match="unknown break-even 'speed'"):
        break_even(found, "w", "speed")
    with pytest.raises(UnsupportedError, match="where its function comes from"):
        break_even(found, "w", "batch")


def test_the_command_by_batch_and_bandwidth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "break_even_program.py").write_text(
        "import jax.numpy as jnp\ndef f(x, w):\n    return jnp.tanh(jnp.tanh(x @ w) @ w.T) / jnp.mean(x, 0)\n"
    )
    (tmp_path / "c.yaml").write_text(CONFIG)
    file = str(tmp_path / "out" / "plan.json")
    assert main(["solve", str(tmp_path / "c.yaml"), "--output", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    assert main(["explain", file, "w", "--break-even", "batch", "--instead", '[{}, {"a"}]', "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["by"], told["unit"], told["now"]) == ("batch", "rows", 512.0)
    assert all(flip["at"] > 0 for flip in told["flips"])
    assert main(["explain", file, "w", "--break-even", "bandwidth"]) == 0
    assert "by bandwidth, now 1 x the bandwidth (ici 45 GB/s)" in capsys.readouterr().out
    assert main(["explain", file, "w", "--break-even", "colour"]) == 2
    assert main(["explain", file, "*", "--break-even", "memory"]) == 2
