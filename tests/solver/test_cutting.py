"""Parts cut out without the tables that classes say all of are worth what those with tables are, to the last bit."""

from dataclasses import replace

import numpy as np
import pytest
from test_classes import repeating

from autoshard.solver.certify.weigh import Whole, weigh
from autoshard.solver.certify.write import record_of
from autoshard.solver.dual import passes as duals
from autoshard.solver.dual.consistent import make_consistent
from autoshard.solver.dual.cutting import cut_out
from autoshard.solver.dual.fixing import Part, paid_above, reduced_costs, restrict
from autoshard.solver.dual.flat import Flat
from autoshard.solver.dual.messages import by_classes
from autoshard.solver.dual.settling import Stop

SEEDS = range(30)


def parts(seed: int) -> tuple[Part, Part, np.ndarray]:
    """A random half of a network with repeating tables: as `restrict` and as `cut_out` leave it, and which states."""
    flat = repeating(seed)
    rng = np.random.default_rng(seed)
    alive = rng.random(len(flat.unary)) < 0.5
    alive[flat.offsets[:-1]] = True
    assert make_consistent(flat, alive)
    whole = Part(duals.start(flat), np.arange(len(flat.unary)))
    for forward in (True, False):
        duals.run_pass(whole.dual, forward)
    return restrict(whole, alive), cut_out(whole, alive), alive


def table_of(flat: Flat, e: int) -> np.ndarray:
    """The table of an edge, by its classes where it has no other."""
    v = flat.classes.columns[e]
    if not v:
        return flat.table(e)
    x, y = (int(flat.sizes[ends[:e]].sum()) for ends in (flat.first, flat.second))
    rows = flat.classes.of_first[x : x + flat.sizes[flat.first[e]]]
    columns = flat.classes.of_second[y : y + flat.sizes[flat.second[e]]]
    return flat.classes.entries[flat.classes.at[e] : flat.classes.at[e + 1]].reshape(-1, v)[np.ix_(rows, columns)]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_edge_has_the_same_entries(seed: int) -> None:
    full, lean, _ = parts(seed)
    assert lean.flat.entries == len(full.flat.tables)
    for e in range(len(full.flat.first)):
        assert (table_of(lean.flat, e) == full.flat.table(e)).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_an_edge_has_a_table_or_classes_that_are_less_work(seed: int) -> None:
    _, lean, _ = parts(seed)
    flat = lean.flat
    for e in range(len(flat.first)):
        d, c = flat.sizes[flat.first[e]], flat.sizes[flat.second[e]]
        length = flat.table_at[e + 1] - flat.table_at[e]
        assert by_classes(flat.classes, e, d, c) if flat.classes.columns[e] else length == d * c
        assert length in (0, d * c)


def test_some_edges_keep_classes_and_some_get_tables_again() -> None:
    kept, again = 0, 0
    for seed in SEEDS:
        full, lean, _ = parts(seed)
        had, has = full.flat.classes.columns > 0, lean.flat.classes.columns > 0
        kept, again = kept + int((had & has).sum()), again + int((had & ~has).sum())
    assert kept > 0
    assert again > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_cut_again_it_is_what_is_left_of_the_first_cut(seed: int) -> None:
    full, lean, _ = parts(seed)
    rng = np.random.default_rng(seed + 100)
    alive = rng.random(len(lean.origin)) < 0.6
    alive[lean.flat.offsets[:-1]] = True
    assert make_consistent(full.flat, same := alive.copy())
    assert make_consistent(lean.flat, alive)
    assert (alive == same).all()
    once, again = restrict(full, alive), cut_out(lean, alive)
    assert (once.origin == again.origin).all()
    assert all((table_of(again.flat, e) == once.flat.table(e)).all() for e in range(len(once.flat.first)))


@pytest.mark.parametrize("seed", SEEDS)
def test_passes_decode_and_bound_the_same(seed: int) -> None:
    outcomes = []
    for part in parts(seed)[:2]:
        decoded, worth = duals.settle(part.dual, duals.aiming_prices(0), 12, Stop(1e15, 1e15, 4, 4, 0.0))
        outcomes.append([decoded, worth, part.dual.to_first, part.dual.to_second, np.array([part.dual.bound])])
    for one, other in zip(*outcomes, strict=True):
        assert (one == other).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_reduced_costs_and_what_a_choice_pays_are_the_same(seed: int) -> None:
    full, lean, _ = parts(seed)
    chosen = np.random.default_rng(seed).integers(0, full.flat.sizes)
    reaches, paid = [], []
    for part in (full, replace(full, dual=replace(full.dual, flat=lean.flat))):
        reaches.append(reduced_costs(part.dual))
        paid.append(paid_above(part.dual, chosen))
    assert reaches[0].bound == reaches[1].bound
    assert (reaches[0].reach == reaches[1].reach).all()
    assert (paid[0] == paid[1]).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_choice_pays_what_reparametrised_tables_say(seed: int) -> None:
    full, _, _ = parts(seed)
    flat, dual = full.flat, full.dual
    _, own, rest = duals.reparametrise(dual)
    chosen = np.random.default_rng(seed).integers(0, flat.sizes)
    expected = own[flat.offsets[:-1] + chosen]
    for e in range(len(flat.first)):
        i, j = flat.first[e], flat.second[e]
        entry = rest[flat.table_at[e] + chosen[i] * flat.sizes[j] + chosen[j]]
        expected[[i, j]] += entry if np.isfinite(entry) else 1e18
    assert np.allclose(paid_above(dual, chosen), expected, rtol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_records_prove_the_same(seed: int) -> None:
    full, lean, alive = parts(seed)
    whole = Whole.of(repeating(seed))
    assert whole is not None
    weighed = []
    for part in (full, lean):
        record = record_of(whole, part.dual, None, 10**6)
        assert record is not None
        weighed.append(weigh(whole.cut(part.flat), np.ones(int(alive.sum()), dtype=bool), record))
    one, other = weighed
    assert one is not None
    assert other is not None
    assert one.bound == other.bound
    assert (one.reach == other.reach).all()
