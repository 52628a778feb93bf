"""One's way in a plan.json: its ops, uses, steps, layouts, placements, rules."""

from collections.abc import Callable, Iterator
from typing import Any

Json = dict[str, Any]


def ops(plan: Json, kind: str = "") -> Iterator[Json]:
    def visit(block: Json) -> Iterator[Json]:
        for op in block["ops"]:
            yield op
            for region in op["regions"]:
                yield from visit(region)

    return (op for op in visit(plan["program"]["body"]) if op["kind"].startswith(kind))


def uses(plan: Json, step: str = "") -> Iterator[Json]:
    return (u for u in plan["schedule"]["uses"] if not step or any(s["kind"] == step for s in u["steps"]))


def first_step(plan: Json, kind: str) -> Json:
    return next(s for u in uses(plan, kind) for s in u["steps"] if s["kind"] == kind)


def collective(plan: Json, kind: str) -> Json:
    return next(c for c in plan["collectives"] if c["kind"] == kind)


def value(plan: Json, name: str) -> int:
    return next(v["id"] for v in plan["program"]["values"] if v["name"] == name)


def layout(plan: Json, name: str) -> Json:
    return plan["schedule"]["definitions"][str(value(plan, name))]


def placement(plan: Json, test: Callable[[Json], bool]) -> Json:
    return next(p for p in plan["schedule"]["placements"].values() if test(p))


def rule_of(plan: Json, kind: str, has: str = "") -> Json:
    return next(op["rule"] for op in ops(plan, kind) if has in op["rule"]["text"])


def statement(plan: Json, kind: str, of: str = "") -> Json:
    return next(s for s in plan["statements"] if s["kind"] == kind and of in str(s.get("pattern", s.get("patterns"))))


def settings(plan: Json) -> Json:
    return plan["config"]["settings"]
