"""Large networks of repeated layers are kept once, in their quotient; what is told of them stays the same."""

import jax
import jax.numpy as jnp
import pytest
from plan_cases import f32

from autoshard.api.verbs import ask
from autoshard.frontends.jax.function import trace
from autoshard.planning import build_model, decide, model, price_of_sharing, sharing
from autoshard.planning.model import Model

PARAMS = [{"u": f32(16, 64), "d": f32(64, 16)}] * 4


def layers(params, x):
    for w in params:
        x = x + jax.nn.relu(x @ w["u"]) @ w["d"]
    return jnp.tanh(x)


def built(**options) -> Model:
    traced = trace(layers, PARAMS, f32(32, 16))
    return build_model(ask(traced, mesh={"a": 2, "b": 2}, hardware="tpu_v5e").problem, **options)


def test_a_large_network_of_all_layers_is_not_kept_and_decides_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = built()
    with monkeypatch.context() as small:
        small.setattr(model, "PRICED_ENTRIES", 10)
        left_out = built()
    assert kept.encoded.network.edges and not left_out.encoded.network.edges
    assert left_out.encoded.entries == kept.encoded.entries
    assert left_out.encoded.rounding_s == kept.encoded.rounding_s
    one, other = decide(kept), decide(left_out)
    assert (one.schedule, one.objective_s, one.bound_s) == (other.schedule, other.objective_s, other.bound_s)


def test_what_sharing_costs_is_worked_out_on_all_layers_where_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = built()
    decision = decide(kept)
    told = price_of_sharing(kept, decision)
    assert told is not None and told.price.bound_s is not None
    monkeypatch.setattr(model, "PRICED_ENTRIES", 10)
    monkeypatch.setattr(sharing, "PRICED_ENTRIES", 10)
    left_out = built()
    assert price_of_sharing(left_out, decision, always=True) == told
    silent = price_of_sharing(left_out, decision)
    assert silent is not None and silent.price.bound_s is None
    assert (silent.price.decisions, silent.price.shared) == (told.price.decisions, told.price.shared)
