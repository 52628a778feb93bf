"""Certificates as bytes: one stream of whole numbers, compressed, behind a line of JSON.

Numbers are written in groups of seven bits, the lowest first, signs folded in (0, -1, 1, -2, ...). The stream holds the
stages of a proof in order: an opcode, then what belongs to it (see `docs/certificates.md`).
"""

import json
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from autoshard.solver.certify.packing import packed
from autoshard.solver.certify.parts import Step
from autoshard.solver.certify.probing import Probes
from autoshard.solver.certify.proof import Charge, Outline, Proof, Refuted
from autoshard.solver.certify.shaving import Shave
from autoshard.solver.certify.weigh import Record
from autoshard.solver.work import Event

FORMAT, OF_OUTLINES, OF_NOGOODS = "autoshard-certificate-3", "autoshard-certificate-4", "autoshard-certificate-5"
END, TIMES, DROP, DOMINATED, ELIMINATE, FOLLOW, SEPARATE, RECORD, SPLIT, TREE, PART, FORGET, SHAVE, PROBES = range(14)
OUTLINED, LEFT, NOGOODS = 14, 15, 16
MOST_BYTES = 2**27
"""Checkers refuse what unpacks to more."""


def certificate_of(proof: Proof, bound: int | None) -> bytes:
    """The proof as bytes; bound: at most what it proves, None: that there is no assignment. Empty where it would unpack
    to more than checkers read.
    """
    stream: list[np.ndarray] = []

    def put(numbers: Iterable[int] | np.ndarray) -> None:
        stream.append(np.asarray(numbers if isinstance(numbers, np.ndarray) else list(numbers), dtype=np.int64))

    claimed = 0 if bound is None else bound
    if proof.outline is not None:
        _outline(put, proof.outline)
    for stage in proof.stages:
        if stage and isinstance(stage[0], Record | Shave | Probes | Refuted):
            put([PART])
            for record in stage:
                if isinstance(record, Shave):
                    put([SHAVE, record.node, len(record.states)])
                    put(record.states)
                elif isinstance(record, Probes):
                    put([PROBES, len(record.probes)])
                    for one in record.probes:
                        put([one.node, len(one.states)])
                        put(one.states)
                        if one.record is not None:
                            _record(put, one.record, claimed)
                        put([END])
                elif isinstance(record, Refuted):
                    _nogoods(put, record)
                else:
                    assert isinstance(record, Record)
                    _record(put, record, claimed)
            put([END])
        else:
            _events(put, [event for event in stage if isinstance(event, tuple)])
    if proof.tree is not None:
        put([TREE])
        _tree(put, proof.tree, claimed)
    put([END])
    numbers = np.concatenate(stream) if stream else np.zeros(0, dtype=np.int64)
    raw = packed(numbers)
    if len(raw) > MOST_BYTES:
        return b""
    format_ = FORMAT if proof.outline is None else OF_OUTLINES
    if any(isinstance(one, Refuted) for stage in proof.stages for one in stage):
        format_ = OF_NOGOODS
    head: dict[str, Any] = {"format": format_, "bound": bound, "numbers": len(numbers), "parts": proof.parts}
    return json.dumps(head).encode() + b"\n" + zlib.compress(raw)


def _outline(put, outline: Outline) -> None:
    for one in outline.steps:
        charge = one.charge or Charge(0, ())
        put([OUTLINED, one.step])
        _sent(put, charge.bits, charge.prices, one.messages)
    if outline.left is not None:
        put([LEFT])
        for states in outline.left:  # stretches of numbers that follow each other: where each begins, and how many
            ends = np.flatnonzero(np.diff(states) != 1)
            begins = states[np.concatenate([[0], ends + 1])] if len(states) else states
            lengths = np.diff(np.concatenate([[-1], ends, [len(states) - 1]])) if len(states) else states
            put([len(begins)])
            put(np.column_stack([np.diff(begins, prepend=0), lengths]).ravel())


def _nogoods(put, refuted: Refuted) -> None:
    put([NOGOODS, len(refuted.nogoods)])
    for nogood in refuted.nogoods:
        put([len(nogood.nodes)])
        before = -1
        for node, states in zip(nogood.nodes, nogood.states, strict=True):
            put([node - before - 1, len(states)])
            put(np.diff(states, prepend=0))
            before = node


def _events(put, events: list[Event]) -> None:
    for name, *rest in events:
        if name == "drop":
            node, states = rest
            put([DROP, node, len(states)])
            put(states)
        elif name == "dominated":
            node, states, better = rest
            put([DOMINATED, node, len(states)])
            put(states)
            put(better)
        elif name == "eliminate":
            put([ELIMINATE, rest[0]])
        elif name == "follow":
            put([FOLLOW, *rest])
        elif name == "separate":
            put([SEPARATE, *rest])
        elif name == "forget":
            put([FORGET])
        elif name == "times":
            times = np.asarray(rest[0], dtype=np.int64)
            put([TIMES, len(times)])
            put(np.diff(times, prepend=0))
        else:
            raise AssertionError(f"a reduction without a spelling in certificates: {name}")


def _record(put, record: Record, claimed: int) -> None:
    put([RECORD, int(record.pairs) + 2 * int(record.costs), record.threshold - claimed, record.bits, record.step])
    _sent(put, record.price_bits, record.prices, record.messages)


def _sent(put, bits: int, prices: Sequence[tuple[int, int]], messages: np.ndarray) -> None:
    """Prices, each at a moment or in a time slot, and messages."""
    put([bits, len(prices)])
    if prices:
        times, listed = np.array(prices, dtype=np.int64).T
        put(np.diff(times, prepend=0))
        put(listed)
    put([len(messages)])
    put(messages)


def _tree(put, step: Step, claimed: int) -> None:
    """Depth first, without recursion: trees may be deep."""
    waiting: list[Step | None] = [None, step]
    while waiting:
        at = waiting.pop()
        if at is None:
            put([END])
            continue
        for record in at.records:
            _record(put, record, claimed)
        if at.halves and at.first_half is not None:
            kept = np.flatnonzero(at.first_half)
            put([SPLIT, at.node, len(kept)])
            put(kept)
            for half in reversed(at.halves):
                waiting += [None, half]
