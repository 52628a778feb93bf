"""With the same shardings of inputs and outputs a plan sends no more bytes than XLA's own partitioner does.

All models and meshes with ``-m slow``, and in `experiments/communication/`, which prints the figures.
"""

import jax
import pytest
from model_cases import MESHES, MODELS

import autoshard
from autoshard.models import build
from autoshard.verify.runs.hlo import hlo_collectives
from autoshard.verify.runs.traffic import moved_bytes, of_found

CASES = [
    pytest.param(model, mesh, marks=() if (model, mesh) == ("mlp", "2x4") else pytest.mark.slow)
    for model in MODELS
    for mesh in MESHES
]


@pytest.mark.parametrize(("name", "mesh"), CASES)
def test_a_plan_sends_no_more_than_xlas_partitioner(name, mesh):
    kind, options = MODELS[name]
    model = build(kind, **options)
    plan = autoshard.plan(model.step, *model.specs, mesh=MESHES[mesh], hardware="cpu_sim", argnames=model.argnames)

    def sent(jitted):
        return moved_bytes(
            of_found(hlo_collectives(jitted.lower(*model.specs).compile().as_text()), plan.schedule.mesh)
        )

    ours = sent(plan.jit())
    xlas = sent(jax.jit(model.step, in_shardings=plan.in_shardings, out_shardings=plan.out_shardings))
    assert 0 < ours <= xlas
