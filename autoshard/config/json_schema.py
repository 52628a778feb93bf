"""JSON Schemas of configs and of plan.json, for editors and for programs that write or read them.

That of configs is made from the schema that reads them, with the short forms that values may have; what depends on
several keys at once (an axis that the mesh has not) is found by reading the config only. That of plans has the record's
parts; program and schedule are objects whose content only autoshard reads.
"""

from collections.abc import Callable
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from autoshard import __version__
from autoshard.config import schema as config_schema
from autoshard.constraints.in_config import SHORT_FORMS
from autoshard.plan_record import parts
from autoshard.program.as_json import FORMAT, VERSION
from autoshard.units import limit_amount, memory_amount, seconds

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_AMOUNT = {"type": ["string", "number"], "description": "bytes, 12GiB, 90%, or a share such as 0.9"}
_TIME = {"type": ["string", "number"], "description": "seconds, or a time such as 90s or 10min"}
_INSTEAD: dict[Callable[..., Any], JsonSchemaValue] = {
    limit_amount: {**_AMOUNT, "description": f"{_AMOUNT['description']}; none for no limit"},
    memory_amount: _AMOUNT,
    seconds: _TIME,
    config_schema.plain_bytes: {
        "type": ["string", "integer", "null"],
        "description": "bytes, or an amount such as 8GB",
    },
}
"""What is written for values that are read by these functions."""
_MESH_SEARCH: JsonSchemaValue = {
    "type": "object",
    "description": "Sizes are searched: so many devices along these axes.",
    "properties": {
        "devices": {"type": "integer", "minimum": 1},
        "axes": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    },
    "required": ["devices", "axes"],
    "additionalProperties": False,
}


class _Written(GenerateJsonSchema):
    """The schema of what is written in a file, rather than of what it is read as."""

    def function_before_schema(self, schema: Any) -> JsonSchemaValue:
        """A short form that a function reads stands beside what it makes of it."""
        read = schema["function"]["function"]
        if read in _INSTEAD:
            return _INSTEAD[read]
        inner = self.generate_inner(schema["schema"])
        forms = SHORT_FORMS.get(read)
        return inner if forms is None else {"anyOf": [*(form or inner.get("items", {}) for form in forms), inner]}


def config_json_schema() -> JsonSchemaValue:
    """The JSON Schema of a config file."""
    made = config_schema.schema().model_json_schema(schema_generator=_Written)
    properties = made["properties"]
    properties["mesh"] = {"anyOf": [_MESH_SEARCH, properties["mesh"]]}
    made |= {"$schema": DIALECT, "$id": f"urn:autoshard:config:{__version__}", "title": "A config of autoshard solve"}
    made["description"] = "What to plan, on which mesh and machine, under which statements (docs/cli.md)."
    return made


_NUMBER, _TEXT, _OBJECT = {"type": "number"}, {"type": "string"}, {"type": "object"}
_OBJECTS = {"type": "array", "items": _OBJECT}
_MAYBE_NUMBER = {"type": ["number", "null"]}
_PARTS: dict[str, tuple[type[parts.Part], str]] = {
    "memory_limit": (parts.ToldLimit, "one"),
    "options": (parts.ToldOptions, "one"),
    "stages": (parts.StageRecord, "many"),
    "joint": (parts.JointOptimum, "perhaps"),
    "sharing": (parts.SharingPrice, "perhaps"),
    "certificate": (parts.BoundProof, "one"),
    "form": (parts.ChosenForm, "one"),
    "rivals": (parts.JudgedRivals, "one"),
    "changed": (parts.ToldChange, "many"),
    "mesh_search": (parts.MeshSearched, "one"),
    "priorities": (parts.NamedPriorities, "one"),
    "baselines": (parts.BaselineCost, "many"),
}
"""Keys of plan.json that are parts of the record: one (where there is one), perhaps null, or many of them."""


def plan_json_schema() -> JsonSchemaValue:
    """The JSON Schema of plan.json, of the version that this autoshard writes and reads."""
    properties: dict[str, Any] = {
        "format": {"const": FORMAT},
        "version": {"const": VERSION},
        "status": {"enum": ["optimal", "feasible"]},
        "objective_s": _NUMBER,
        "bound_s": _NUMBER,
        "gap": _NUMBER,
        "notes": {"type": "array", "items": _TEXT},
        "mesh": {**_OBJECT, "required": ["axes"]},
        "hardware": {**_OBJECT, "required": ["name", "machine", "layout"]},
        "config": {
            "anyOf": [{"type": "null"}, {**_OBJECT, "properties": {"file": _TEXT, "settings": _OBJECT}}],
        },
        "trips": {"type": "integer"},
        "model_flop": _MAYBE_NUMBER,
        "batch": _MAYBE_NUMBER,
        "statements": {"type": "array", "items": {**_OBJECT, "required": ["kind"]}},
        "cost": _OBJECT,
        "memory": {**_OBJECT, "required": ["peak_bytes", "held"]},
        "strategy": _TEXT,
        "shardings": {**_OBJECT, "additionalProperties": _TEXT},
        "collectives": _OBJECTS,
        "program": _OBJECT,
        "schedule": _OBJECT,
    }
    definitions: dict[str, Any] = {}
    for key, (part, how) in _PARTS.items():
        made = part.model_json_schema(mode="serialization", ref_template="#/$defs/{model}")
        definitions |= made.pop("$defs", {})
        definitions[part.__name__] = made
        link = {"$ref": f"#/$defs/{part.__name__}"}
        properties[key] = {
            "one": link, "perhaps": {"anyOf": [link, {"type": "null"}]}, "many": {"type": "array", "items": link},
        }[how]  # fmt: skip
    always = ("format", "version", "status", "objective_s", "bound_s", "gap", "mesh", "hardware", "program", "schedule")
    return {
        "$schema": DIALECT,
        "$id": f"urn:autoshard:plan:{VERSION}",
        "title": "A plan of autoshard",
        "type": "object",
        "properties": properties,
        "required": list(always),
        "$defs": definitions,
    }
