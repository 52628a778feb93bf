"""The check of a plan that runs as sharding constraints, or as shardings of inputs and outputs alone: XLA decides the
collectives, the layouts that are stated are the plan's."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autoshard.errors import AutoshardError
from autoshard.verify.report import Check, Status, failed, not_done, ok
from autoshard.verify.runs.collectives import Planned
from autoshard.verify.runs.hlo import hlo_collectives
from autoshard.verify.runs.traffic import ON_CPU, changes, moved_bytes, of_found, of_planned

if TYPE_CHECKING:
    from autoshard.lowering.lower import Lowered

FORM = "the form in which the plan runs"
SLOWER = 1.01
"""How much slower than the other a form may be by the plan's own figures."""


def check_form(
    form: Mapping[str, Any],
    lowered: "Lowered",
    planned: Sequence[Planned],
    results: Callable[[Callable[..., Any]], Check],
) -> Check:
    """The check of the ``form`` of a plan.json. results: compares those of a function with one device's.

    Written-out collectives have checks of their own. In other forms the program is compiled and run: inputs and outputs
    have the plan's shardings, results are those of one device. Its collectives are XLA's: they are counted, not judged.
    """
    seconds = form.get("seconds") or {}
    slow = seconds and seconds.get(form["form"], float("inf")) > SLOWER * min(seconds.values())
    if slow:
        return failed(
            FORM, [f"{form['form']} was chosen, and is not the quickest by the plan's own figures: {seconds}"]
        )
    if form["form"] == "explicit":
        return ok(FORM, ["collectives written out, see above"])
    import jax

    if lowered.schedule.mesh.mesh.size > jax.device_count():
        return not_done(FORM, f"the mesh has {lowered.schedule.mesh.mesh.size} devices, JAX sees {jax.device_count()}")
    from autoshard.lowering.constrained import constrained_function

    mesh = lowered.jax_mesh()
    inside, outside = lowered.in_shardings_on(mesh), lowered.out_shardings_on(mesh)
    function = constrained_function(lowered, mesh, inside=form["form"] != "shardings")
    run = jax.jit(function, in_shardings=inside, out_shardings=outside)
    traced = lowered.traced
    specs = jax.tree.unflatten(traced.in_tree, traced.in_types)
    try:
        compiled = run.lower(*specs).compile()
    except AutoshardError as error:
        return failed(FORM, [f"cannot be lowered as {form['form']}: {error}"])
    wrong = [
        f"{side}: {_differing(theirs, ours, types)} of {len(types)} are not sharded as planned"
        for side, theirs, ours, types in (
            ("inputs", compiled.input_shardings[0], inside, traced.in_types),
            ("outputs", compiled.output_shardings, outside, jax.tree.leaves(jax.eval_shape(run, *specs))),
        )
        if _differing(theirs, ours, types)
    ]
    if wrong:
        return failed(FORM, wrong)
    same = results(run)
    if same.status is not Status.OK:
        return Check(FORM, same.status, same.lines)
    computed = ON_CPU if jax.default_backend() == "cpu" else None
    before = of_planned(planned, lowered.schedule.mesh, computed)
    after = of_found(hlo_collectives(compiled.as_text() or ""), lowered.schedule.mesh, computed)
    found = changes(before, after)
    counts = ", ".join(
        f"{sum(c.times for c in found if c.what == what)} {what}" for what in ("kept", "changed", "dropped", "added")
    )
    return ok(
        FORM,
        [
            *same.lines,
            "inputs and outputs are sharded as planned",
            f"collectives are XLA's own: of {before.total()} planned {counts}; a device sends "
            f"{moved_bytes(after):,.0f} bytes, planned {moved_bytes(before):,.0f}",
        ],
    )


def _differing(found: Any, planned: Any, types: Sequence[Any]) -> int:
    """How many shardings of leaves are not the planned ones."""
    import jax

    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(planned), types, strict=True)
    return sum(not ours.is_equivalent_to(theirs, len(t.shape)) for ours, theirs, t in pairs)
