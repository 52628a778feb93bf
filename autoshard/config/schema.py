"""The schema of config files: their keys and the types of their values."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    create_model,
    model_validator,
)

from autoshard.constraints import registry
from autoshard.constraints.carry import carry_groups
from autoshard.constraints.in_config import Axes, Section, mapping_or
from autoshard.constraints.kind import Kind
from autoshard.constraints.memory_limit import LimitSection
from autoshard.errors import InputError
from autoshard.search_options import ACCEPTED_GAP
from autoshard.units import memory_amount, seconds

DTYPES = (
    *("bool", "int4", "int8", "int16", "int32", "int64", "uint4", "uint8", "uint16", "uint32", "uint64"),
    *("float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "float32", "float64", "complex64", "complex128"),
)

_AXIS_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_.-]*$")
_REFERENCE = re.compile(r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")
_LEAF = re.compile(r"^(?P<dtype>[A-Za-z]\w*)\[(?P<shape>[^\]]*)\]$")


def _reference(text: str) -> str:
    if not _REFERENCE.fullmatch(text):
        raise InputError(f"write module:function, such as my_package.train:step, found {text!r}")
    return text


def plain_bytes(size: Any) -> int | None:
    """An amount of memory in bytes; `InputError` for shares of a device."""
    if size is None:
        return None
    amount = memory_amount(size)
    if amount.bytes is None:
        raise InputError(f"expected an amount such as 8GB, found {size!r}")
    return amount.bytes


def _names_a_function(given: Any) -> Any:
    if isinstance(given, list | dict):
        raise InputError("this names a function that returns the arguments; write their shapes and types under 'args'")
    return given


Reference = Annotated[str, AfterValidator(_reference)]
Seconds = Annotated[float, BeforeValidator(seconds)]


Positive = Annotated[int, Field(ge=1)]


class AxisSection(Section):
    """One axis of the mesh: its size, and the link of the machine that it lies on (None: chosen)."""

    size: Positive
    """Devices along the axis."""
    link: str | None = None
    """The link of the machine that the axis lies on, such as `ici` or `dcn`; chosen where not given."""


class ModelSection(Section):
    """A model of the model library; keys besides these are options of the model."""

    model_config = ConfigDict(extra="allow")

    name: str
    """A model of the library."""
    dims: str | None = None
    """A published model whose sizes these are, such as `llama3_8b`."""

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
        """The options of the model: all keys besides name and dims."""
        return dict(self.model_extra or {})


class BaselineSection(Section):
    """A strategy of the user: logical axes on mesh axes (MaxText's logical_axis_rules), earlier rules first."""

    name: str
    """What the baseline is called in tables."""
    rules: dict[str, Axes]
    """Logical axis -> mesh axis or axes."""


class SolverSection(Section):
    """How hard the solver tries."""

    effort: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] = 1.0
    """How much deterministic work a search may do; 1.0 is the normal amount. Where a time limit is stated and no
    effort, a search within a memory limit goes on until the plan is proved or the time is up."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the searches that choose at random."""
    accepted_gap: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = ACCEPTED_GAP
    """(cost - bound) / cost at which the search within a memory limit ends."""
    memory: Annotated[int | None, BeforeValidator(plain_bytes)] = None
    """Bytes of the planning process (`8GB`) at which the search ends with the best plan so far."""


class RunSection(Section):
    """Run the planned program after solving, for so many train steps."""

    steps: Annotated[int, Field(ge=1, le=1_000_000)]
    """Train steps, or calls of a function."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the inputs and parameters that the run makes."""


def _axis_names(axes: dict[str, Any]) -> dict[str, Any]:
    if not axes:
        raise InputError("a mesh has at least one axis, such as {data: 8}")
    for name in axes:
        if not _AXIS_NAME.fullmatch(name):
            raise InputError(f"axis name {name!r}: use letters, digits, _, . and -, beginning with a letter or _")
    return axes


def _carry(carry: Any) -> Any:
    if not (carry is None or isinstance(carry, bool) or carry in ("auto", "none")):
        carry_groups(carry)  # says what is wrong with it
    return carry


def check_spec(spec: Any, path: tuple[str | int, ...] = ()) -> None:
    """Raise `InputError` where a tree of argument specs has a malformed leaf; `SpecError.path` says where."""
    if isinstance(spec, str):
        parse_leaf(spec, path)
    elif isinstance(spec, Mapping):
        if is_leaf(spec):
            parse_leaf(spec, path)
        else:
            for key, item in spec.items():
                check_spec(item, (*path, key))
    elif isinstance(spec, list):
        for index, item in enumerate(spec):
            check_spec(item, (*path, index))
    else:
        raise SpecError(f"expected {{shape: [8, 128], dtype: float32}} or float32[8,128], found {spec!r}", path)


class SpecError(InputError):
    """A malformed argument spec, with its path inside of ``args``."""

    def __init__(self, message: str, path: tuple[str | int, ...]) -> None:
        super().__init__(message)
        self.path = path


def is_leaf(spec: Mapping[str, Any]) -> bool:
    """Whether a mapping describes an array rather than a pytree with these keys.

    >>> is_leaf({"shape": [8], "dtype": "int32"}), is_leaf({"shape": {"shape": [8]}})
    (True, False)
    """
    return "shape" in spec and not isinstance(spec["shape"], Mapping) and set(spec) <= {"shape", "dtype"}


def parse_leaf(leaf: Any, path: tuple[str | int, ...] = ()) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of one array.

    >>> parse_leaf("bfloat16[8, 128]"), parse_leaf({"shape": [], "dtype": "int32"})
    (((8, 128), 'bfloat16'), ((), 'int32'))
    """
    from autoshard.models.options import listing

    if isinstance(leaf, str):
        match = _LEAF.match(leaf.strip())
        if match is None:
            raise SpecError(f"cannot read {leaf!r}; write it like float32[8,128]", path)
        dims = [d.strip() for d in match["shape"].split(",")] if match["shape"].strip() else []
        shape: list[Any] = [int(d) if re.fullmatch(r"-?\d{1,40}", d) else d for d in dims]
        dtype, shape_path, dtype_path = match["dtype"], path, path
    else:
        shape, dtype = leaf["shape"], leaf.get("dtype", "float32")
        shape_path, dtype_path = (*path, "shape"), (*path, "dtype")
    if not isinstance(shape, list):
        raise SpecError(f"a shape is a list of sizes, such as [8, 128], found {shape!r}", shape_path)
    for size in shape:
        if isinstance(size, bool) or not isinstance(size, int) or not 0 < size < 2**62:
            raise SpecError(f"sizes are positive whole numbers, found {size!r} in the shape {shape}", shape_path)
    if dtype not in DTYPES:
        raise SpecError(f"unknown dtype {dtype!r}; {listing(str(dtype), DTYPES)}", dtype_path)
    return tuple(shape), dtype


Size = Annotated[int, Field(ge=1, le=2**53)]
Shapes = Size | Annotated[list[Size], Field(min_length=1)]
"""The size of a symbolic dimension, or the whole shape of an input."""


class Settings(Section):
    """The keys of the file that are no statements. Either `model` (of the library, or an ONNX file), or `function`.

    Statements stand under the keys of their kinds (`statements_of`), which `schema` adds.
    """

    model: (
        Annotated[ModelSection, mapping_or("name", "the name of a model, or a mapping with name and dims")] | None
    ) = None
    """A model of the library (a name, or a mapping with its options), or the path of an ONNX file."""
    shapes: dict[str, Shapes] | None = None
    """ONNX: sizes of symbolic dimensions, or whole shapes of inputs."""
    annotations: Literal["pins", "hints", "ignore"] | None = None
    """ONNX: what the annotations of the file mean: statements, a baseline to start from, or nothing (`ignore`)."""
    configuration: str | None = None
    """ONNX: the device configuration whose annotations count."""
    function: Reference | None = None
    """A function to plan in place of a model; its module is looked for beside the config first."""
    args: Any = None
    """Shapes and types of its arguments, by name or position: `float32[8,128]`, or pytrees of these."""
    specs: Annotated[Reference | None, BeforeValidator(_names_a_function)] = None
    """In place of `args`: a function that returns the arguments as `jax.ShapeDtypeStruct`s, by position or name."""
    argnames: list[str] | None = None
    """With `specs`: names for the arguments."""
    donate: list[Any] | None = None
    """Arguments that are donated, by name or number; those that a `jax.jit` around the function donates where left
    out."""
    effects: Literal["refuse", "drop"] = "refuse"
    """Debug output in the function: an error, or left out with a note."""
    in_code: Literal["hard", "hints", "ignore"] = "hard"
    """What shardings in the function are: statements, a baseline to start from, or nothing."""
    loop_parts: Positive | list[Positive] | Literal["auto"] = 1
    """In how many parts loops run whose iterations do not wait for each other, for all or for each; `auto`: as is
    cheapest."""
    carry: Annotated[Any, AfterValidator(_carry)] = True
    """Carried state: found by type and path (`true`), none (`none`), or stated (`{out/0: params}`)."""
    logical_axes: dict[str, list[str | None]] | None = None
    """Logical names of the dimensions of inputs, by pattern, for baselines of functions."""

    mesh: Annotated[
        dict[str, Annotated[AxisSection, mapping_or("size", "a size, or a mapping with size and link")]],
        AfterValidator(_axis_names),
    ]
    """Axes with their sizes; or `{devices: 256, axes: [data, model]}`, where the sizes are searched."""
    hardware: str
    """A machine of `autoshard hardware`, or the path of a profile."""
    priorities: list[str | BaselineSection] = Field(default_factory=list)
    """Named strategies (or rules) as stages, one after the other."""
    time_limit: Seconds | None = None
    """Wall-clock limit of the search."""
    baselines: list[str | BaselineSection] | None = None
    """Named strategies (or rules) that are priced beside the plan."""
    logical_axis_rules: dict[str, Axes] | None = None
    """One more baseline: MaxText's rules, logical axis -> mesh axes."""
    share_repeats: bool | Literal["price"] = True
    """Whether layers that are alike share their decisions; `price` proves what that costs at most."""
    strict: bool = False
    """Whether warnings about the program are errors: ops without a sharding rule, random bits made whole."""
    strategy: str | None = None
    """How to decide: `joint`, `staged`, `greedy`, `basic` and others."""
    objective: Literal["serial", "overlap"] = "serial"
    """What is minimised: the sum of all work, or what a device waits for (or its busiest link works, if longer)."""
    form: Literal["explicit", "constraints", "shardings", "auto", "all"] = "explicit"
    """How XLA gets the plan: collectives written out, a constraint on every value, shardings of inputs and outputs,
    or the quickest by simulation, of the first two or of all."""
    solver: SolverSection = SolverSection()
    """How hard the solver tries."""
    devices: Literal["simulated", "real"] = "simulated"
    """Devices for `verify` and `run`: simulated on the CPU, or those that JAX sees."""
    verify: bool = False
    """Whether `solve` checks the plan, also against one device."""
    run: RunSection | None = None
    """Run the planned program after solving."""
    output: str | None = None
    """Folder for `plan.json` and `run.json`; `out/<name of the config>` where not given."""

    _model_file: str | None = PrivateAttr(None)

    @property
    def model_file(self) -> str | None:
        """The ONNX file that `model` names, if it names one; `model` is None then."""
        return self._model_file

    @model_validator(mode="wrap")
    @classmethod
    def _file_as_model(cls, data: Any, handler: ModelWrapValidatorHandler["Settings"]) -> "Settings":
        from autoshard.config.onnx_model import is_file

        model = data.get("model") if isinstance(data, Mapping) else None
        if not is_file(model):
            return handler(data)
        made = handler({key: value for key, value in data.items() if key != "model"})
        made._model_file = model
        return made

    def statements_of(self, kind: Kind) -> Any:
        """The entries under the key of a kind of statement."""
        assert kind.config is not None
        return getattr(self, kind.config.name)

    @property
    def limits(self) -> LimitSection | None:
        """The entry under ``memory_limit``; None without one."""
        return getattr(self, "memory_limit", None)


def schema() -> type[Settings]:
    """The schema of the whole file, with the keys of all registered kinds of statements."""
    return _schema_of(registry.kinds())


@lru_cache(maxsize=4)
def _schema_of(kinds: tuple[Kind, ...]) -> type[Settings]:
    keys = [kind.config for kind in kinds if kind.config is not None]
    fields: dict[str, Any] = {key.name: (key.holds, key.default) for key in keys}
    return create_model("Schema", __base__=Settings, __doc__=Settings.__doc__, **fields)
