"""A local group of processes that run one plan together: started, watched, and ended as one.

The parent imports no JAX. When one process ends before its time (by a signal, an error, a crash of the runtime), all
are ended, and the error says which process it was and has the last lines of its output.
"""

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from autoshard.devices import simulate_devices
from autoshard.errors import AutoshardError, InputError
from autoshard.running.result import RunResult, RunSetup, collect
from autoshard.running.worker import WorkerArguments

POLL_S = 0.1
"""Seconds between two looks of the parent at processes that report nothing."""
GRACE_S = 1.0
"""Seconds to wait for others after a first process has failed, to tell the cause from its consequences."""
STARTS = 3
"""How many ports are tried: another process may take a free port before process 0 does."""
STOPPED_S = 20.0
"""Seconds after which a process that is stopped (SIGSTOP) and not continued ends the group.

The runtime would end the group later (during the start of processes only after minutes), and would not say which
process was stopped.
"""
LAST_LINES = 12
"""Most lines of a process's output in the message about its end."""
_NOISE = ("[Gloo]", " @     0x", " @ 0x", "*** Check failure stack trace", "*** SIGABRT received")
"""Parts of lines that are left out of messages: greetings, and addresses in stack traces of the runtime."""
_STOPS = tuple(getattr(signal, name) for name in ("SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU") if hasattr(signal, name))


class ProcessError(AutoshardError):
    """A process of a running group ended before its time."""

    exit_code = 1


@dataclass
class _Process:
    """One process of the group: its reports so far, and the file with its output."""

    number: int
    popen: subprocess.Popen[bytes]
    reports: int
    output: IO[bytes]
    records: list[dict[str, Any]] = field(default_factory=list)
    unfinished: bytes = b""
    stopped_at: float | None = None

    def read(self) -> bool:
        """Read new reports from the pipe; False at the end of the pipe."""
        data = os.read(self.reports, 1 << 16)
        *lines, self.unfinished = (self.unfinished + data).split(b"\n")
        self.records += [json.loads(line) for line in lines]
        return bool(data)

    @property
    def error(self) -> dict[str, Any] | None:
        return next((r for r in self.records if "error" in r), None)

    @property
    def done(self) -> bool:
        return any("done" in r for r in self.records)

    @property
    def failed(self) -> bool:
        return self.error is not None or (self.popen.poll() is not None and not self.done)

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has stopped the process and none has continued it; False where the system cannot tell
        (macOS).
        """
        if not hasattr(os, "waitid") or self.popen.returncode is not None:
            return False
        try:
            status = os.waitid(os.P_PID, self.popen.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return status is not None and status.si_status in _STOPS

    def stopped_too_long(self) -> bool:
        """Whether the process has been stopped for `STOPPED_S`; to be called every now and then."""
        if not self.is_stopped:
            self.stopped_at = None
            return False
        now = time.monotonic()
        self.stopped_at = self.stopped_at or now
        return now - self.stopped_at > STOPPED_S

    @property
    def step(self) -> int | None:
        """Number of steps that the process has finished; None before the program is compiled."""
        if not any("compiled" in r for r in self.records):
            return None
        return sum("step" in r for r in self.records)

    def last_lines(self) -> str:
        self.output.seek(0)
        lines_said = self.output.read().decode(errors="replace").splitlines()
        lines = [x for x in lines_said if x.strip() and not any(noise in x for noise in _NOISE)]
        return "\n  ".join(lines[-LAST_LINES:])


class _PortTakenError(Exception):
    """Process 0 could not listen on its port."""


def run_group(setup: RunSetup, progress: Callable[[str], None] = lambda text: None) -> RunResult:
    """Run a plan on `setup.processes` processes of this machine, with simulated devices.

    Raises `ProcessError` within seconds where a process ends before its time, and every `AutoshardError` of a process.
    No process is left running, however this ends.
    """
    for attempt in range(STARTS):
        try:
            return _run_once(setup, progress)
        except _PortTakenError as error:
            if attempt == STARTS - 1:
                raise ProcessError(f"process 0 could not listen on any of {STARTS} free ports: {error}") from None
    raise AssertionError("unreachable")


def _run_once(setup: RunSetup, progress: Callable[[str], None]) -> RunResult:
    with ExitStack() as stack:
        processes: list[_Process] = []
        stack.callback(_end, processes)
        coordinator = f"127.0.0.1:{_free_port()}"
        for number in range(setup.processes):
            processes += [_start(setup, coordinator, number, stack)]  # one by one: those that exist must be ended
        _watch(processes, setup, progress)
        return collect(setup, [p.records for p in processes])


def _start(setup: RunSetup, coordinator: str, number: int, stack: ExitStack) -> _Process:
    reports, reports_end = os.pipe()
    stack.callback(os.close, reports)
    output = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    job = setup.job
    arguments = WorkerArguments(job.plan_file, job.steps, job.seed, coordinator, setup.processes, number, reports_end)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)}
    simulate_devices(setup.devices_per_process, environment, exactly=True)
    try:
        popen = subprocess.Popen(
            [sys.executable, "-m", "autoshard.running.worker", arguments.to_json()],
            stdin=subprocess.PIPE, stdout=output, stderr=output, env=environment, pass_fds=(reports_end,),
            start_new_session=True,  # Ctrl-C reaches this process alone, which then ends the others
        )  # fmt: skip
    except OSError as error:
        raise ProcessError(f"cannot start process {number}: {error}") from None
    finally:
        os.close(reports_end)
    return _Process(number, popen, reports, output)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _watch(processes: list[_Process], setup: RunSetup, progress: Callable[[str], None]) -> None:
    """Wait until all processes are done; raises the likeliest cause once one has failed."""
    with selectors.DefaultSelector() as selector:
        for p in processes:
            selector.register(p.reports, selectors.EVENT_READ, p)
        shown = ""
        while not all(p.done for p in processes):
            for key, _ in selector.select(POLL_S):
                if not key.data.read():
                    selector.unregister(key.fd)
            if any(p.failed for p in processes):
                _linger(processes, selector)
                raise _cause(processes)
            for p in processes:
                if not p.done and p.stopped_too_long():
                    raise ProcessError(_stopped(p, processes))
            text = _progress_text(processes, setup)
            if text != shown:
                progress(text)
                shown = text


def _linger(processes: list[_Process], selector: selectors.BaseSelector) -> None:
    """Read the reports of the other processes for a moment, because the cause may be among them."""
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline and not all(p.failed for p in processes):
        if not selector.get_map():
            time.sleep(POLL_S)
        for key, _ in selector.select(POLL_S):
            if not key.data.read():
                selector.unregister(key.fd)


def _cause(processes: list[_Process]) -> Exception:
    """The likeliest cause among the processes that failed; the failures of the others follow from it.

    First come errors about the input, then deaths by a signal from outside, then other errors, then aborts of the
    runtime (which aborts a process when others are gone).
    """

    def rank(p: _Process) -> tuple[int, int]:
        code = p.popen.poll()
        if p.error is not None and p.error["exit_code"] is not None:
            return 0, p.number
        if code is not None and code < 0 and code != -signal.SIGABRT:
            return 1, p.number
        return (2 if p.error is not None else 3), p.number

    failed = [p for p in processes if p.failed]
    first = min(failed, key=rank)
    error = first.error
    stopped = next((p for p in processes if p.is_stopped), None)
    if stopped is not None and rank(first)[0] >= 2:
        return ProcessError(_stopped(stopped, processes))
    if error is not None and error["exit_code"] is not None:
        message = (
            InputError(error["error"]) if error["exit_code"] == InputError.exit_code else AutoshardError(error["error"])
        )
        return message
    if any(p.error is not None and p.error["stage"] == "join" and _is_port(p.error["error"]) for p in failed):
        return _PortTakenError(str(error and error["error"]))
    head = f"{_called(first, processes)} {_how(first)} {_when(processes)}{_others_ended(processes)}"
    lines = first.last_lines() if error is None else ""
    return ProcessError(head + (f"; its last lines:\n  {lines}" if lines else ""))


def _called(p: _Process, processes: list[_Process]) -> str:
    return f"process {p.number} of {len(processes)} (pid {p.popen.pid})"


def _when(processes: list[_Process]) -> str:
    steps = [p.step for p in processes if p.step is not None]
    return f"in step {min(steps) + 1}" if len(steps) == len(processes) else "before the first step"


def _others_ended(processes: list[_Process]) -> str:
    others = len(processes) - 1
    return f"; the other {others} {'was' if others == 1 else 'were'} ended too" if others else ""


def _stopped(p: _Process, processes: list[_Process]) -> str:
    return (
        f"{_called(p, processes)} was stopped by a signal {_when(processes)} and not continued for "
        f"{STOPPED_S:.0f} s, so it was ended{_others_ended(processes)}; a stopped process is continued by "
        f"`kill -CONT {p.popen.pid}`"
    )


def _is_port(text: str) -> bool:
    return "address already in use" in text.lower() or "failed to start" in text.lower()


def _how(p: _Process) -> str:
    code = p.popen.poll()
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in {s.value for s in signal.Signals} else f"signal {-code}"
        return f"was killed by {name}"
    if p.error is not None:
        return f"failed with {p.error['error']}"
    return f"ended with exit code {code}"


def _end(processes: list[_Process]) -> None:
    """Kill the processes that still run; they hold nothing that would need a clean end."""
    for p in processes:
        if p.popen.poll() is None:
            p.popen.kill()
    for p in processes:
        p.popen.wait()
        if p.popen.stdin is not None:
            p.popen.stdin.close()


def _progress_text(processes: list[_Process], setup: RunSetup) -> str:
    steps = [p.step for p in processes]
    if None not in steps:
        total = next((r["steps"] for r in processes[0].records if "steps" in r), None)
        return f"running: step {min(s for s in steps if s is not None)} of {total}"
    joined = sum(any("joined" in r for r in p.records) for p in processes)
    if joined < setup.processes:
        return f"starting {setup.processes} processes: {joined} have joined"
    return "compiling"


def existing_plan(path: Path) -> Mapping[str, Any]:
    """The content of a plan file, with its header checked, so that a group may be started for it."""
    from autoshard.files import read_json
    from autoshard.program.as_json import check_header

    return check_header(read_json(path, what="plan"), str(path))
