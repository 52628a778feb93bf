"""The main job on real train steps: planned collectives are the executed ones, values are the unsharded run's.

Every model of the library on every mesh of eight devices; two of them by default, all fifteen with ``-m slow`` (and in
`experiments/main_job/`, which prints the figures).
"""

import jax
import pytest
from model_cases import MESHES, MODELS

import autoshard
from autoshard.models import build
from autoshard.verify.runs.collectives import UNCOMBINED, compare
from autoshard.verify.runs.hlo import hlo_collectives
from autoshard.verify.runs.numeric import numeric_check
from autoshard.verify.runs.stablehlo import stablehlo_collectives

BY_DEFAULT = {("mlp", "2x2x2"), ("transformer", "2x4")}
CASES = [
    pytest.param(model, mesh, id=f"{model}-{mesh}", marks=() if (model, mesh) in BY_DEFAULT else pytest.mark.slow)
    for model in MODELS
    for mesh in MESHES
]


def _model(name):
    kind, options = MODELS[name]
    return build(kind, **options)


def _plan(model, function, mesh, **options):
    # on the simulated machine communication is dear but worth it even at these sizes
    return autoshard.plan(
        function, *model.specs, mesh=MESHES[mesh], hardware="cpu_sim", argnames=model.argnames, **options
    )


@pytest.mark.parametrize(("name", "mesh"), CASES)
def test_planned_collectives_are_the_lowered_and_the_compiled_ones(name, mesh):
    model = _model(name)
    plan = _plan(model, model.step, mesh, donate_argnums=model.donate_argnums)
    lowered = plan.jit().lower(*model.specs)
    planned = plan.lowered.planned
    assert planned, "this case is meant to communicate"
    assert compare(planned, stablehlo_collectives(lowered.as_text()), plan.schedule.mesh) == []
    compiled = lowered.compile(compiler_options=dict(UNCOMBINED))
    assert compare(planned, hlo_collectives(compiled.as_text()), plan.schedule.mesh, dtypes=False) == []


@pytest.mark.parametrize(("name", "mesh"), CASES)
def test_loss_and_gradients_are_those_of_one_device(name, mesh):
    model = _model(name)

    def gradients(state, batch):
        return jax.value_and_grad(lambda params: model.loss({**state, "params": params}, batch))(state["params"])

    plan = _plan(model, gradients, mesh)
    report = numeric_check(plan.jit(), gradients, (model.init(0), next(model.batches(0))))
    assert report.ok, str(report)


@pytest.mark.parametrize("name", ["mlp"])
def test_steps_on_planned_devices_make_the_loss_fall(name):
    model = _model(name)
    plan = _plan(model, model.step, "2x4", donate_argnums=model.donate_argnums)
    step, state, batches = plan.jit(), model.init(0), model.batches(0)
    losses = []
    for _ in range(20):
        state, metrics = step(state, next(batches))
        losses.append(float(metrics["loss"]))
    assert losses[-1] < 0.5 * losses[0]
