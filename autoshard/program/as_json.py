"""plan.json: programs and schedules as JSON, and back; docs/architecture.md describes the whole file."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple
from numbers import Integral, Real
from types import NoneType
from typing import Any

import numpy as np

from autoshard.errors import AutoshardError, InputError, in_words
from autoshard.garbage import uncollected
from autoshard.program.choices import in_code_from_json, loop_parts_from_json
from autoshard.program.forms import PROGRAM_FORM, SCHEDULE_FORM, check_form, check_schedule
from autoshard.program.program import Block, Op, Origin, OtherOrder, Program, Value
from autoshard.program.rule import Cutout, Halo, ShardingRule, rule_from_text
from autoshard.program.schedule import Placement, Schedule, Use
from autoshard.program.types import TensorType
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.steps import Reshard, Step, StepKind, replay

FORMAT = "autoshard-plan"
REFUSAL = "autoshard-refusal"
VERSION = 1

Json = dict[str, Any]


def plain(value: Any) -> Any:
    """JSON-able copy of attribute data: tuples become lists, sets sorted lists, numbers of numpy those of Python,
    unknown objects text.
    """
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((plain(v) for v in value), key=repr)
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [plain(v) for v in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.bool_ | Integral):
        return bool(value) if isinstance(value, np.bool_) else int(value)
    if isinstance(value, Real):
        return float(value)
    return str(value)


def _literal(value: Any) -> Any:
    """Scalars as JSON: NaN and infinities as text, complex as a pair."""
    if isinstance(value, complex):
        return {"complex": [repr(value.real), repr(value.imag)]}
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"float": repr(value)}
    return value


def _unliteral(value: Any) -> Any:
    if isinstance(value, dict):
        if "complex" in value:
            return complex(float(value["complex"][0]), float(value["complex"][1]))
        return float(value["float"])
    return value


# -- program -----------------------------------------------------------------------------------------


def program_to_json(program: Program) -> Json:
    """The ``program`` of plan.json; docs/architecture.md describes its keys."""
    return {
        "name": program.name,
        "values": [
            {
                "id": v.id, "name": v.name, "shape": list(v.type.shape), "dtype": v.type.dtype,
                "origin": v.origin.value, "tags": list(v.tags), "literal": _literal(v.literal),
            }
            for v in program.values
        ],
        "body": _block_to_json(program.body),
        "input_names": list(program.input_names),
        "output_names": list(program.output_names),
        "donated": sorted(program.donated),
        **({} if not program_on_host(program) else {"host": program_on_host(program)}),
        **({"orders": [plain(asdict(o)) for o in program.orders]} if program.orders else {}),
        **({"carried": [list(pair) for pair in program.carried]} if program.carried else {}),
        **({} if program.in_code == "hard" else {"in_code": program.in_code}),
        **({"loop_parts": list(program.loop_parts)} if program.loop_parts else {}),
        "warnings": list(program.warnings),
    }  # fmt: skip


def program_on_host(program: Program) -> Json:
    """The numbers of the inputs and of the outputs that live in host memory; empty where none do."""
    numbers = {"inputs": sorted(program.host_inputs), "outputs": sorted(program.host_outputs)}
    return numbers if any(numbers.values()) else {}


def _block_to_json(block: Block) -> Json:
    return {"args": list(block.args), "results": list(block.results), "ops": [_op_to_json(op) for op in block.ops]}


def _op_to_json(op: Op) -> Json:
    rule = None
    if op.rule is not None:
        rule = {
            "text": op.rule.to_text(),
            "linear": [list(s) for s in op.rule.linear],
            "accumulators": list(op.rule.accumulators),
        }
        if op.rule.halos:
            rule["halos"] = [[h.operand, h.dim, h.factor, h.low, h.high] for h in op.rule.halos]
        if op.rule.cutouts:
            rule["cutouts"] = [list(astuple(c)) for c in op.rule.cutouts]
    return {
        "id": op.id, "kind": op.kind, "operands": list(op.operands), "results": list(op.results), "source": op.source,
        "attrs": plain(op.attrs), "rule": rule, "regions": [_block_to_json(r) for r in op.regions],
    }  # fmt: skip


def _numbers(numbers: Any, count: int, what: str) -> frozenset[int]:
    """Numbers of inputs, or outputs, of which there are `count`."""
    if not all(type(k) is int and 0 <= k < count for k in numbers):
        raise InputError(f"plan: {what} {_short(numbers)}, there are {count}")
    return frozenset(numbers)


def orders_from_json(program: Json) -> tuple[OtherOrder, ...]:
    """Values that lie in another order of the devices, from the program of a plan file."""
    return tuple(_order_from_json(o) for o in program.get("orders", ()))


def carried_from_json(program: Json) -> tuple[tuple[int, int], ...]:
    """Pairs (output, input) of carried state, from the program of a plan file."""
    sizes = len(program["output_names"]), len(program["input_names"])
    for pair in program.get("carried", ()):
        if len(pair) != 2 or not all(isinstance(k, int) and 0 <= k < n for k, n in zip(pair, sizes, strict=True)):
            raise InputError(f"plan: {_short(pair)} is no pair of an output and an input")
    return tuple((slot, number) for slot, number in program.get("carried", ()))


def _order_from_json(data: Json) -> OtherOrder:
    moves = tuple(data["moves"])
    if data["where"] not in ("input", "output", "value") or sorted(moves) != list(range(len(moves))):
        raise InputError(f"plan: {_short(data)} is no order of devices")
    return OtherOrder(data["where"], data["index"], data["sharding"], moves, data["mesh"], data["stated"])


def program_from_json(data: Json) -> Program:
    """The inverse of `program_to_json`; `InputError` for ids, names, shapes or regions that cannot be."""
    check_form(data, PROGRAM_FORM, "program")
    values = tuple(
        Value(
            v["id"], v["name"], TensorType(tuple(v["shape"]), v["dtype"]), Origin(v["origin"]), tuple(v["tags"]),
            _unliteral(v["literal"]),
        )
        for v in data["values"]
    )  # fmt: skip
    for index, value in enumerate(values):
        if value.id != index:
            raise InputError(f"plan: value {index} has id {_short(value.id)} and name {_short(value.name)}")
        if not all(0 <= n < 2**63 for n in value.type.shape):
            raise InputError(f"plan: value {value.name} has the shape {_short(value.type.shape)}")
    inputs, outputs = (
        _numbers(data.get("host", {}).get(key, []), len(data[names]), f"host memory holds {key}")
        for key, names in (("inputs", "input_names"), ("outputs", "output_names"))
    )
    program = Program(
        data["name"], values, _block_from_json(data["body"]), tuple(data["input_names"]), tuple(data["output_names"]),
        _numbers(data["donated"], len(data["input_names"]), "donated are inputs"), tuple(data["warnings"]),
        inputs, outputs, orders_from_json(data), carried_from_json(data), in_code_from_json(data),
        loop_parts_from_json(data),
    )  # fmt: skip
    _check_graph(program)
    return program


def _check_graph(program: Program) -> None:
    """`InputError` unless ops and blocks name values that exist, and every op has a rule or regions."""
    body = program.body
    if len(body.args) < len(program.input_names) or len(body.results) != len(program.output_names):
        raise InputError("plan: the program has not the arguments and results that it names")
    ids = set(range(len(program.values)))
    named = [*body.args, *body.results]
    for op, _ in program.walk():
        named += [*op.operands, *op.results, *(v for r in op.regions for v in (*r.args, *r.results))]
        if op.rule is None and not op.regions:
            raise InputError(f"plan: {op.kind}:{op.id} has neither a rule nor regions")
    if wrong := [v for v in named if v not in ids]:
        raise InputError(f"plan: the program has no value {_short(wrong[0])}")


def _block_from_json(data: Json) -> Block:
    return Block(tuple(data["args"]), tuple(_op_from_json(op) for op in data["ops"]), tuple(data["results"]))


def _op_from_json(data: Json) -> Op:
    return Op(
        data["id"], data["kind"], tuple(data["operands"]), tuple(data["results"]), _rule_from_json(data["rule"]),
        data["source"], data["attrs"], tuple(_block_from_json(r) for r in data["regions"]),
    )  # fmt: skip


def _rule_from_json(data: Json | None) -> ShardingRule | None:
    if data is None:
        return None
    rule = rule_from_text(data["text"])
    return ShardingRule(
        rule.factor_sizes, rule.operands, rule.results, rule.reduction, rule.need_replication, rule.permutation,
        rule.blocked, rule.combiner, tuple(tuple(s) for s in data["linear"]), tuple(data["accumulators"]),
        halos=tuple(Halo(*h) for h in data.get("halos", ())),
        cutouts=tuple(Cutout(*c) for c in data.get("cutouts", ())),
    )  # fmt: skip


def without_places(program: Json) -> Json:
    """A program as JSON without source lines and warnings, so that an edit elsewhere in the file does not change it."""

    def block(data: Json) -> Json:
        ops = [{**op, "source": "", "regions": [block(r) for r in op["regions"]]} for op in data["ops"]]
        return {**data, "ops": ops}

    return {**program, "body": block(program["body"]), "warnings": []}


# -- mesh and schedule -------------------------------------------------------------------------------


def mesh_to_json(mesh: AtomMesh) -> Json:
    """The ``mesh`` of plan.json: axes by name, device ids (None for iota order), and the atoms."""
    ids = mesh.mesh.device_ids
    return {
        "name": mesh.mesh.name,
        "axes": dict(zip(mesh.mesh.axis_names, mesh.mesh.axis_sizes, strict=True)),
        "device_ids": None if ids is None else list(ids),
        "atoms": list(mesh.names),
    }


def mesh_from_json(data: Json) -> AtomMesh:
    """The inverse of `mesh_to_json`; `ShardingError` for an atom that the mesh does not have."""
    try:
        ids, axes, name = data["device_ids"], dict(data["axes"]), str(data["name"])
        mesh = Mesh(tuple(axes), tuple(axes.values()), name, None if ids is None else tuple(ids))
        atoms = tuple(AxisRef.from_text(name) for name in data["atoms"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"plan: the mesh is damaged: {in_words(error)}") from None
    for atom in atoms:
        mesh.ref_size(atom)
    return AtomMesh(mesh, atoms)


def _layout_to_json(layout: Layout) -> Json:
    return {"dims": [list(d) for d in layout.dims], "unreduced": list(layout.unreduced)}


def _layout_from_json(data: Json) -> Layout:
    return Layout(tuple(tuple(d) for d in data["dims"]), tuple(data["unreduced"]))


def _steps_to_json(steps: Sequence[Step]) -> list[Json]:
    return [{"kind": s.kind.value, "atoms": list(s.atoms), "dim": s.dim, "to_dim": s.to_dim} for s in steps]


def _steps_from_json(data: Sequence[Json]) -> tuple[Step, ...]:
    return tuple(Step(StepKind(s["kind"]), tuple(s["atoms"]), s["dim"], s["to_dim"]) for s in data)


def schedule_to_json(schedule: Schedule) -> Json:
    """The ``schedule`` of plan.json. The mesh stands beside it (see `mesh_to_json`)."""
    return {
        "placements": {
            str(op): {
                "factors": [list(f) for f in p.factors],
                "passes": [list(x) for x in p.passes],
                "zeros": list(p.zeros),
            }
            for op, p in sorted(schedule.placements.items())
        },
        "definitions": {str(v): _layout_to_json(lay) for v, lay in sorted(schedule.definitions.items())},
        "shared": {str(v): _steps_to_json(r.steps) for v, r in sorted(schedule.shared.items())},
        "uses": [
            {"op": u.op, "slot": u.slot, "region": u.region, "steps": _steps_to_json(r.steps)}
            for u, r in sorted(schedule.uses.items())
        ],
        **({"as_used": sorted(schedule.as_used)} if schedule.as_used else {}),
    }


def schedule_from_json(data: Json, mesh: AtomMesh, program: Program) -> Schedule:
    """Rebuild a schedule; `InputError` where its steps do not fit the layouts they start from."""
    check_form(data, SCHEDULE_FORM, "schedule")
    placements = {
        int(op): Placement(
            tuple(tuple(f) for f in p["factors"]), tuple((a, w) for a, w in p["passes"]), tuple(p["zeros"])
        )
        for op, p in data["placements"].items()
    }
    definitions = {int(v): _layout_from_json(lay) for v, lay in data["definitions"].items()}
    shared: dict[int, Reshard] = {}
    for key, steps in data["shared"].items():
        shared[int(key)] = _reshard(definitions[int(key)], _steps_from_json(steps), f"shared form of value {key}")
    schedule = Schedule(mesh, placements, definitions, shared, as_used=frozenset(data.get("as_used", ())))
    for use in data["uses"]:
        where = Use(use["op"], use["slot"], use["region"])
        before = schedule.form_before_use(where.value_in(program)) if where.is_in(program) else None
        if before is None:
            raise InputError(f"plan: the program has no {where}")
        schedule.uses[where] = _reshard(before, _steps_from_json(use["steps"]), f"{where}")
    check_schedule(program, schedule)
    return schedule


def _reshard(source: Layout, steps: tuple[Step, ...], what: str) -> Reshard:
    try:
        return Reshard(source, replay(source, steps), steps)
    except (ValueError, IndexError) as error:
        raise InputError(f"plan: the steps of {what} do not fit: {in_words(error)}") from None


def check_header(data: Any, path: str) -> Json:
    """`InputError` unless `data` is a plan of the version that this code reads."""
    if isinstance(data, dict) and data.get("format") == REFUSAL:
        raise InputError(f"{path} is a refusal: it proves that there is no plan; `autoshard verify {path}` checks it")
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(f"{path} is not a plan of autoshard (no 'format: {FORMAT}'); give a plan.json of solve")
    if data.get("version") != VERSION:
        raise InputError(f"{path} is a plan of version {data.get('version')!r}; this autoshard reads version {VERSION}")
    return data


_CLAIMS: tuple[tuple[str, type | tuple[type, ...]], ...] = (
    ("status", str), ("objective_s", (int, float)), ("bound_s", (int, float)), ("gap", (int, float)), ("notes", list),
    ("statements", list), ("baselines", list), ("trips", int), ("model_flop", (int, float, NoneType)),
    ("batch", (int, float, NoneType)), ("config", (dict, NoneType)), ("stages", (list, NoneType)),
    ("joint", (dict, NoneType)), ("sharing", (dict, NoneType)), ("mesh_search", (dict, NoneType)),
    ("priorities", (dict, NoneType)), ("strategy", (str, NoneType)), ("memory_limit", (dict, NoneType)),
    ("options", (dict, NoneType)), ("form", (dict, NoneType)),
)  # fmt: skip
_LISTED = (("notes", str), ("statements", dict), ("baselines", dict), ("stages", dict))


def check_claims(data: Json) -> None:
    """`InputError` unless the figures that a plan claims have the types that its readers rely on."""
    for key, kinds in _CLAIMS:
        if key in data and (not isinstance(data[key], kinds) or isinstance(data[key], bool)):
            raise InputError(f"plan: {key} is {_short(data[key])}")
    for key, kind in _LISTED:
        for entry in data.get(key) or ():
            if not isinstance(entry, kind):
                raise InputError(f"plan: {key} holds {_short(entry)}")
    named = data.get("priorities") or {"names": [], "roles": {}, "slow": []}
    for key, kind in (("names", list), ("roles", dict), ("slow", list)):
        if not isinstance(named.get(key), kind):
            raise InputError(f"plan: priorities: {key} is {_short(named.get(key))}")
    if not all(isinstance(axes, list) for axes in named["roles"].values()):
        raise InputError(f"plan: priorities: roles is {_short(named['roles'])}")
    for entry in data["statements"]:
        if not isinstance(entry.get("kind"), str):
            raise InputError(f"plan: the statement {_short(entry)} has no kind")

    limit = data.get("memory_limit")
    if limit is not None and (limit.get("from") not in ("stated", "device") or not _is_limit(limit.get("bytes"))):
        raise InputError(f"plan: memory_limit is {_short(limit)}")

    options = data.get("options") or {}
    for key, kinds in _OPTIONS:
        if key in options and (
            not isinstance(options[key], kinds) or (isinstance(options[key], bool) and bool not in kinds)
        ):
            raise InputError(f"plan: options: {key} is {_short(options[key])}")


_OPTIONS: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("effort", (int, float)), ("seed", (int,)), ("accepted_gap", (int, float)), ("share_repeats", (bool,)),
    ("sub_axes", (dict, NoneType)), ("strategy", (str, NoneType)), ("objective", (str, NoneType)),
)  # fmt: skip


def _is_limit(bytes_: Any) -> bool:
    return bytes_ is None or (isinstance(bytes_, int) and not isinstance(bytes_, bool) and bytes_ > 0)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


@uncollected()
def guarded(build: Any, path: str) -> Any:
    """Run `build()`; whatever a damaged file makes it raise becomes an `InputError` that names the file."""
    try:
        return build()
    except AutoshardError as error:
        raise InputError(f"{path}: {error}") from error
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise InputError(f"{path} is damaged: {in_words(error)}; solve again to rewrite it") from error
