"""Ctrl-C of the command line: it arrives, but not in the middle of an import."""

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import pytest
from jax import ShapeDtypeStruct
from numba.core import serialize

import autoshard
from autoshard import interrupts
from autoshard.deadline import Deadline
from autoshard.errors import OutOfTimeError
from autoshard.planning.interrupting import ended_at

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(autoshard.__file__).parent.parent)}
INTERRUPTED_MODULE = """
import os, signal, time
begun = True
os.kill(os.getpid(), signal.SIGINT)
time.sleep(WAITS)
whole = True
"""


@pytest.fixture
def heeding() -> Iterator[None]:
    """As in the command line; background jobs of a shell begin with interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupts.heed()
    yield
    interrupts.forget()
    signal.signal(signal.SIGINT, before)


def imported(name: str, waits_s: float, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / f"{name}.py").write_text(INTERRUPTED_MODULE.replace("WAITS", str(waits_s)))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.import_module(name)
    time.sleep(5)


def test_an_interrupt_waits_for_the_end_of_an_import(
    heeding: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        imported("interrupted_in_its_import", 0.1, tmp_path, monkeypatch)
    assert sys.modules.pop("interrupted_in_its_import").whole


def test_an_import_that_does_not_end_is_interrupted(
    heeding: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupts, "LONGEST_S", 0.1)
    with pytest.raises(KeyboardInterrupt):
        imported("does_not_end", 20, tmp_path, monkeypatch)
    assert "does_not_end" not in sys.modules


def test_elsewhere_it_arrives_at_once(heeding: None) -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_deadline_that_passes_in_an_import_does_not_interrupt_what_comes_after_it(
    heeding: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "takes_a_while.py").write_text("import time\ntime.sleep(0.5)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(interrupts, "AGAIN_S", 0.5)
    with pytest.raises(OutOfTimeError), ended_at(Deadline(0.01), "importing", "wait"):
        importlib.import_module("takes_a_while")
    time.sleep(0.6)


def test_a_deadline_waits_for_the_end_of_an_import_in_a_process_that_ignores_interrupts_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ends_late.py").write_text("import time\ntime.sleep(0.5)\nwhole = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(OutOfTimeError), ended_at(Deadline(0.01), "importing", "wait"):
            importlib.import_module("ends_late")
    finally:
        signal.signal(signal.SIGINT, before)
    assert sys.modules.pop("ends_late").whole


def test_an_interrupt_waits_for_what_compiled_code_unpickles(heeding: None) -> None:
    """Out of there it would come as a `SystemError`: numba goes on with what it got."""
    done: list[bool] = []

    def unpickled(*given: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        done.append(True)

    there: dict[str, Any] = {"unpickled": unpickled}
    exec(compile("def called(): unpickled()", serialize.__file__, "exec"), there)
    there["called"]()
    with pytest.raises(KeyboardInterrupt):
        time.sleep(5)
    assert done


class Pair(NamedTuple):
    first: int
    second: int


def made_while_interrupted(of: type, values: tuple[int, ...]) -> Any:
    signal.raise_signal(signal.SIGINT)
    return tuple.__new__(of, values)


def test_an_interrupt_waits_for_the_named_tuple_that_compiled_code_returns(
    heeding: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled code goes on with what it got: out of there it would end the process in a segmentation fault."""
    monkeypatch.setitem(Pair.__new__.__globals__, "_tuple_new", made_while_interrupted)
    assert Pair(1, 2) == (1, 2)
    with pytest.raises(KeyboardInterrupt):
        time.sleep(5)


def test_however_long_it_has_waited_an_interrupt_does_not_arrive_in_what_compiled_code_calls(
    heeding: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupts, "LONGEST_S", 0.0)
    monkeypatch.setitem(Pair.__new__.__globals__, "_tuple_new", made_while_interrupted)
    assert Pair(1, 2) == (1, 2)
    with pytest.raises(KeyboardInterrupt):
        time.sleep(5)


@pytest.fixture
def pythons_own() -> Iterator[None]:
    """Ctrl-C as Python has it where nobody asked for anything else."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    interrupts.forget()
    signal.signal(signal.SIGINT, before)


class Collected:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_in_python_an_interrupt_that_is_dropped_while_a_plan_is_made_comes_again(pythons_own: None) -> None:
    def dropped(text: str) -> None:
        if text == "pricing ops and reshards":
            Collected()
            time.sleep(5)

    with pytest.raises(KeyboardInterrupt):
        autoshard.plan(
            jnp.tanh, ShapeDtypeStruct((64, 64), jnp.float32), mesh={"x": 2}, hardware="tpu_v5e", progress=dropped
        )
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_ones_own_stays_while_a_plan_is_made(pythons_own: None) -> None:
    def own(number: int, frame: Any) -> None: ...

    seen: list[Any] = []
    signal.signal(signal.SIGINT, own)
    with interrupts.heeded():
        seen.append(signal.getsignal(signal.SIGINT))
    assert seen == [own]


LEFT = """
import atexit, signal, sys
from autoshard import interrupts
interrupts.at_end(lambda: print("ended", flush=True))
atexit.register(print, "taken down", flush=True)
sys.stdout.write("written ")
interrupts.leave(130)
"""


def test_an_interrupted_process_ends_before_python_takes_anything_down_and_after_what_must_be_done() -> None:
    """XLA's threads may still run, and crash in what is taken down."""
    done = subprocess.run([sys.executable, "-c", LEFT], capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert (done.returncode, done.stdout, done.stderr) == (130, "written ended\n", "")


INTERRUPTED = """
import atexit, sys
import autoshard.cli
from autoshard.__main__ import run

def interrupted():
    print("dropped ones come again:", sys.unraisablehook is not sys.__unraisablehook__)
    return 130

atexit.register(print, "taken down")
autoshard.cli.main = interrupted
run()
"""


def test_an_interrupted_command_leaves_so() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False, env=ENVIRONMENT
    )
    assert (done.returncode, "taken down" in done.stdout) == (130, False)


def test_dropped_interrupts_come_again_before_the_command_line_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False, env=ENVIRONMENT
    )
    assert "dropped ones come again: True" in done.stdout


def test_when_the_work_is_done_python_ends_without_a_word(heeding: None) -> None:
    interrupts.end()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL


def test_a_process_that_ignores_interrupts_goes_on_to() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        interrupts.heed()
        interrupts.end()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
