"""The command line as a process among others: pipes, full disks, closed streams, terminals without Unicode, Ctrl-C."""

import gc
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import autoshard
from autoshard.cli import main
from autoshard.cli.process import interrupts_arrive

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(autoshard.__file__).parent.parent)}


def command(text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A line of shell in which ``autoshard`` is the command."""
    line = f'autoshard() {{ "{sys.executable}" -m autoshard "$@"; }}; {text}'
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, check=False, env={**ENVIRONMENT, **environment},
        timeout=60,
    )  # fmt: skip


def test_a_reader_that_leaves_is_no_error_to_speak_of() -> None:
    done = command("autoshard hardware tpu_v5e | head -1; echo ${PIPESTATUS[0]}")
    assert (done.stdout.splitlines()[-1], done.stderr) in (("130", ""), ("0", ""))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("what", ["hardware", "cost model llama3_8b"])
def test_a_full_disk_is_told_in_a_line(what: str) -> None:
    done = command(f"autoshard {what} > /dev/full")
    assert (done.returncode, done.stderr) == (2, "error: writing the answer: No space left on device\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(("what", "code"), [("solve none.yaml", 2), ("network solve FILE --progress", 0)])
def test_a_log_on_a_full_disk_changes_no_exit_code(what: str, code: int) -> None:
    file = Path(__file__).parent.parent / "solver" / "example_iopddl.json"
    assert command(f"autoshard {what.replace('FILE', shlex.quote(str(file)))} 2> /dev/full").returncode == code


def test_closed_streams_are_no_fault() -> None:
    done = command("autoshard hardware >&- 2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_names_that_the_terminal_cannot_show_are_escaped() -> None:
    done = command("autoshard solve 'naïve.yaml'", PYTHONIOENCODING="ascii")
    assert done.returncode == 2 and r"na\xefve.yaml does not exist" in done.stderr


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Background jobs of a shell begin with interrupts ignored, and so would the tests in them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _interrupt_inside(where: Any) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):  # give the handler a chance to run in here
        pass


def _collect_and_wait() -> None:
    gc.collect()
    time.sleep(5)


def test_an_interrupt_during_garbage_collection_arrives(interruptible: None) -> None:
    """JAX has a callback on every collection, and Python drops what is raised in one."""

    interrupted = []
    before = sys.unraisablehook

    def callback(phase: str, info: Any) -> None:
        if not interrupted:
            interrupted.append(phase)
            _interrupt_inside(info)

    with interrupts_arrive():
        gc.callbacks.append(callback)
        try:
            with pytest.raises(KeyboardInterrupt):
                _collect_and_wait()
        finally:
            gc.callbacks.remove(callback)
    assert interrupted
    assert sys.unraisablehook is before


class _Interrupted:
    def __del__(self) -> None:
        _interrupt_inside(None)


def test_an_interrupt_in_a_finalizer_arrives(interruptible: None) -> None:
    def drop_and_wait() -> None:
        held = [_Interrupted()]
        held.clear()
        time.sleep(5)

    with interrupts_arrive(), pytest.raises(KeyboardInterrupt):
        drop_and_wait()


def test_an_interrupt_elsewhere_arrives_at_once(interruptible: None) -> None:
    with interrupts_arrive(), pytest.raises(KeyboardInterrupt):
        _interrupt_inside(None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["solve", "{tmp}/c.yaml", "--output", "{tmp}/c.yaml"], "{tmp}/c.yaml is a file, not a directory"),
        (["compare", "{tmp}/c.yaml", "--csv", "{tmp}"], "cannot write {tmp}: it is a directory"),
        (["calibrate", "--output", "{tmp}/c.yaml/p.yaml"], "{tmp}/c.yaml is a file, not a directory"),
    ],
)
def test_what_cannot_be_written_is_told_before_the_work(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text("model: mlp\nmesh: {data: 8}\nhardware: tpu_v5e\n")
    assert main([a.format(tmp=tmp_path) for a in arguments]) == 2
    err = capsys.readouterr().err
    assert err == f"error: {err[7:]}" and message.format(tmp=tmp_path) in err and err.count("\n") == 1


@pytest.mark.parametrize("command", ["propagate", "network solve", "calibrate", "solve", "report", "specs", "schema"])
def test_every_command_that_writes_takes_the_short_option(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    assert re.search(r"-o,\s+--output", capsys.readouterr().out)
