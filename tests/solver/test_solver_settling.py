"""Loops compiled as a whole say what their steps say one by one; records weigh the same on a part as on the whole."""

import sys
from pathlib import Path

import numpy as np
import pytest

from autoshard.solver.certify.ground import Ground
from autoshard.solver.certify.weigh import Record, Whole, charged, weigh
from autoshard.solver.certify.write import record_of
from autoshard.solver.dual import passes as duals
from autoshard.solver.dual import pricing, settling
from autoshard.solver.dual.consistent import make_consistent
from autoshard.solver.dual.fixing import Part, restrict
from autoshard.solver.dual.flat import flatten
from autoshard.solver.dual.settling import Stop
from autoshard.solver.work import Infeasible, from_network

sys.path.insert(0, str(Path(__file__).parent))
from solver_cases import optimum, random_network

STOP = Stop(threshold=10.0**6, cheap=10.0**6, least=4, looked_at=4, gain=-1.0)
"""Never ends early."""


def networks(count: int):
    """Consistent parts of random networks with a memory limit."""
    seed = 0
    while count:
        seed += 1
        network = random_network(seed, nodes=7, states=4, forbidden=0.05)
        try:
            flat = flatten(from_network(network))
        except Infeasible:
            continue
        alive = np.ones(len(flat.unary), dtype=bool)
        if flat.limit is None or not len(flat.first) or not make_consistent(flat, alive):
            continue
        count -= 1
        yield seed, flat, alive, restrict(Part(duals.start(flat), np.arange(len(flat.unary))), alive)


def one_by_one(dual: duals.Dual, prices: duals.Prices, passes: int) -> tuple[list[np.ndarray], list[bool], float]:
    decoded, worth, bound = [], [], -np.inf
    limit, cheap = dual.flat.limit, STOP.cheap
    assert limit is not None
    for _ in range(passes):
        dual.bound = -np.inf
        duals.run_pass(dual, True)
        chosen = duals.run_pass(dual, False)
        bound = max(bound, dual.bound)
        live = duals.usage(dual.flat, chosen)
        cost = duals.flat_cost(dual.flat, chosen)
        decoded.append(chosen)
        worth.append(live.max(initial=0) <= limit and cost < cheap)
        cheap = min(cheap, cost) if worth[-1] else cheap
        if bound >= min(STOP.threshold, cheap):
            prices.close_with(dual.last)
            break
        if prices.asked or live.max(initial=0) > limit:
            target = min(STOP.threshold, cheap)
            prices.pace = pricing.aim(prices.slots, prices.pace, limit, dual.last, live, target)
            duals.set_prices(dual, prices.slots.current)
    return decoded, worth, bound


@pytest.mark.parametrize("plain", [False, True], ids=["compiled", "plain"])
def test_the_loop_is_the_passes_one_by_one(plain, monkeypatch):
    if plain:  # the same functions as Python runs them
        for module in (settling, pricing):
            for name in ("double_pass", "coarsen", "cost_of", "charge", "fill_live", "aim"):
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, getattr(module, name).py_func)
        monkeypatch.setattr(settling, "message_pass", settling.message_pass.py_func)
        monkeypatch.setattr(duals, "run_settle", settling.settle.py_func)
    priced = 0
    for seed, _, _, part in networks(10 if plain else 60):
        copy = restrict(part, np.ones(len(part.origin), dtype=bool))
        looped, stepped = duals.aiming_prices(part.flat.slots), duals.aiming_prices(part.flat.slots)
        decoded, worth = duals.settle(part.dual, looped, 40, STOP)
        expected, expected_worth, bound = one_by_one(copy.dual, stepped, 40)
        assert decoded.tolist() == [c.tolist() for c in expected], seed
        assert worth.tolist() == expected_worth, seed
        assert looped.asked == stepped.asked, seed
        assert part.dual.bound >= bound - 1e-6 * abs(bound), seed  # ends with a pass at the best prices
        assert looped.best == pytest.approx(stepped.best, rel=1e-9), seed
        priced += looped.asked
    assert priced > 2


def test_passes_end_at_messages_as_good_as_the_best() -> None:
    asked = 0
    for seed, _, _, part in networks(60):
        prices = duals.aiming_prices(part.flat.slots)
        duals.settle(part.dual, prices, 40, STOP)
        if prices.asked:
            asked += 1
            assert part.dual.last >= prices.pace.bound - 1e-9 * abs(prices.pace.bound), seed
    assert asked > 2


def test_a_network_begins_at_the_messages_that_are_known_of_it() -> None:
    better = 0
    for seed, flat, _, _ in networks(40):
        first = Ground.of(flat)
        assert first is not None
        for _ in range(20):
            duals.run_pass(first.part.dual, True)
            duals.run_pass(first.part.dual, False)
        bound = {}
        for known in (None, first.part.dual):
            again = Ground.of(flat, True, known)
            assert again is not None
            duals.run_pass(again.part.dual, True)
            bound[known is None] = again.part.dual.bound
        assert bound[False] >= bound[True] - 1e-9 * abs(bound[True]), seed
        better += bound[False] > bound[True]
    assert better > 2


def test_records_weigh_the_same_on_a_part_as_on_the_whole():
    dropped = 0
    for seed, flat, alive, part in networks(60):
        best = optimum(random_network(seed, nodes=7, states=4, forbidden=0.05))
        whole = Whole.of(flat)
        assert whole is not None
        prices = duals.aiming_prices(flat.slots)
        duals.settle(part.dual, prices, 20, STOP)
        record = record_of(whole, part.dual, part.dual.prices if prices.asked else None, int(part.dual.bound) + 5)
        assert record is not None
        wide = weigh(whole, alive, record)
        narrow = weigh(whole.cut(part.flat), np.ones(len(part.origin), dtype=bool), record)
        assert wide is not None and narrow is not None
        assert wide.bound == narrow.bound and (best is None or wide.bound <= best), seed
        assert (wide.alive[part.origin] == narrow.alive).all() and not wide.alive[~alive].any(), seed
        dropped += int((~narrow.alive).sum())
    assert dropped > 50


def test_charges_are_exact():
    rng = np.random.default_rng(5)
    for seed, flat, _, _ in networks(40):
        for top in (6, 20, 40):
            flat.amounts[:] = rng.integers(0, 2**top, len(flat.amounts))
            prices = tuple((t, int(rng.integers(0, 2**18))) for t in range(flat.slots))
            for bits, price_bits in ((0, 30), (0, 24), (4, 10), (0, 0), (6, 2)) if top < 40 else ((0, 30), (0, 45)):
                nothing = np.zeros(0, dtype=np.int64)
                found = charged(flat, Record(10**6, bits, 0, price_bits, prices, nothing))
                assert found is not None
                extra, charge = found
                total = [0] * len(flat.unary)
                for r, node in enumerate(flat.held_node.tolist()):
                    asked = sum(p for t, p in prices if flat.held_start[r] <= t < flat.held_stop[r])
                    for a, amount in enumerate(flat.amounts[flat.held_at[r] : flat.held_at[r + 1]].tolist()):
                        total[int(flat.offsets[node]) + a] += asked * amount
                assert extra.tolist() == [(x << bits) >> price_bits for x in total], (seed, top, bits, price_bits)
                limit = flat.limit or 0
                assert charge == -((-sum(p for _, p in prices) * limit << bits) >> price_bits), seed


def test_steps_of_prices_add_up_in_the_order_that_is_written():
    """Else code that was just compiled and code from disk would come to other last bits, and to other proofs."""
    rng = np.random.default_rng(3)
    slots, limit = 301, 10**6
    for _ in range(20):
        arrays = [rng.random(slots) for _ in range(5)]
        live = rng.integers(0, 2 * limit, slots)
        found = []
        for aim in (pricing.aim, pricing.aim.py_func):
            per_slot = pricing.PerSlot(*(a.copy() for a in arrays))
            pace = pricing.Pace(3.0, 4, 0.5, 0, 0, 0, pricing.FOUND)
            found.append((aim(per_slot, pace, limit, 2.9, live, 7.0), *map(bytes, per_slot)))
        assert found[0] == found[1]


@pytest.mark.parametrize("least", [5e-324, 1e-310, 1e-200])
def test_prices_too_small_for_their_parts_are_none(least: float) -> None:
    seed, flat, _, _ = next(networks(1))
    dual = duals.start(flat)
    duals.set_prices(dual, np.full(flat.slots, least))
    assert not dual.prices.any() and dual.charge == 0 and (dual.priced == flat.unary).all(), seed
