"""Pages about plans: what a page shows, and prices of what was not chosen, for which other rooms are asked."""

from collections.abc import Mapping, Sequence
from typing import Any

from autoshard.plan_record import PlanRecord
from autoshard.report.view.search import SearchPoint

Alternatives = Mapping[str, Sequence[Mapping[str, Any]]]
"""By the name of a value: other shardings of it and what they cost."""


def page(
    plans: Sequence[PlanRecord],
    names: Sequence[str],
    searches: Sequence[Sequence[SearchPoint]] = (),
    alternatives: Sequence[Alternatives] = (),
) -> str:
    """The HTML page about plans."""
    from autoshard.report import summary
    from autoshard.report.page import report_page
    from autoshard.report.page.content import plan_content

    contents = [
        {**plan_content(plan, name=name, search=searches[k] if searches else ()),
         "alternatives": dict(alternatives[k]) if alternatives else {}}
        for k, (plan, name) in enumerate(zip(plans, names, strict=True))
    ]  # fmt: skip
    return report_page(contents, summaries=[summary(plan.to_dict(), width=100) for plan in plans])


def largest(plan: PlanRecord, most: int) -> Alternatives:
    """Prices of other shardings of the inputs that take most memory on a device."""
    if most <= 0:
        return {}
    from autoshard.costs.memory import sizes
    from autoshard.questions.alternatives import Alternatives as Priced

    size, definitions = sizes(plan.program, plan.schedule.mesh), plan.schedule.definitions
    inputs = plan.program.body.args[: len(plan.program.input_names)]
    first = sorted(inputs, key=lambda value: (-size(value, definitions[value]), value))[:most]
    priced = Priced(plan)
    return {plan.program.values[value].name: [other.to_dict() for other in priced.of(value)] for value in first}
