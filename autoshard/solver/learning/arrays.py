"""What compiled search for anything that fits takes: what is given, and what changes."""

from typing import NamedTuple

import numpy as np

from autoshard.solver.dual.flat import Flat

HERE = 2**60
"""The place on the trail of a state that is not removed."""
DECIDED = -1
"""The cause of what was removed by a decision; other causes are arcs, then slots, then nogoods."""
TRAIL, DONE, LEVEL, NOGOODS, CONFLICTS, RESTART, RESTARTS, CAUSES = range(8)
"""Places of `Search.numbers`: states removed; those that nogoods have heard of; the level; nogoods; dead ends; dead
ends to the next restart; restarts; causes written down."""
WORD = 64
POOL = 2_000_000
"""States of all nogoods, and nogoods that were causes, that there is room for at first."""


class Rules(NamedTuple):
    """A flat network without costs. Bits of a node's states are words[node] to words[node + 1].

    Arc x leads from node source[x] to node target[x]: which states of the source go with state b of the target is in
    `rows` from row_at[x] + b * (words of the source) on; known_at[x] + b is its place in `Search.known`. Arcs are in
    the order of their sources, from arcs[node] on. held_*: of each record the node, the first slot, the first slot
    after, and where its amounts begin; rising: its states by amount. Records of every node: of_node, from of_node_at
    on; those in every slot: likewise.
    """

    offsets: np.ndarray
    owner: np.ndarray
    words: np.ndarray
    arcs: np.ndarray
    source: np.ndarray
    target: np.ndarray
    row_at: np.ndarray
    known_at: np.ndarray
    rows: np.ndarray
    held_node: np.ndarray
    held_start: np.ndarray
    held_stop: np.ndarray
    held_at: np.ndarray
    amounts: np.ndarray
    rising: np.ndarray
    of_node_at: np.ndarray
    of_node: np.ndarray
    in_slot_at: np.ndarray
    in_slot: np.ndarray
    limit: int


class Search(NamedTuple):
    """What is left, why the rest is not, and what was learned.

    bits, counts: what is left of every node. trail: removed states, in order; place, level, cause: of every state;
    begins: where on the trail a level begins. low: the least of every record, live: their sum in every slot. stale: of
    which nodes arcs, and records, are to be looked at. Nogood c is states pool[begin[c]:begin[c + 1]], by node; it is
    watched by two states, watched[2 * c] and watched[2 * c + 1], and is in the lists of both (first, following). Its
    proof asks for the nogoods causes[asked[c]:asked[c + 1]]. activity, step: how much dead ends were about each state,
    and what the next one adds. weight: bytes times slots that states hold. known: the word of each arc's target state
    that last showed a partner. marked: used within one step only.
    """

    bits: np.ndarray
    counts: np.ndarray
    trail: np.ndarray
    place: np.ndarray
    level: np.ndarray
    cause: np.ndarray
    begins: np.ndarray
    low: np.ndarray
    live: np.ndarray
    stale: np.ndarray
    begin: np.ndarray
    pool: np.ndarray
    watched: np.ndarray
    first: np.ndarray
    following: np.ndarray
    asked: np.ndarray
    causes: np.ndarray
    activity: np.ndarray
    step: np.ndarray
    weight: np.ndarray
    known: np.ndarray
    marked: np.ndarray
    numbers: np.ndarray


def rules_of(flat: Flat) -> Rules:
    """The network without its costs; nodes hold what `flat` says, in stretches that do not overlap."""
    sizes, n = flat.sizes, flat.n
    count = (sizes + WORD - 1) // WORD
    leading: list[list[tuple[int, np.ndarray]]] = [[] for _ in range(n)]
    for edge in range(len(flat.first)):
        allowed = np.isfinite(flat.table(edge))
        if not allowed.all():
            i, j = int(flat.first[edge]), int(flat.second[edge])
            leading[i].append((j, allowed.T))
            leading[j].append((i, allowed))
    rows, lengths, known = [np.zeros(0, dtype=np.uint64)], [0], [0]
    for i, arcs in enumerate(leading):
        for _, allowed in arcs:
            padded = np.zeros((len(allowed), int(count[i]) * WORD), dtype=bool)
            padded[:, : sizes[i]] = allowed
            packed = np.packbits(padded, axis=1, bitorder="little")
            rows.append(packed.view(np.dtype("<u8")).astype(np.uint64).ravel())
            lengths.append(rows[-1].size)
            known.append(len(allowed))
    targets = [[j for j, _ in arcs] for arcs in leading]
    spans = [range(int(a), int(b)) for a, b in zip(flat.held_start, flat.held_stop, strict=True)]
    rising = [
        np.argsort(flat.amounts[a:b], kind="stable") for a, b in zip(flat.held_at[:-1], flat.held_at[1:], strict=True)
    ]
    of_node: list[list[int]] = [[] for _ in range(n)]
    in_slot: list[list[int]] = [[] for _ in range(flat.slots)]
    for record, (node, span) in enumerate(zip(flat.held_node.tolist(), spans, strict=True)):
        of_node[node].append(record)
        for slot in span:
            in_slot[slot].append(record)
    return Rules(
        flat.offsets.astype(np.int64), np.repeat(np.arange(n), sizes), _starts(count), _starts(list(map(len, leading))),
        np.repeat(np.arange(n), [len(arcs) for arcs in leading]), _joined(targets), np.cumsum(lengths)[:-1],
        np.cumsum(known)[:-1], np.concatenate(rows), flat.held_node, flat.held_start, flat.held_stop,
        flat.held_at.astype(np.int64), flat.amounts.astype(np.int64), _joined(rising),
        _starts(list(map(len, of_node))), _joined(of_node), _starts(list(map(len, in_slot))), _joined(in_slot),
        flat.held.limit,
    )  # fmt: skip


def begun(rules: Rules) -> Search:
    """A search of which nothing is done yet."""
    n, states, sizes = len(rules.offsets) - 1, int(rules.offsets[-1]), np.diff(rules.offsets)
    bits = np.zeros(int(rules.words[-1]), dtype=np.uint64)
    inside = np.arange(states) - rules.offsets[rules.owner]
    np.bitwise_or.at(bits, rules.words[rules.owner] + inside // WORD, np.uint64(1) << (inside % WORD).astype(np.uint64))
    weight = np.zeros(states)
    for record, node in enumerate(rules.held_node.tolist()):
        slots = int(rules.held_stop[record] - rules.held_start[record])
        own = rules.amounts[rules.held_at[record] : rules.held_at[record + 1]]
        weight[rules.offsets[node] : rules.offsets[node + 1]] += own.astype(np.float64) * slots

    def none(length: int, kind: type = np.int64) -> np.ndarray:
        return np.zeros(length, dtype=kind)

    return Search(
        bits, sizes.astype(np.int64), none(states), np.full(states, HERE), none(states), none(states), none(states + 2),
        none(len(rules.held_node)), none(len(rules.in_slot_at) - 1), np.ones((2, n), dtype=bool), none(1),
        none(POOL, np.int32), none(0), np.full(states, -1), none(0), none(1), none(POOL, np.int32), none(states, float),
        np.ones(1), weight, none(int(sizes[rules.target].sum())), none(states, bool), none(8),
    )  # fmt: skip


def _starts(lengths: list[int] | np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _joined(lists: list) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype=np.int64), *lists]).astype(np.int64)
