"""Is it the plan that was asked for? What was asked for, as plain data, is compared with what the plan says.

Each finding is in the user's words: what was asked, what is found in the plan, and what to try.
"""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any

from autoshard.costmodels import Machine
from autoshard.verify.plan.layout import read_atoms
from autoshard.verify.plan.machine import check_machine
from autoshard.verify.plan.program import Findings
from autoshard.verify.plan.stages import ended_early

TRY = "solve again, or verify the plan with what it was made for"
_NAMING = {True: "with the name of a strategy or rules", False: "of a priority, without a name"}
_HINTS = "in code"
"""The name of the baseline made of the shardings in the code."""
_OPTIONS = ("effort", "seed", "accepted_gap", "share_repeats")
"""Options of the search that are compared where a plan tells them."""
_SERIAL = "serial"
"""What a plan minimises that tells no objective: those of versions that knew no other."""
_NOT_COMPARED = ("source",)
"""Keys of statements that are not compared: the config in a plan has lost its line numbers."""


def check_asked(plan: Mapping[str, Any], asked: Mapping[str, Any], findings: Findings) -> list[str]:
    """Compare a plan with what was asked for (the result of `verify.asked.derive`); differences go to `findings`.

    Returns lines for people: what was compared, and what is taken on trust.
    """
    left = _check_ground(plan, asked, findings)
    _check_priorities(plan, asked, findings)
    _check_stages(plan, asked, findings)
    _check_baselines(plan, asked, findings)
    strategy = plan.get("strategy")
    if strategy != asked["strategy"] and not (strategy is None and ended_early(plan)):
        _differ(findings, "strategy", asked["strategy"] or "by cost", strategy or "by cost")
    if plan.get("sharing") is not None and not asked["shares"]:
        _differ(findings, "sharing", "every layer decides for itself", "layers that share their decisions")
    if asked.get("roles") is not None and not any(change["program"] for change in plan.get("changed") or ()):
        batch = _batch(plan["program"], asked["roles"])
        if plan.get("batch") != batch:
            _differ(findings, "program", f"a batch of {batch}", str(plan.get("batch")))
    limit, peak = asked["memory_limit"], plan["memory"]["peak_bytes"]
    exceeds = limit["from"] == "stated" and limit["bytes"] is not None and peak > limit["bytes"]
    if plan.get("memory_limit") is None and exceeds:
        _differ(findings, "memory", f"a limit of {_limit_text(asked['memory_limit'])}", f"a peak of {peak} bytes")
    return [
        f"{len(asked['statements'])} statements, mesh {_mesh_text(asked['axes'])}, machine "
        f"{asked['machine']['profile']['name']} and {len(asked['stages'])} stages follow from {asked['source']}",
        *(f"asked beside that, as the plan records it: {line}" for line in asked["changed"]),
        *(f"taken on trust: {line}" for line in (*asked["trust"], *left, *_not_told(plan))),
    ]


def _batch(program: Mapping[str, Any], roles: Mapping[str, Sequence[str | None]]) -> float | None:
    """Rows, and tokens where there is a sequence, of the largest input with a batch; None where none has one."""
    sizes = []
    for name, value in zip(program["input_names"], program["body"]["args"], strict=False):
        axes = next((axes for pattern, axes in roles.items() if pattern[:1] != "@" and fnmatchcase(name, pattern)), ())
        if "batch" in axes:
            shape = program["values"][value]["shape"]
            sizes.append(float(prod(n for n, axis in zip(shape, axes, strict=True) if axis in ("batch", "seq"))))
    return max(sizes, default=None)


def check_refused(refusal: Mapping[str, Any], asked: Mapping[str, Any], findings: Findings) -> list[str]:
    """Compare what a refusal says it was asked for with what was asked for, as `check_asked` does for a plan.

    Parts of axes and words on the machine, which `check_plan` looks at in a plan, are looked at here.
    """
    atoms, faults = read_atoms(refusal["mesh"])
    for fault in faults:
        findings.add("mesh", fault)
    check_machine(refusal, Machine.from_dict(refusal["hardware"]["machine"]), dict(atoms.whole), findings)
    left = _check_ground(refusal, asked, findings)
    return [
        f"{len(asked['statements'])} statements, mesh {_mesh_text(asked['axes'])} and machine "
        f"{asked['machine']['profile']['name']} follow from {asked['source']}",
        *(f"taken on trust: {line}" for line in (*asked["trust"], *left, *_not_told(refusal))),
    ]


def _check_ground(plan: Mapping[str, Any], asked: Mapping[str, Any], findings: Findings) -> list[str]:
    """What plans and refusals have alike; returns the statements that are taken on trust, in words."""
    _check_mesh(plan, asked, findings)
    _check_machine(plan, asked, findings)
    left = _check_statements(plan, asked, findings)
    _check_memories(plan, asked, findings)
    limit, options = plan.get("memory_limit"), plan.get("options") or {}
    if limit is not None and limit != asked["memory_limit"]:
        _differ(findings, "memory", f"a limit of {_limit_text(asked['memory_limit'])}", _limit_text(limit))
    told = {"objective": _SERIAL, **options}
    for key in sorted(asked["options"].keys() & told.keys()):
        if told[key] != asked["options"][key]:
            _differ(findings, "options", f"{key} {asked['options'][key]}", str(told[key]))
    if plan["trips"] != asked["trips"]:
        _differ(findings, "program", f"loops of unknown length run {asked['trips']} time", f"{plan['trips']} times")
    return left


def _not_told(plan: Mapping[str, Any]) -> Iterator[str]:
    """What the plan does not say, because an earlier version made it."""
    if plan.get("memory_limit") is None:
        yield "which memory limit the plan was made for: it says none"
    left = [key for key in _OPTIONS if (plan.get("options") or {}).get(key) is None]
    if left:
        yield f"options of the search that the plan does not tell: {', '.join(left)}"


def _differ(findings: Findings, topic: str, asked: str, found: str, hint: str = TRY) -> None:
    findings.add(topic, f"asked: {asked}; found in the plan: {found}; {hint}")


def _limit_text(limit: Mapping[str, Any]) -> str:
    amount = "no bytes at all (lifted)" if limit.get("bytes") is None else f"{limit['bytes']} bytes per device"
    return amount + (", for which the device has room" if limit.get("from") == "device" else "")


# -- mesh and machine --------------------------------------------------------------------------------


def _mesh_text(axes: Mapping[str, int]) -> str:
    return " x ".join(f"{name}={size}" for name, size in axes.items())


def _check_mesh(plan: Mapping[str, Any], asked: Mapping[str, Any], findings: Findings) -> None:
    mesh = plan["mesh"]
    if list(mesh["axes"].items()) != list(asked["axes"].items()):
        _differ(findings, "mesh", f"axes {_mesh_text(asked['axes'])}", _mesh_text(mesh["axes"]))
        return
    if mesh["name"] != asked["mesh"]:
        _differ(findings, "mesh", f"the name {asked['mesh']!r}", repr(mesh["name"]))
    atoms, _ = read_atoms(mesh)
    for axis, parts in asked["sub_axes"].items():
        sizes = [size for name, size in zip(atoms.axes, atoms.sizes, strict=True) if name == axis]
        if not set(accumulate(parts, mul)) <= {1, *accumulate(sizes, mul)}:
            told = [", ".join(map(str, listed)) for listed in (parts, sizes)]
            _differ(findings, "mesh", f"{axis} in parts of {told[0]}", told[1])
    if "device_ids" not in asked:
        return
    count = prod(mesh["axes"].values())
    wanted, found = (list(ids or range(count)) for ids in (asked["device_ids"], mesh["device_ids"]))
    if wanted != found:
        _differ(
            findings, "mesh", f"devices in the order {_order_text(wanted)}", _order_text(found),
            "make the mesh with that order of devices, or " + TRY,
        )  # fmt: skip


def _order_text(ids: Sequence[int]) -> str:
    if list(ids) == list(range(len(ids))):
        return f"0 to {len(ids) - 1}"
    return "[" + ", ".join(map(str, ids[:16])) + (", ...]" if len(ids) > 16 else "]")


def _check_machine(plan: Mapping[str, Any], asked: Mapping[str, Any], findings: Findings) -> None:
    wanted, found = asked["machine"], plan["hardware"]["machine"]
    names = [machine["profile"]["name"] for machine in (wanted, found)]
    if names[0] != names[1]:
        _differ(findings, "hardware", names[0], names[1])
        return
    where = _first_difference(wanted, found)
    if where is not None:
        path, asked_there, found_there = where
        _differ(
            findings, "hardware", f"{names[0]} with {path} {_short(asked_there)}", _short(found_there),
            "if the profile has changed since, solve again",
        )  # fmt: skip


def _first_difference(asked: Any, found: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """Where plain data first differ: the path, and both sides there; None where they are equal."""
    if isinstance(asked, Mapping) and isinstance(found, Mapping):
        for key in sorted(asked.keys() | found.keys()):
            where = _first_difference(asked.get(key), found.get(key), f"{path}.{key}" if path else str(key))
            if where is not None:
                return where
        return None
    if isinstance(asked, list) and isinstance(found, list) and len(asked) == len(found):
        for k, (a, b) in enumerate(zip(asked, found, strict=True)):
            where = _first_difference(a, b, f"{path}[{k}]")
            if where is not None:
                return where
        return None
    return None if asked == found else (path, asked, found)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 120 else text[:117] + "..."


# -- statements --------------------------------------------------------------------------------------


def words(statement: Mapping[str, Any]) -> str:
    """A statement of plan.json in the user's words."""
    kind = statement["kind"]
    if kind == "pin":
        rank = f" (priority {statement['priority']})" if statement.get("priority") else ""
        if statement.get("mesh"):
            return f"pin {statement['pattern']}{rank}: {statement['stated']} on {statement['mesh']}"
        return f"pin {statement['pattern']}{rank}: {statement['sharding']}"
    if kind == "same_sharding":
        return f"same sharding: {', '.join(statement['patterns'])}"
    if kind == "memory_limit":
        return f"memory limit {statement['bytes']} bytes per device"
    if kind == "host_memory_limit":
        return f"limit of {statement['bytes']} bytes of pinned_host"
    return str(statement.get("text", kind))


def _plain(statement: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in statement.items() if key not in _NOT_COMPARED}


def _alike(statement: Mapping[str, Any]) -> tuple[Any, ...]:
    """A key that is equal for two statements of which one is taken for a changed form of the other."""
    kind = statement["kind"]
    if kind == "pin":
        return kind, statement["pattern"]
    if kind in ("memory_limit", "host_memory_limit"):
        return (kind,)
    return kind, str(statement.get("patterns", statement.get("op")))


def _check_statements(plan: Mapping[str, Any], asked: Mapping[str, Any], findings: Findings) -> list[str]:
    """Each statement is once on both sides; returns those of the plan that are taken on trust, in words."""
    unmatched = list(plan["statements"])
    missing = []
    for wanted in asked["statements"]:
        same = next((s for s in unmatched if _plain(s) == _plain(wanted)), None)
        if same is None:
            missing.append(wanted)
        else:
            unmatched.remove(same)
    trusted = [s for s in unmatched if _of_argument(s)] if "sharded_arguments" in asked else []
    unmatched = [s for s in unmatched if s not in trusted]
    for same_kind in (_alike, lambda s: s["kind"]):  # first a changed form of the statement, then any of its kind
        for wanted in list(missing):
            other = next((s for s in unmatched if same_kind(s) == same_kind(wanted)), None)
            if other is not None:
                missing.remove(wanted)
                unmatched.remove(other)
                _changed(wanted, other, plan, findings)
    for wanted in missing:
        _differ(findings, "statements", words(wanted), "no such statement")
    for other in unmatched:
        _differ(findings, "statements", "nothing like it", words(other))
    return [f"{words(s)}: the sharding that an argument came with" for s in trusted]


def _of_argument(statement: Mapping[str, Any]) -> bool:
    return statement["kind"] == "pin" and str(statement.get("source", "")).startswith("argument ")


def _changed(wanted: Mapping[str, Any], other: Mapping[str, Any], plan: Mapping[str, Any], findings: Findings) -> None:
    """Add a finding about a statement that the plan has in another form."""
    ours, theirs = words(wanted), words(other)
    if ours == theirs:
        key = next(k for k in sorted({*wanted, *other} - {*_NOT_COMPARED}) if wanted.get(k) != other.get(k))
        program = plan["program"]
        names: Any = {"values": [v["name"] for v in program["values"]], "outputs": program["output_names"]}
        ours += f" ({key}: {_listed(wanted.get(key), names.get(key))})"
        theirs += f" ({key}: {_listed(other.get(key), names.get(key))})"
    _differ(findings, "statements", ours, theirs)


def _listed(value: Any, names: Sequence[str] | None) -> str:
    if names is not None and isinstance(value, list):
        return _named([v for v in value if isinstance(v, int)], names)
    return _short(value)


# -- the rest ----------------------------------------------------------------------------------------


def _check_memories(plan: Mapping[str, Any], asked: Mapping[str, Any], findings: Findings) -> None:
    """Compare what lives on the host or in another order of the devices, and what is carried and donated."""
    program = plan["program"]
    names = {"inputs": program["input_names"], "outputs": program["output_names"]}
    host = program.get("host", {})
    for side in ("inputs", "outputs"):
        wanted, found = set(asked["host"][side]), set(host.get(side, ()))
        if wanted != found:
            _differ(
                findings, "memory", f"{side} on the host: {_named(wanted, names[side])}", _named(found, names[side])
            )
    if program.get("orders", []) != asked["orders"]:
        count = len(asked["orders"]), len(program.get("orders", []))
        where = _first_difference(asked["orders"], program.get("orders", []))
        what = f"{count[0]} values in another order of the devices"
        if count[0] == count[1] and where is not None:
            _differ(findings, "mesh", f"{what}, {where[0]} {_short(where[1])}", _short(where[2]))
        else:
            _differ(findings, "mesh", what, f"{count[1]} of them")
    if program.get("in_code", "hard") != asked["in_code"]:
        _differ(findings, "statements", f"in_code={asked['in_code']!r}", f"in_code={program.get('in_code', 'hard')!r}")
    if program.get("carried", []) != asked["carried"]:
        pairs = [
            [f"{names['outputs'][slot]} from {names['inputs'][number]}" for slot, number in listed]
            for listed in (asked["carried"], program.get("carried", []))
        ]
        _differ(findings, "carry", *(f"carried {', '.join(told[:6]) or 'nothing'}" for told in pairs))
    if "donated" in asked and list(program["donated"]) != asked["donated"]:
        _differ(
            findings, "donation", f"donated {_named(asked['donated'], names['inputs'])}",
            _named(program["donated"], names["inputs"]),
        )  # fmt: skip


def _named(numbers: Any, names: Sequence[str]) -> str:
    listed = [str(names[k]) if 0 <= k < len(names) else f"number {k}" for k in sorted(numbers)]
    return ", ".join(listed[:8]) + (f" and {len(listed) - 8} more" if len(listed) > 8 else "") or "nothing"


def _check_priorities(plan: Mapping[str, Any], asked: Mapping[str, Any], findings: Findings) -> None:
    """Compare the named strategies that make stages, and what the plan tells of them."""
    priorities = plan.get("priorities") or {}
    if not asked["names"]:
        if priorities:
            _differ(findings, "priorities", "no strategies by name", _short(priorities.get("names")))
        return
    if not priorities:
        if not ended_early(plan):
            _differ(findings, "priorities", _short(asked["names"]), "none")
        return
    for key, wanted in (("names", asked["names"]), ("slow", asked["slow"]), ("roles", asked.get("roles"))):
        if wanted is not None and priorities.get(key) != wanted:
            where = _first_difference(wanted, priorities.get(key)) or (key, wanted, priorities.get(key))
            _differ(findings, "priorities", f"{key} {where[0]} {_short(where[1])}".strip(), _short(where[2]))


def _check_baselines(plan: Mapping[str, Any], asked: Mapping[str, Any], findings: Findings) -> None:
    """Every baseline that was asked for is there, and no other but the hints in the code. Questions price none."""
    if "baselines" not in asked or plan.get("changed"):
        return
    told = [baseline["name"] for baseline in plan["baselines"]]
    missing = [name for name in dict.fromkeys(asked["baselines"]) if name not in told]
    if missing and plan.get("mesh_search") is None and not ended_early(plan):
        _differ(findings, "baselines", ", ".join(missing), ", ".join(told) or "none")
    other = [name for name in told if name not in (*asked["baselines"], _HINTS)]
    if other:
        _differ(findings, "baselines", "nothing like it", ", ".join(other))
    if len(set(told)) < len(told):
        _differ(findings, "baselines", "each one once", ", ".join(told))


def _check_stages(plan: Mapping[str, Any], asked: Mapping[str, Any], findings: Findings) -> None:
    """Compare the stages: one for each priority or named strategy, with its statements and axes."""
    stages, wanted = plan.get("stages") or [], asked["stages"]
    if not stages and wanted and ended_early(plan):
        return
    if len(stages) != len(wanted):
        _differ(findings, "stages", f"{len(wanted)} stages", str(len(stages)))
        return
    single = {name for name, size in plan["mesh"]["axes"].items() if size == 1}
    for number, (stage, said) in enumerate(zip(stages, wanted, strict=True)):
        what = f"stage {number}"
        if bool(stage["name"]) != bool(asked["names"]):
            _differ(findings, "stages", f"{what} {_NAMING[bool(asked['names'])]}", f"the name {stage['name']!r}")
        if stage["priority"] != said["priority"]:
            _differ(findings, "stages", f"{what} of priority {said['priority']}", str(stage["priority"]))
        if "axes" in said and [a for a in stage["axes"] if a not in single] != [
            a for a in said["axes"] if a not in single
        ]:
            _differ(findings, "stages", f"{what} places {', '.join(said['axes'])}", ", ".join(stage["axes"]))
        if "statements" in said:
            told, due = list(stage["statements"]), list(said["statements"])
            # in the plan each statement begins with the place where it was written
            if len(told) != len(due) or not all(t.endswith(d) for t, d in zip(told, due, strict=True)):
                _differ(findings, "stages", f"{what} is of {'; '.join(due)}", "; ".join(told))
