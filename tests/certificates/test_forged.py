"""Certificates made by hand to prove what is false: numbers chosen so that sums of 64 bits would wrap around (S9.4)."""

import json
import zlib
from collections.abc import Sequence

import numpy as np
import pytest

from autoshard.solver.certify.certificate import packed
from autoshard.verify.certificate import CertificateFault, check_certificate

END, TIMES, DROP, DOMINATED, ELIMINATE, FOLLOW, SEPARATE, RECORD, SPLIT, TREE, PART, FORGET, SHAVE = range(13)
LOWEST = -(2**63)
BARRED = 10**15


def judged(
    numbers: Sequence[int],
    bound: int | None,
    costs: Sequence[Sequence[int]],
    edges: Sequence[tuple[int, int, object]] = (),
    usages: Sequence[Sequence[tuple[int, int, Sequence[int]]]] | None = None,
    limit: int | None = None,
) -> int | None:
    head = json.dumps({"format": "autoshard-certificate-2", "bound": bound}).encode()
    data = head + b"\n" + zlib.compress(packed(np.array(numbers, dtype=np.int64)))
    own = [np.array(c, dtype=np.int64) for c in costs]
    tables = [(i, j, np.array(table, dtype=np.int64)) for i, j, table in edges]
    held = [[(a, b, np.array(x)) for a, b, x in of] for of in usages or [[] for _ in costs]]
    return check_certificate(data, own, tables, held, limit).bound


def record(messages: Sequence[int]) -> list[int]:
    """A record that counts costs, whose threshold is the claimed bound; no prices, no bits behind the point."""
    return [RECORD, 2, 0, 0, 0, 0, 0, len(messages), *messages]


def test_messages_that_are_the_lowest_of_64_bits_prove_nothing() -> None:
    """-2**63 is its own opposite there: at two ends of two edges each it cancels out, and hides the free pairs."""
    edges = [(i, j, [[0, 1000], [0, 1000]]) for i in (0, 1) for j in (2, 3)]
    with pytest.raises(CertificateFault, match="too large for 64 bits"):
        judged([PART, *record([0, LOWEST] * 4), END], 4000, [[0, 0]] * 4, edges)


def test_a_record_far_below_the_bound_rules_out_no_state() -> None:
    """What the states of node 0 cost above such a record's bound is less than what is missing to the claimed one."""
    table = [[0, 0, 0], [1, 1, 1]]
    far = 2**61 // 3 - 2000
    numbers = [PART, *record([far, -far] * 2), END, END]
    with pytest.raises(CertificateFault, match="without a proof that nothing in it costs less than 5"):
        judged(numbers, 5, [[0, 0], [0] * 3, [0] * 3], [(0, 1, table), (0, 2, table)])


def test_costs_that_steps_move_on_and_on_to_one_node_are_refused() -> None:
    """Separating tables moves a cost to node 0 and its opposite to node 1, again and again; no sum leaves 64 bits."""
    top, swapped, same = BARRED - 1, [[BARRED, 0], [0, BARRED]], [[0, BARRED], [BARRED, 0]]
    costs, edges, numbers, last = [[0], [0], [0, top]], [], [], 2
    for turn in range(2 * 1160):
        middle, end = len(costs), len(costs) + 1
        costs += [[0, 0], [0, 0]]
        edges += [(last, middle, swapped), (middle, end, same), (turn % 2, middle, [[0, 0]])]
        numbers += [ELIMINATE, last, ELIMINATE, middle, SEPARATE, turn % 2, end]
        last = end
    with pytest.raises(CertificateFault, match="its steps add up costs to"):
        judged([*numbers, DROP, 0, 1, 0], None, costs, edges)


def test_a_cost_that_is_the_lowest_of_64_bits_is_too_large() -> None:
    with pytest.raises(CertificateFault, match="the costs of the network add up to 18446744073709551616"):
        judged([ELIMINATE, 0, ELIMINATE, 1, END], 0, [[0], [LOWEST]], [(0, 1, [[LOWEST]])])


def test_amounts_whose_sum_wraps_around_are_too_large() -> None:
    """Three times -2**62 is 2**62 in 64 bits, which would be above any limit."""
    with pytest.raises(CertificateFault, match="what the network holds adds up to"):
        judged([PART, END], None, [[0]] * 3, usages=[[(0, 1, [-(2**62)])]] * 3, limit=5)


def test_prices_of_time_slots_beyond_64_bits_are_refused() -> None:
    numbers = [PART, RECORD, 2, 0, 0, 0, 0, 3, 0, 2**62, 2**62 + 2**61, 1, 1, 1, 0]
    with pytest.raises(CertificateFault, match="a time slot beyond 64 bits"):
        judged(numbers, 5, [[0]], usages=[[(0, 1, [1])]], limit=1)


def test_a_state_is_dominated_by_none_that_a_neighbour_forbids() -> None:
    """However much less it costs beside the others."""
    edges = [(0, 1, [[0], [BARRED]]), *((0, k, [[0], [-(10**14)]]) for k in range(2, 20))]
    with pytest.raises(CertificateFault, match="is not dominated"):
        judged([DOMINATED, 0, 1, 0, 1, END], 0, [[0, 0], *([[0]] * 19)], edges)


def test_a_certificate_that_unpacks_to_much_more_than_any_proof_is_refused() -> None:
    packer = zlib.compressobj()
    body = b"".join(packer.compress(bytes(2**22)) for _ in range(33)) + packer.flush()
    with pytest.raises(CertificateFault, match="cut off, or too many"):
        check_certificate(b'{"format": "autoshard-certificate-2", "bound": 1}\n' + body, [], [], [], None)


def test_a_first_line_of_brackets_is_no_certificate() -> None:
    with pytest.raises(CertificateFault, match="its first line is not JSON"):
        check_certificate(b"[" * 90_000 + b"\n", [], [], [], None)
