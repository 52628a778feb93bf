"""Networks whose tables are kept as rows and columns of smaller ones are the same networks."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plan_cases import f32

from autoshard import Pin, SameSharding
from autoshard.api.verbs import ask
from autoshard.costs import reshard
from autoshard.errors import InfeasibleError, NotFoundError
from autoshard.formulation import encode
from autoshard.frontends.jax.function import trace
from autoshard.planning import Model, build_model, decide

LAYERS = [{"u": f32(16, 64), "d": f32(64, 16)}] * 4
STATED = {
    "nothing": (),
    "pins": (Pin("params/0/u", '[{"a"}, {}]'), Pin("x", '[{"b", ?}, {?}]')),
    "a group": (SameSharding(["params/0/u", "params/1/u"]),),
}


def layers(params: Any, x: Any) -> Any:
    for w in params:
        x = x + jax.nn.relu(x @ w["u"]) @ w["d"] * x
    return jnp.tanh(x)


def built(stated: Any, **options: Any) -> Model:
    traced = trace(layers, LAYERS, f32(32, 16))
    mesh = {"a": 2, "b": 2}
    return build_model(ask(traced, mesh=mesh, hardware="tpu_v5e", constraints=stated, **options).problem, whole=True)


@pytest.mark.parametrize("stated", STATED.values(), ids=STATED)
def test_factored_tables_have_the_entries_of_whole_ones(monkeypatch: pytest.MonkeyPatch, stated: Any) -> None:
    whole = built(stated)
    monkeypatch.setattr(encode, "FACTORED_ENTRIES", 0)
    factored = built(stated)
    assert factored.repeats.network.is_factored and not whole.repeats.network.is_factored
    assert factored.encoded.rounding_s == whole.encoded.rounding_s
    for mine, other in (
        (factored.encoded.network, whole.encoded.network),
        (factored.repeats.network, whole.repeats.network),
    ):
        assert all(map(np.array_equal, mine.costs, other.costs))
        assert [(e.first, e.second) for e in mine.edges] == [(e.first, e.second) for e in other.edges]
        assert all(np.array_equal(np.asarray(e.costs), f.costs) for e, f in zip(mine.edges, other.edges, strict=True))


def test_factored_tables_give_a_plan_of_the_same_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = decide(built(()))
    monkeypatch.setattr(encode, "FACTORED_ENTRIES", 0)
    factored = decide(built(()))
    assert factored.objective_s == whole.objective_s
    assert factored.bound_s <= whole.objective_s
    assert factored.gap <= 1e-3


@pytest.mark.parametrize("less", [0.0, 0.05, 0.15])
def test_a_plan_of_a_factored_network_is_within_the_memory_limit(monkeypatch: pytest.MonkeyPatch, less: float) -> None:
    """Its bound, in which copies for one use hold nothing, is also one of the network that knows of them."""
    limit = int((1.0 - less) * decide(built(())).memory.peak_bytes)
    best = decide(built((), memory_limit=limit))
    monkeypatch.setattr(encode, "FACTORED_ENTRIES", 0)
    found = decide(built((), memory_limit=limit))
    assert found.memory.peak_bytes <= limit
    assert found.bound_s <= best.objective_s and found.objective_s >= best.bound_s
    assert found.proved is not None


def test_no_plan_of_a_factored_network_is_found_where_a_limit_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """What several decisions hold together is not worked out for networks of this kind, so that it is not proved."""
    peak = decide(built(())).memory.peak_bytes
    with pytest.raises(InfeasibleError):
        decide(built((), memory_limit=peak // 6))
    monkeypatch.setattr(encode, "FACTORED_ENTRIES", 0)
    with pytest.raises((NotFoundError, InfeasibleError)):
        decide(built((), memory_limit=peak // 6))


def test_that_all_plans_of_a_factored_network_hold_more_than_the_limit_is_proved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encode, "FACTORED_ENTRIES", 0)
    with pytest.raises(InfeasibleError) as refused:
        decide(built((), memory_limit=100))
    assert refused.value.proof is not None


@pytest.mark.parametrize("stated", [(), STATED["pins"]], ids=["nothing", "pins"])
def test_compiled_lengths_of_ways_are_those_of_dijkstra_to_the_last_bit(
    monkeypatch: pytest.MonkeyPatch, stated: Any
) -> None:
    plain = built(stated)
    monkeypatch.setattr(reshard, "MANY_LAYOUTS", 0)
    compiled = built(stated)
    assert plain.encoded.tables.keys() == compiled.encoded.tables.keys()
    for type_, table in plain.encoded.tables.items():
        other = compiled.encoded.tables[type_]
        assert np.array_equal(table.seconds, other.seconds)
        layouts = table.layouts[:: max(1, len(table.layouts) // 7)]
        assert all(table.path(a, b) == other.path(a, b) for a in layouts for b in layouts)
        assert np.array_equal(table.predecessors, other.predecessors)
