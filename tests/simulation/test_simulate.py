"""``simulate``: a plan on a clock, by our scheduler and by the TPU compiler where it is installed."""

import json
from importlib import util

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autoshard
from autoshard.api.simulate import simulate
from autoshard.cli import main
from autoshard.errors import InputError, UnsupportedError
from autoshard.report.simulations import simulation_lines
from autoshard.simulation import tpu
from autoshard.simulation.trace import trace_events

needs_libtpu = pytest.mark.skipif(util.find_spec("libtpu") is None, reason="libtpu is not installed")


def mlp(x, w1, w2):
    return jnp.sum(jnp.tanh(x @ w1) @ w2)


def planned(mesh, hardware="tpu_v5e", rows=512, width=256):
    specs = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((rows, width), (width, 2 * width), (2 * width, width))]
    return autoshard.plan(jax.grad(mlp, argnums=(1, 2)), *specs, mesh=mesh, hardware=hardware, effort=0.2)


@settings(max_examples=6)
@given(
    st.sampled_from([{"a": 4}, {"a": 2, "b": 2}, {"a": 8}]),
    st.sampled_from(["tpu_v5e", "h100"]),
    st.sampled_from([64, 1024]),
)
def test_our_scheduler_is_never_slower_than_nothing_overlapping_nor_faster_than_its_core(mesh, hardware, rows):
    plan = planned(mesh, hardware, rows)
    found = simulate(plan, compiler="own")
    assert found.seconds <= plan.cost.step_s * (1 + 1e-9)
    assert found.seconds >= plan.cost.compute_s * (1 - 1e-9)
    links = sum(e.seconds * e.times for e in found.timeline.collectives())
    assert links == pytest.approx(plan.cost.communication_s)


def core_s(one):
    return sum(one[key] for key in ("matmul_s", "other_work_s", "exposed_s", "exposed_copies_s"))


def test_what_the_core_does_adds_up_to_the_step():
    x = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    plan = autoshard.plan(
        jnp.tanh, x, mesh={"a": 4}, hardware="tpu_v5e",
        constraints=[autoshard.Pin("x", "[{}, {}]"), autoshard.Pin("out", '[{"a"}, {}]')],
    )  # fmt: skip
    assert plan.cost.local_s > 0
    for found in (simulate(plan, compiler="own"), simulate(planned({"a": 2, "b": 2}), compiler="own")):
        assert core_s(found.to_dict()) == pytest.approx(found.seconds)


@needs_libtpu
def test_what_the_compilers_core_waits_for_is_told():
    x, w = (jax.ShapeDtypeStruct(s, jnp.float32) for s in ((64, 256), (256, 512)))
    found = simulate(autoshard.plan(lambda x, w: jnp.tanh(x @ w), x, w, mesh={"a": 2, "b": 4}, hardware="tpu_v5e"))
    one = found.to_dict()
    assert one["exposed_copies_s"] > 0 and core_s(one) == pytest.approx(found.seconds)
    assert any("waiting for copies 8" in line for line in simulation_lines([one]))


def test_a_machine_without_a_compiler_is_told():
    found = simulate(planned({"a": 4}, "mi300x"))
    assert found.scheduler == "autoshard's scheduler"
    assert "no ahead-of-time compiler for mi300x" in found.notes[0]


def test_asking_for_a_compiler_that_is_not_there_is_refused():
    with pytest.raises(UnsupportedError, match=r"--compiler tpu: there is no ahead-of-time compiler for h100"):
        simulate(planned({"a": 4}, "h100"), compiler="tpu")
    with pytest.raises(UnsupportedError, match=r"--compiler gpu: there is no ahead-of-time compiler for tpu_v5e"):
        simulate(planned({"a": 4}), compiler="gpu")


@pytest.fixture
def no_such_slice(monkeypatch):
    """A TPU compiler that is there, and can describe no slice of the plan's shape."""

    def refused(machine, device_ids):
        raise UnsupportedError("the TPU compiler has no slice v5e:2x3")

    monkeypatch.setattr(tpu, "missing", lambda machine: None)
    monkeypatch.setattr(tpu, "devices_of", refused)


@pytest.mark.usefixtures("no_such_slice")
def test_a_slice_that_the_compiler_does_not_know_is_simulated_by_our_scheduler_and_told():
    found = simulate(planned({"a": 2, "b": 3}))
    assert found.scheduler == "autoshard's scheduler"
    assert found.notes[0] == "no compiler was asked: the TPU compiler has no slice v5e:2x3"


@pytest.mark.usefixtures("no_such_slice")
def test_a_compiler_asked_by_name_for_a_slice_that_it_does_not_know_is_refused_with_what_to_try():
    with pytest.raises(UnsupportedError, match="no slice v5e:2x3; our own scheduler"):
        simulate(planned({"a": 2, "b": 3}), compiler="tpu")


@pytest.mark.parametrize("wrong", [{"form": "mlir"}, {"compiler": "gcc"}, {"clock": "wall"}])
def test_unknown_names_are_refused_with_the_choices(wrong):
    with pytest.raises(InputError, match="there are"):
        simulate(planned({"a": 4}), **wrong)


def test_our_scheduler_does_not_guess_what_a_partitioner_makes_of_shardings_alone():
    with pytest.raises(UnsupportedError, match="knows the forms explicit and constraints"):
        simulate(planned({"a": 4}), form="shardings", compiler="own")


def test_a_trace_has_a_thread_for_every_track():
    found = simulate(planned({"a": 2, "b": 2}), compiler="own")
    events = trace_events([found])["traceEvents"]
    threads = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert threads == {e.track for e in found.timeline.events}


def test_the_command_prints_a_ranking_last(tmp_path, capsys):
    for name, rows in (("small", 64), ("large", 4096)):
        planned({"a": 4}, rows=rows).save(tmp_path / f"{name}.json")
    files = [str(tmp_path / f"{name}.json") for name in ("large", "small")]
    assert main(["simulate", *files, "--compiler", "own", "--trace", str(tmp_path / "t.json")]) == 0
    out = capsys.readouterr().out.splitlines()
    ranking = out[out.index("fastest first:") + 1 :]
    assert [text.split()[0] for text in ranking[:2]] == ["small", "large"]
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


def test_the_command_gives_json(tmp_path, capsys):
    planned({"a": 4}).save(tmp_path / "plan.json")
    assert main(["simulate", str(tmp_path / "plan.json"), "--compiler", "own", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert one["seconds"] > 0
    assert one["collectives"] == pytest.approx(one["planned_collectives"])


@pytest.mark.parametrize("words", [["--form", "mlir"], ["--compiler", "own", "--form", "all"], ["--clock", "wall"]])
def test_wrong_words_end_the_command_with_2(tmp_path, capsys, words):
    planned({"a": 4}).save(tmp_path / "plan.json")
    assert main(["simulate", str(tmp_path / "plan.json"), *words]) == 2
    assert "error:" in capsys.readouterr().err


@needs_libtpu
def test_the_tpu_compiler_schedules_the_planned_collectives():
    plan = planned({"a": 2, "b": 2}, rows=2048, width=1024)
    found = simulate(plan, compiler="tpu")
    assert found.scheduler.startswith("libtpu ")
    assert found.clocks["roofline"].seconds <= found.clocks["cycles"].seconds
    assert found.timeline.total("matmul") == pytest.approx(plan.cost.compute_s, rel=1.0)
    assert found.peak_bytes is not None and 0.5 < found.peak_bytes / plan.memory.peak_bytes < 2
    assert any(line.strip().startswith("memory") for line in simulation_lines([found.to_dict()]))


@needs_libtpu
def test_four_chips_of_v5p_are_a_slice_too():
    """Which the compiler knows as 2x2x1, and not as 1x2x2."""
    from autoshard.simulation.tpu import devices_of

    plan = planned({"a": 2, "b": 2}, hardware="tpu_v5p")
    assert sorted(list(d.coords) for d in devices_of(plan.machine)) == [[0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0]]


def test_our_own_scheduler_says_nothing_of_memory():
    found = simulate(planned({"a": 2, "b": 2}), compiler="own")
    assert found.peak_bytes is None
    assert not any(line.strip().startswith("memory") for line in simulation_lines([found.to_dict()]))
