"""What plain data of a plan file must look like, checked before anything is made of it."""

from typing import Any

from autoshard.errors import InputError
from autoshard.program.program import Origin, Program
from autoshard.program.schedule import PROGRAM, Schedule, Use

Form = Any
"""A type, several in a tuple, ``[form]`` for a list of these, ``{"key": form}`` for an object (a key that may be
missing ends with ``?``), ``{str: form}`` for an object with any keys. `object` is anything."""

_BLOCK: dict[Any, Form] = {"args": [int], "results": [int]}
_RULE = {"text": str, "linear": [[int]], "accumulators": [int], "halos?": [list], "cutouts?": [list]}
_ATTRS = {
    "num_consts?": int, "num_carry?": int, "length?": int, "reverse?": bool, "cond_nconsts?": int,
    "body_nconsts?": int, "trips?": (int, None), "barrier_group?": int, "also?": [str], "zero?": bool, "ragged?": bool,
    "kernel?": dict, "window?": [int], "taps?": [int],
}  # fmt: skip
_BLOCK["ops"] = [
    {
        "id": int, "kind": str, "operands": [int], "results": [int], "source": str, "attrs": _ATTRS,
        "rule": (_RULE, None), "regions": [_BLOCK],
    }
]  # fmt: skip
PROGRAM_FORM: Form = {
    "name": str, "body": _BLOCK, "input_names": [str], "output_names": [str], "donated": [int], "warnings": [str],
    "values": [
        {"id": int, "name": str, "shape": [int], "dtype": str, "origin": str, "tags": [str], "literal": object}
    ],
    "host?": {"inputs?": [int], "outputs?": [int]}, "carried?": [[int]], "in_code?": str,
}  # fmt: skip
_STEPS = [{"kind": str, "atoms": [int], "dim": (int, None), "to_dim": (int, None)}]
SCHEDULE_FORM: Form = {
    "placements": {str: {"factors": [[int]], "passes": [list], "zeros": [int]}},
    "definitions": {str: {"dims": [[int]], "unreduced": [int]}},
    "shared": {str: _STEPS},
    "uses": [{"op": int, "slot": int, "region": (int, None), "steps": _STEPS}],
    "as_used?": [int],
}

_WORDS = {
    int: "a whole number", float: "a number", str: "text", bool: "true or false", list: "a list", dict: "an object",
    None: "null",
}  # fmt: skip


def check_form(data: Any, form: Form, path: str) -> None:
    """`InputError` that names the place in the plan where `data` is of another form."""
    if isinstance(form, tuple):
        form = next((one for one in form if _is_of_kind(data, one)), form[0])
    if not _is_of_kind(data, form):
        shown = repr(data)[:60]
        raise InputError(f"the plan is damaged: {path} is {shown}, expected {_WORDS[_kind(form)]}")
    if isinstance(form, list):
        if set(map(type, data)) <= {form[0]} if isinstance(form[0], type) else not data:
            return  # the most of a plan: lists of numbers
        for number, item in enumerate(data):
            check_form(item, form[0], f"{path}.{number}")
    elif isinstance(form, dict) and str in form:
        for key, item in data.items():
            check_form(item, form[str], f"{path}.{key}")
    elif isinstance(form, dict):
        for key, inner in form.items():
            name = key.removesuffix("?")
            if name in data:
                if type(data[name]) is not inner:  # else that is all there is to say of it
                    check_form(data[name], inner, f"{path}.{name}")
            elif name == key:
                raise InputError(f"the plan is damaged: {path} has no {name}")


def _kind(form: Form) -> Any:
    return list if isinstance(form, list) else dict if isinstance(form, dict) else form


def _is_of_kind(data: Any, form: Form) -> bool:
    kind = _kind(form)
    if kind is None:
        return data is None
    return isinstance(data, kind) and not (kind is int and isinstance(data, bool))


def check_schedule(program: Program, schedule: Schedule) -> None:
    """`InputError` unless outputs have forms, values that are moved as used have shared ones that are gathered, and ops
    that the planner places have a list of known atoms for each factor.
    """
    for value in sorted(schedule.as_used):
        shared = schedule.shared.get(value)
        if shared is None or not shared.target.is_gathered_from(shared.source):
            raise InputError(f"plan: value {value} is said to be gathered as it is used, and has no gathered form")
    made = [k for k, v in enumerate(program.body.results) if program.values[v].origin is not Origin.LITERAL]
    if missing := {Use(PROGRAM, k) for k in made} - set(schedule.uses):
        raise InputError(f"plan: there is no form of the output of {min(missing)}")
    for op, outer in program.walk():
        if op.rule is None or any(o.kind == "shard_map" for o in outer):
            continue
        placement = schedule.placements.get(op.id)
        if placement is None:
            raise InputError(f"plan: there is no placement of {op.kind}:{op.id}")
        atoms = [a for f in placement.factors for a in f]
        known = range(len(schedule.mesh.atoms))
        if len(placement.factors) != len(op.rule.factor_sizes) or any(a not in known for a in atoms):
            raise InputError(f"plan: the placement of {op.kind}:{op.id} does not fit its rule {op.rule} and the mesh")
