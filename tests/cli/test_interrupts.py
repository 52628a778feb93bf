"""Ctrl-C of the command line: it arrives, but not in the middle of an import."""

import importlib
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoshard import interrupts
from autoshard.deadline import Deadline
from autoshard.errors import OutOfTimeError
from autoshard.planning.interrupting import ended_at

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
