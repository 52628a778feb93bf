"""The part of `check` and `propagate` that is about ONNX models."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoshard.cli.common import is_size
from autoshard.errors import InputError

if TYPE_CHECKING:
    from autoshard.onnx.check import Checked
    from autoshard.onnx.implied import Transfer
    from autoshard.onnx.problems import Finding

SUFFIXES = frozenset({".onnx", ".json", ".onnxjson", ".textproto", ".pbtxt", ".prototxt", ".txtpb", ".onnxtxt"})


def is_onnx(file: str) -> bool:
    """Whether the name of a file says that it is an ONNX model."""
    return Path(file).suffix.lower() in SUFFIXES


def shape_option(items: Sequence[str]) -> dict[str, int]:
    """``["batch=8"]`` as numbers for symbolic dimensions.

    >>> shape_option(["batch=8", "seq=128"])
    {'batch': 8, 'seq': 128}
    """
    sizes: dict[str, int] = {}
    for item in items:
        name, equals, size = item.rpartition("=")
        if not equals or not name.strip() or not is_size(size):
            raise InputError(f"--shape: cannot read {item[:80]!r}; write DIM=N, such as batch=8")
        if name.strip() in sizes:
            raise InputError(f"--shape: {name.strip()} is given twice")
        sizes[name.strip()] = int(size)
    return sizes


def check_model(file: str, configuration: str | None, strict: bool, shapes: Mapping[str, int]) -> "Checked":
    """The findings in one file."""
    from autoshard.onnx.check import check
    from autoshard.onnx.model import load

    return check(load(file, shapes=shapes), configuration=configuration, strict=strict)


def lines(name: str, checked: "Checked") -> list[str]:
    """A line for each finding, one line for all operators of a type without a rule, and lines for assumptions."""
    out = [
        f"{name}: {'' if f.severity == 'error' else f'{f.severity}: '}{f}" for f in checked.findings if not _plain(f)
    ]
    by_op: dict[tuple[str, str], list[Finding]] = {}
    for finding in checked.findings:
        if _plain(finding):
            by_op.setdefault((finding.op, finding.message), []).append(finding)
    for (_, message), same in by_op.items():
        count = f"{len(same)} nodes, the first: " if len(same) > 1 else ""
        out.append(f"{name}: no rule: {count}{same[0].node}: {message}")
    return out + [f"{name}: note: {note}" for note in checked.notes]


def _plain(finding: "Finding") -> bool:
    return finding.code == "no-rule"


def finding_data(finding: "Finding") -> dict[str, Any]:
    """A finding as plain data."""
    return {
        "severity": finding.severity,
        "code": finding.code,
        "message": finding.message,
        "advice": finding.advice,
        "scope": finding.scope,
        "node": finding.node,
        "tensor": finding.tensor,
        "axis": finding.axis,
        "configuration": finding.configuration,
    }


def propagate_model(
    file: str,
    output: Path | None,
    *,
    configuration: str | None,
    shapes: Mapping[str, int],
    spread_hints: bool,
    show_implied: bool,
) -> None:
    """Write the completed copy of one model, and say what was added."""
    if output is None and not show_implied:
        raise InputError(
            f"propagate {file}: an ONNX model is written to a file: give --output FILE, or ask for --implied"
        )
    from autoshard.files import check_writable
    from autoshard.onnx.annotate import write_annotated
    from autoshard.onnx.implied import implied
    from autoshard.onnx.infer import infer
    from autoshard.onnx.model import Model, load

    if output is not None:
        check_writable(output)
        if output.resolve() == Path(file).resolve():
            raise InputError(f"--output: {output} is the model itself, which is never changed; name another file")
    model = load(file, shapes=shapes)
    if spread_hints:
        from autoshard.onnx.spread import spread

        done = spread(model, configuration=configuration)
    else:
        done = infer(model, configuration=configuration)
    if output is not None:
        write_annotated(done.proto, model, output)
        print(f"{file}: {done.added} spec{'' if done.added == 1 else 's'} added, written to {output}")
    for node, tensor in done.left:
        print(f"{file}: no spec follows for {tensor!r} at node {node}", file=sys.stderr)
    if show_implied:
        transfers = implied(Model(done.proto, model.path, model.shapes), configuration=configuration)
        print("\n".join(implied_lines(transfers)))


def implied_lines(transfers: Sequence["Transfer"]) -> list[str]:
    """A line for each communication, and the sum of their bytes."""
    from autoshard.report.amounts import bytes_text

    out = []
    for t in transfers:
        if t.kind == "slice":
            continue
        combine = f" ({t.combine})" if t.combine not in ("", "add") else ""
        size = "unknown size" if t.bytes is None else bytes_text(t.bytes)
        where = f"{t.scope}, " if t.scope else ""
        side = "before" if t.end == "in" else "after"
        shown = ",".join(map(str, t.devices[:16])) + (",..." if len(t.devices) > 16 else "")
        out.append(f"{side} {where}node {t.node}: {t.kind}{combine} of {t.tensor!r} on {{{shown}}}: {size}")
    slices = sum(t.kind == "slice" for t in transfers)
    known = sum(t.bytes for t in transfers if t.bytes is not None)
    unknown = sum(t.bytes is None for t in transfers)
    more = f", {unknown} of unknown size" if unknown else ""
    moves = len(transfers) - slices
    out.append(
        f"{moves} communication{'' if moves == 1 else 's'}, {bytes_text(known)} received by all devices together{more}"
        f"; {slices} slice{'' if slices == 1 else 's'} without communication"
    )
    return out
