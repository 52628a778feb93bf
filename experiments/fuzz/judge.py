"""One command line, run in this process, and what is wrong with how it ended."""

import ast
import contextlib
import gzip
import io
import json
import os
import re
import resource
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OLD = b"what was here before\n"
"""The content of files that are there before a command is told to write them."""
SLOW_S = 90.0
"""CPU seconds that a single input may take: searches are told to end after two, verifying and running take longer."""
LONGEST = 20_000
"""Characters that an error message may have."""
CODES = {"verify": (0, 1, 2), "run": (0, 1, 2), "check": (0, 1, 2), "network": (0, 1, 2, 3, 4)}
"""Exit codes of commands that may end otherwise than with one of `USUAL`."""
USUAL = (0, 2, 3, 4)

_INTERNAL = re.compile(
    r"Traceback \(most recent|pydantic|validation errors? for|NoneType|object has no attribute|not subscriptable"
    r"|unhashable type|KeyError|IndexError|<class '|object at 0x|unexpected keyword|positional argument"
    r"|index out of range|invalid literal for|unsupported operand type|not supported between instances"
    r"|not callable|object is not iterable|too many values to unpack"
)
"""Texts of Python and pydantic that are no message for a user."""


@dataclass
class Case:
    """A command line, the files it finds, and those it may write. call: a function in place of the command line."""

    args: list[str]
    files: dict[str, bytes] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    stdin: bytes = b""
    most_bytes: int | None = None
    """Files that grow larger cannot be written: a disk that is full."""
    call: Any = None


@dataclass
class Outcome:
    """How a case ended, in plain values."""

    code: int
    faults: list[str]
    seconds: float
    stderr: str


def run_case(case: Case, box: Path) -> Outcome:
    """Run the case in the empty folder `box` and judge it."""
    for name, data in case.files.items():
        (box / name).parent.mkdir(parents=True, exist_ok=True)
        (box / name).write_bytes(data)
    before = _content(box)
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    faults: list[str] = []
    began, cpu, code = time.monotonic(), time.process_time(), -1
    try:
        with _streams(out, err, case.stdin), contextlib.chdir(box), _disk(case.most_bytes):
            code = _ended(case)
    except BaseException:  # whatever comes out of the command line is a fault
        text = traceback.format_exc()
        faults.append(f"traceback: {_where(text)}\n{text}")
    spent = time.process_time() - cpu
    said, wrong = _text(out), _text(err)
    if not faults:
        faults += _said_faults(case, code, said, wrong)
    faults += _file_faults(case, code, before, _content(box))
    if spent > SLOW_S:
        faults.append(f"slow: {spent:.0f} s of CPU")
    return Outcome(code, faults, time.monotonic() - began, wrong)


def _ended(case: Case) -> int:
    if case.call is not None:
        return case.call()
    from autoshard.cli import main

    return main(case.args)


def _said_faults(case: Case, code: int, said: str, wrong: str) -> list[str]:
    faults = []
    allowed = CODES.get(case.args[0] if case.args else "", USUAL)
    if code not in allowed:
        faults.append(f"exit code {code} of {case.args[:1]}")
    if (found := _INTERNAL.search(wrong)) and "cannot be traced with these arguments" not in wrong:  # the user's own
        line = next(line for line in wrong.splitlines() if found[0] in line)
        faults.append(f"internal text {found[0]!r}: {line[:300]}")
    if code == 2 and "error:" not in wrong and "Error:" not in wrong and "Usage:" not in wrong and "error" not in said:
        faults.append(f"exit code 2 without an error: {wrong[:200]!r}")
    helped = {"-h", "--help"} & set(case.args)
    if code == 0 and "--json" in case.args and not helped and case.args[0] not in ("report", "cost", "specs"):
        faults += [f"not JSON on standard output: {fault}" for fault in malformed("a.json", said.encode())]
    if len(wrong) > LONGEST:
        faults.append(f"a message of {len(wrong)} characters, beginning {wrong[:200]!r}")
    return faults


def _file_faults(case: Case, code: int, before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[str]:
    faults = []
    told = {case.args[k + 1] for k, word in enumerate(case.args[:-1]) if word in ("-o", "--output")}
    outputs = {*case.outputs, *(name for name in told if case.args.count(name) == 1)}  # not what is read as well
    for name, data in before.items():
        if data != after.get(name) and not any(name == o or name.startswith(f"{o}/") for o in outputs):
            faults.append(f"input {name} was changed")
    for name, data in after.items():
        if name in before and before[name] == data:
            continue
        if "__pycache__" in name:
            continue
        if name.endswith(".part"):
            faults.append(f"left behind: {name}")
        elif code == 0 or data:
            faults += [f"half-written {name}: {fault}" for fault in malformed(name, data)]
        else:
            faults.append(f"half-written {name}: empty")
        if code in (3, 4) and name.endswith("plan.json"):
            faults.append(f"{name} was written though there is no plan")
    return faults


def malformed(name: str, data: bytes) -> list[str]:
    """What is wrong with a file of that name; nothing where it is whole."""
    try:
        if name.endswith(".gz"):
            gzip.decompress(data)
        elif name.endswith(".json"):
            json.loads(data, parse_constant=lambda word: float(f"not JSON: {word}"))
        elif name.endswith((".yaml", ".yml")):
            import yaml

            yaml.safe_load(data)
        elif name.endswith(".py"):
            ast.parse(data)
        elif name.endswith(".html") and not data.rstrip().endswith(b"</html>"):
            return ["the page has no end"]
        elif name.endswith(".csv") and not data.endswith(b"\n"):
            return ["the last line has no end"]
    except Exception as error:
        return [f"{type(error).__name__}: {error}"[:200]]
    return []


def _content(box: Path) -> dict[str, bytes]:
    return {str(p.relative_to(box)): p.read_bytes() for p in sorted(box.rglob("*")) if p.is_file()}


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return stream.buffer.getvalue().decode("utf-8", "replace")  # type: ignore[attr-defined]


def _where(text: str) -> str:
    """The last line of a traceback and the last place in autoshard, by which faults are told apart."""
    places = re.findall(r'File ".*?(autoshard/\S+\.py)", line \d+, in (\S+)', text)
    place = f"{places[-1][0]}:{places[-1][1]}" if places else "?"
    return f"{place} {text.strip().splitlines()[-1][:160]}"


@contextlib.contextmanager
def _streams(out: io.TextIOWrapper, err: io.TextIOWrapper, stdin: bytes) -> Iterator[None]:
    before = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"), out, err
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


@contextlib.contextmanager
def _disk(most_bytes: int | None) -> Iterator[None]:
    """Within the ``with`` block no file can grow beyond `most_bytes`."""
    if most_bytes is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def environment(home: Path) -> dict[str, str]:
    """The environment of the fuzzer's processes: simulated devices, and nothing of the user's is read or changed."""
    return {
        **os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu",
        "AUTOSHARD_PLANS": "", "XDG_STATE_HOME": str(home / "state"), "COLUMNS": "80", "PYTHONWARNINGS": "ignore",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }  # fmt: skip
