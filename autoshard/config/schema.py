"""What a config file may say: its keys, their types and what must hold between them."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from autoshard.constraints.carry import carry_groups
from autoshard.errors import InputError
from autoshard.units import MemoryAmount, limit_amount, memory_amount, seconds

MAX_DEVICES = 2**24
"""Largest mesh that a config may ask for."""
DTYPES = (
    *("bool", "int4", "int8", "int16", "int32", "int64", "uint4", "uint8", "uint16", "uint32", "uint64"),
    *("float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "float32", "float64", "complex64", "complex128"),
)

_AXIS_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_.-]*$")
_REFERENCE = re.compile(r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")
_LEAF = re.compile(r"^(?P<dtype>[A-Za-z]\w*)\[(?P<shape>[^\]]*)\]$")


def _reference(text: str) -> str:
    if not _REFERENCE.match(text):
        raise InputError(f"write module:function, such as my_package.train:step, found {text!r}")
    return text


def _mapping_or(shorthand: str, what: str):
    """A validator that takes `{shorthand: x}` for a bare scalar x."""

    def before(given: Any) -> Any:
        if isinstance(given, Mapping | BaseModel):
            return given
        if given is None or isinstance(given, list):
            raise InputError(f"expected {what}, found {given!r}")
        return {shorthand: given}

    return BeforeValidator(before)


def _plain_bytes(given: Any) -> int | None:
    if given is None:
        return None
    amount = memory_amount(given)
    if amount.bytes is None:
        raise InputError(f"expected an amount such as 8GB, found {given!r}")
    return amount.bytes


Reference = Annotated[str, AfterValidator(_reference)]
Seconds = Annotated[float, BeforeValidator(seconds)]
Memory = Annotated[MemoryAmount, BeforeValidator(memory_amount)]
Limit = Annotated[MemoryAmount | Literal["none"], BeforeValidator(limit_amount)]


def _limits(given: Any) -> Any:
    """An amount for device memory, or amounts by kind."""
    if not isinstance(given, Mapping):
        return None if given is None else {"device": limit_amount(given)}
    return given


class LimitSection(BaseModel):
    """Bytes per device in its own memory (none: no limit; what the device has room for where not given) and in that of
    the host.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)
    device: Limit | None = None
    pinned_host: Memory | None = None


Positive = Annotated[int, Field(ge=1)]
Axes = Annotated[list[str], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)]
"""One mesh axis or a list of them."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)


class AxisSection(_Section):
    """One axis of the mesh: its size, and the link of the machine it runs on (chosen where not given)."""

    size: Positive
    link: str | None = None


class ModelSection(_Section):
    """A model of the model library; keys besides these are options of the model."""

    model_config = ConfigDict(extra="allow")

    name: str
    dims: str | None = None

    @model_validator(mode="after")
    def _check(self) -> "ModelSection":
        from autoshard.models.cards import card_options
        from autoshard.models.options import OPTIONS, listing, make_options

        if self.name not in OPTIONS:
            raise InputError(f"no model {self.name!r}; {listing(self.name, OPTIONS)}")
        chosen = card_options(self.name, self.dims) if self.dims is not None else {}
        make_options(self.name, {**chosen, **self.options})
        return self

    @property
    def options(self) -> dict[str, Any]:
        """What the user set besides name and dims."""
        return dict(self.model_extra or {})


class PinSection(_Section):
    """One pin: which values, and their sharding."""

    pattern: str
    sharding: str
    priority: Annotated[int, Field(ge=0)] = 0


Patterns = Annotated[
    list[str],
    BeforeValidator(lambda given: [given] if isinstance(given, str) else given),
    Field(min_length=1),
]
"""One pattern or a list of them."""


class ReplicatedSection(_Section):
    """Values that no axis cuts, or none of `axes`."""

    pattern: str
    axes: Axes = []


class AxisOnlySection(_Section):
    """A mesh axis that only these values may use."""

    axis: str
    patterns: Patterns


class NoCollectiveSection(_Section):
    """A mesh axis without collectives, everywhere or in a part of the program."""

    axis: str
    pattern: str = "**"


class MaxReshardsSection(_Section):
    """How many reshards there may be, of one axis or in a part of the program where these are given."""

    limit: Annotated[int, Field(ge=0)]
    axis: str | None = None
    pattern: str = "**"


class BarrierSection(_Section):
    """Values through which hints do not flow."""

    pattern: str
    direction: Literal["forward", "backward", "both"] = "both"


def _border(given: Any) -> Any:
    texts = given.values() if isinstance(given, Mapping) else given if isinstance(given, list) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise InputError(f"expected a list of shardings, or a mapping from patterns to shardings, found {given!r}")
    return given


class MemoryKindSection(_Section):
    """Inputs and outputs that live in a memory."""

    pattern: str
    kind: Literal["device", "pinned_host"] = "pinned_host"


def _kinds(given: Any) -> Any:
    if isinstance(given, Mapping):
        return [{"pattern": pattern, "kind": kind} for pattern, kind in given.items()]
    return given


Border = Annotated[dict[str, str] | list[str], BeforeValidator(_border)]
"""Shardings by the pattern of the values that have them, or in order."""


class ManualSection(_Section):
    """A region of the program that is local over mesh axes, and the shardings at its borders."""

    region: Patterns
    axes: Annotated[Axes, Field(min_length=1)]
    in_shardings: Border
    out_shardings: Border


class BaselineSection(_Section):
    """A strategy of one's own: logical axes on mesh axes (MaxText's logical_axis_rules), earlier rules first."""

    name: str
    rules: dict[str, Axes]


class SolverSection(_Section):
    """How hard the solver tries: effort 1.0 is the normal amount of deterministic work.

    accepted_gap: (cost - bound) / cost at which the search within a memory limit ends. memory: of the planning process
    (``8GB``): where it holds more, the search ends with the best plan so far.
    """

    effort: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] = 1.0
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    accepted_gap: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 1e-3
    memory: Annotated[int | None, BeforeValidator(_plain_bytes)] = None


class RunSection(_Section):
    """Run the planned program after solving, for so many train steps."""

    steps: Annotated[int, Field(ge=1, le=1_000_000)]
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


def _pins(given: Any) -> Any:
    if isinstance(given, Mapping):
        return [{"pattern": pattern, "sharding": text} for pattern, text in given.items()]
    return given


def _axes_only(given: Any) -> Any:
    if isinstance(given, Mapping):
        return [{"axis": axis, "patterns": patterns} for axis, patterns in given.items()]
    return given


def _axis_names(axes: dict[str, Any]) -> dict[str, Any]:
    if not axes:
        raise InputError("a mesh has at least one axis, such as {data: 8}")
    for name in axes:
        if not _AXIS_NAME.match(name):
            raise InputError(f"axis name {name!r}: use letters, digits, _, . and -, beginning with a letter or _")
    return axes


def _carry(given: Any) -> Any:
    if not (given is None or isinstance(given, bool) or given in ("auto", "none")):
        carry_groups(given)  # says what is wrong with it
    return given


def check_spec(given: Any, path: tuple[str | int, ...] = ()) -> None:
    """Raise `InputError` where a tree of argument specs has a malformed leaf; `SpecError.path` says where."""
    if isinstance(given, str):
        parse_leaf(given, path)
    elif isinstance(given, Mapping):
        if is_leaf(given):
            parse_leaf(given, path)
        else:
            for key, item in given.items():
                check_spec(item, (*path, key))
    elif isinstance(given, list):
        for index, item in enumerate(given):
            check_spec(item, (*path, index))
    else:
        raise SpecError(f"expected {{shape: [8, 128], dtype: float32}} or float32[8,128], found {given!r}", path)


class SpecError(InputError):
    """A malformed argument spec, with its path inside of ``args``."""

    def __init__(self, message: str, path: tuple[str | int, ...]) -> None:
        super().__init__(message)
        self.path = path


def is_leaf(given: Mapping[str, Any]) -> bool:
    """Whether a mapping describes an array rather than a pytree with these keys.

    >>> is_leaf({"shape": [8], "dtype": "int32"}), is_leaf({"shape": {"shape": [8]}})
    (True, False)
    """
    return "shape" in given and not isinstance(given["shape"], Mapping) and set(given) <= {"shape", "dtype"}


def parse_leaf(given: Any, path: tuple[str | int, ...] = ()) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of one array.

    >>> parse_leaf("bfloat16[8, 128]"), parse_leaf({"shape": [], "dtype": "int32"})
    (((8, 128), 'bfloat16'), ((), 'int32'))
    """
    from autoshard.models.options import listing

    if isinstance(given, str):
        match = _LEAF.match(given.strip())
        if match is None:
            raise SpecError(f"cannot read {given!r}; write it like float32[8,128]", path)
        dims = [d.strip() for d in match["shape"].split(",")] if match["shape"].strip() else []
        shape: list[Any] = [int(d) if re.fullmatch(r"-?\d+", d) else d for d in dims]
        dtype, shape_path, dtype_path = match["dtype"], path, path
    else:
        shape, dtype = given["shape"], given.get("dtype", "float32")
        shape_path, dtype_path = (*path, "shape"), (*path, "dtype")
    if not isinstance(shape, list):
        raise SpecError(f"a shape is a list of sizes, such as [8, 128], found {shape!r}", shape_path)
    for size in shape:
        if isinstance(size, bool) or not isinstance(size, int) or not 0 < size < 2**62:
            raise SpecError(f"sizes are positive whole numbers, found {size!r} in the shape {shape}", shape_path)
    if dtype not in DTYPES:
        raise SpecError(f"unknown dtype {dtype!r}; {listing(str(dtype), DTYPES)}", dtype_path)
    return tuple(shape), dtype


class Schema(_Section):
    """The whole file. Either `model`, or `function` with `args` or `specs`."""

    model: (
        Annotated[ModelSection, _mapping_or("name", "the name of a model, or a mapping with name and dims")] | None
    ) = None
    function: Reference | None = None
    args: Any = None
    specs: Reference | None = None
    argnames: list[str] | None = None
    donate: list[Any] | None = None
    effects: Literal["refuse", "drop"] = "refuse"
    in_code: Literal["hard", "hints", "ignore"] = "hard"
    carry: Annotated[Any, AfterValidator(_carry)] = True
    logical_axes: dict[str, list[str | None]] | None = None

    mesh: Annotated[
        dict[str, Annotated[AxisSection, _mapping_or("size", "a size, or a mapping with size and link")]],
        AfterValidator(_axis_names),
    ]
    hardware: str
    pins: Annotated[list[PinSection], BeforeValidator(_pins)] = []
    priorities: list[str | BaselineSection] = []
    same_sharding: list[Annotated[list[str], Field(min_length=1)]] = []
    replicated: list[Annotated[ReplicatedSection, _mapping_or("pattern", "a pattern, or pattern and axes")]] = []
    axis_only: Annotated[list[AxisOnlySection], BeforeValidator(_axes_only)] = []
    no_collective: list[Annotated[NoCollectiveSection, _mapping_or("axis", "an axis, or axis and pattern")]] = []
    max_reshards: Annotated[
        list[Annotated[MaxReshardsSection, _mapping_or("limit", "a number, or limit with axis or pattern")]],
        BeforeValidator(lambda given: given if isinstance(given, list) else [given]),
    ] = []
    barriers: list[Annotated[BarrierSection, _mapping_or("pattern", "a pattern, or pattern and direction")]] = []
    manual_computations: list[ManualSection] = []
    memory_kinds: Annotated[list[MemoryKindSection], BeforeValidator(_kinds)] = []
    memory_limit: Annotated[LimitSection | None, BeforeValidator(_limits)] = None
    time_limit: Seconds | None = None
    baselines: list[str | BaselineSection] | None = None
    logical_axis_rules: dict[str, Axes] | None = None
    share_repeats: bool | Literal["price"] = True
    strict: bool = False
    strategy: str | None = None
    solver: SolverSection = SolverSection()
    devices: Literal["simulated", "real"] = "simulated"
    verify: bool = False
    run: RunSection | None = None
    output: str | None = None
