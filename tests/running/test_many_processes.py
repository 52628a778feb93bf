"""Many processes run what one runs, each holding its own shards; none outlives a failure."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from process_runs import environment, solved

from autoshard.cli import main
from autoshard.errors import InputError
from autoshard.running import group
from autoshard.running.group import ProcessError, run_group
from autoshard.running.local import run_setup
from autoshard.running.program import Job
from autoshard.running.result import RunSetup, make_setup
from autoshard.running.worker import HEARTBEAT_TIMEOUT_S
from autoshard.trust import allow

SOON_S = 20
"""A killed process ends the run within so much, on a machine under load; usually it is about a second."""


def run(plan: Path, processes: int, devices: int, **job):
    return run_setup(RunSetup(Job(str(plan), **job), processes, devices))


@pytest.fixture(scope="module")
def alone(mlp_plan):
    return run(mlp_plan, 1, 8, steps=4)


@pytest.fixture(scope="module")
def two(mlp_plan):
    return run(mlp_plan, 2, 4, steps=4)


@pytest.mark.parametrize(("processes", "devices"), [(2, 4), pytest.param(4, 2, marks=pytest.mark.slow)])
def test_processes_train_as_one_process_of_eight_devices_does(alone, two, mlp_plan, processes, devices):
    together = two if processes == 2 else run(mlp_plan, processes, devices, steps=4)
    assert together.losses == pytest.approx(alone.losses, rel=1e-6)
    assert len(set(together.losses)) == 4
    for ours, theirs in zip(together.outputs, alone.outputs, strict=True):
        assert ours["name"] == theirs["name"]
        assert ours["l2"] == pytest.approx(theirs["l2"], rel=1e-5, abs=1e-7), ours["name"]


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "devices"), [(2, 4), (4, 2)])
@pytest.mark.parametrize("model", ["transformer", "moe", "resnet"])
def test_processes_train_every_model_as_one_process_does(tmp_path, model, processes, devices):
    plan = solved(tmp_path, model, f"model: {model}\nmesh: {{data: 2, model: 4}}\nhardware: cpu_sim\n")
    alone = run(plan, 1, 8, steps=5)
    assert run(plan, processes, devices, steps=5).losses == pytest.approx(alone.losses, rel=1e-5)


def test_each_process_holds_its_own_shards_only(alone, two):
    assert len(two.held_bytes) == 2
    assert sum(two.held_bytes) == alone.held_bytes[0]
    assert max(two.held_bytes) < alone.held_bytes[0]


def test_calls_of_a_users_function_give_the_same_outputs_on_two_processes(function_plan):
    alone, together = (run(function_plan, n, 8 // n, steps=2, seed=3) for n in (1, 2))
    assert alone.losses is None
    assert [o["name"] for o in together.outputs] == ["out/total", "out/y"]
    for ours, theirs in zip(together.outputs, alone.outputs, strict=True):
        assert ours["sum"] == pytest.approx(theirs["sum"], rel=1e-6)
        assert ours["max_abs"] > 0
    other = run(function_plan, 1, 8, steps=2, seed=4)
    assert other.outputs[0]["sum"] != alone.outputs[0]["sum"]


def _children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended meanwhile
                continue
            if int(fields[1]) == parent and fields[0] != "Z":
                found.append(int(entry.name))
    return sorted(found)


def _gone(pids: list[int]) -> bool:
    """Whether none of them runs any more, waiting a little."""
    deadline = time.monotonic() + SOON_S
    while time.monotonic() < deadline:
        states = [Path(f"/proc/{pid}/stat") for pid in pids]
        if not any(s.exists() and s.read_text().rpartition(")")[2].split()[0] != "Z" for s in states):
            return True
        time.sleep(0.1)
    return False


@pytest.fixture
def endless(mlp_plan, tmp_path):
    """A run of two processes in the middle of its steps: its own process, and its children's ids."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("finding the children of a process needs /proc")
    # a shell's background jobs ignore SIGINT, and so would the process here
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with (
        (tmp_path / "stderr").open("w+") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "autoshard", "run", str(mlp_plan), "--processes", "2", "--steps", "1000000"],
            stderr=errors, stdout=subprocess.DEVNULL, env=environment(), cwd=tmp_path,
        ) as process,
    ):  # fmt: skip
        signal.signal(signal.SIGINT, before)
        deadline = time.monotonic() + 120
        while "running" not in (tmp_path / "stderr").read_text() and time.monotonic() < deadline:
            assert process.poll() is None, (tmp_path / "stderr").read_text()
            time.sleep(0.2)
        yield process, _children(process.pid), tmp_path / "stderr"
        process.kill()


@pytest.mark.parametrize("victim", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_killed_process_ends_the_run_with_an_error_within_seconds(endless, victim):
    process, children, errors = endless
    assert len(children) == 2
    os.kill(children[victim], signal.SIGKILL)
    assert process.wait(SOON_S) == ProcessError.exit_code
    assert "was killed by SIGKILL" in errors.read_text()
    assert f"pid {children[victim]}" in errors.read_text()
    assert "Traceback" not in errors.read_text()
    assert _gone(children)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_command(endless, how):
    process, children, errors = endless
    assert len(children) == 2
    process.send_signal(how)
    assert process.wait(SOON_S) == (130 if how == signal.SIGINT else -how)
    assert _gone(children)
    assert "Traceback" not in errors.read_text()


def test_an_error_of_a_process_is_the_error_of_the_run(function_plan, tmp_path):
    data = json.loads(function_plan.read_text())
    data["config"]["settings"]["function"] = "running_sums:absent"
    (tmp_path / "plan.json").write_text(json.dumps(data))
    allow(tmp_path / "plan.json")
    with pytest.raises(InputError, match="has no 'absent'"):
        run_group(RunSetup(Job(str(tmp_path / "plan.json")), 2, 4))


def test_the_command_prints_losses_as_json(mlp_plan, capsys):
    assert main(["run", str(mlp_plan), "--steps", "2", "--seed", "7", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["processes"], told["devices_per_process"], told["steps"], told["seed"]) == (1, 8, 2, 7)
    assert len(told["losses"]) == 2
    assert told["mesh"] == {"data": 2, "model": 4}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--processes", "3"], "the mesh (data=2, model=4) has 8 devices, which 3 processes cannot share evenly"),
        (["--processes", "2", "--devices-per-process", "2"], "2 processes of 2 devices cannot share"),
        (["--processes", "0"], "--processes is 0"),
        (["--steps", "0"], "--steps is 0"),
        (["--seed", "-1"], "--seed is -1"),
    ],
)
def test_what_cannot_be_run_is_told(mlp_plan, capsys, arguments, message):
    assert main(["run", str(mlp_plan), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_file_that_is_no_plan_is_told(tmp_path, capsys):
    (tmp_path / "plan.json").write_text("{}")
    assert main(["run", str(tmp_path / "plan.json"), "--processes", "2"]) == 2
    assert main(["run", str(tmp_path / "absent.json"), "--processes", "2"]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_a_plan_larger_than_the_memory_of_the_machine_is_refused(mlp_plan, monkeypatch):
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    with pytest.raises(InputError, match="this machine, which would simulate them, has 1e-05 GB"):
        run(mlp_plan, 1, 8, steps=1)


def test_a_plan_for_real_devices_is_not_simulated_by_one_process():
    plan = {"mesh": {"axes": {"x": 128}}, "config": {"settings": {"devices": "real"}}}
    assert not make_setup(Job("plan.json"), plan).simulated
    with pytest.raises(InputError, match="at most 64 are simulated"):
        make_setup(Job("plan.json"), plan, processes=2)


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="whether a process is stopped is asked by waitid")
def test_a_process_that_is_stopped_while_it_starts_ends_the_run(mlp_plan, monkeypatch):
    monkeypatch.setattr(group, "STOPPED_S", 0.5)
    started: list[int] = []
    start = group._start

    def stopping(*args):
        process = start(*args)
        started.append(process.popen.pid)
        if process.number == 1:
            os.kill(process.popen.pid, signal.SIGSTOP)
        return process

    monkeypatch.setattr(group, "_start", stopping)
    wanted = r"process 1 of 2 \(pid \d+\) was stopped by a signal before the first step and not continued"
    with pytest.raises(ProcessError, match=wanted):
        run(mlp_plan, 2, 4, steps=1)
    assert _gone(started)


@pytest.mark.slow
def test_a_stopped_process_ends_the_run_too(endless):
    process, children, errors = endless
    os.kill(children[1], signal.SIGSTOP)
    assert process.wait(HEARTBEAT_TIMEOUT_S + 60) == ProcessError.exit_code
    assert f"process 1 of 2 (pid {children[1]}) was stopped by a signal in step" in errors.read_text()
    assert _gone(children)
