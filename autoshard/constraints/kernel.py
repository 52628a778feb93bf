"""Custom kernels: how they may be cut, what they cost, and what a device runs, by the name of the kernel."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from autoshard.constraints.in_config import ConfigKey, Section, short_form
from autoshard.constraints.kind import Kind
from autoshard.constraints.place import written_at
from autoshard.constraints.statement import KeyPath, Matched, Statement, with_place
from autoshard.errors import InputError, RuleError
from autoshard.rules.custom import check_reduction, factor_names, parse_tensors
from autoshard.sharding.mesh import Mesh

REPLICATE = "replicate"
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Kernel(Statement):
    """How the kernels of this name may be sharded, what they cost, and what a device runs on its blocks.

    name: of the kernel, or ``file.py:name``; ``*`` stands for any letters. The name ``default`` with the rule
        ``replicate`` lets kernels without a rule run whole on every device.
    rule: factors of the dimensions of operands and results, ``([b, h, q, d], [b, h, k, d])->([b, h, q, d])``, or
        ``replicate``. whole: its factors that must not be cut. reduction: those whose cut leaves partial sums.
    grid: in the place of a rule, the grid dimensions of a Pallas kernel along which programs may run on different
        devices.
    flop, bytes: of one call on whole arrays, a number or a formula of factors, ``4*b*h*q*k*d``; in the place of what
        the kernel says of itself. unit: what does the FLOP, ``matmul`` or ``vector``.
    local: what a device runs on its blocks, a function or ``module:function``; by default the kernel itself. With it,
        `name` may be that of a jitted function, which is one op then.
    calls: only these calls of the kernel, numbered from 0 in the order of the program.

    The first entry that has the name and fits the ranks of a call counts. Raises `RuleError` where it is malformed.
    """

    name: str
    rule: str = ""
    whole: str | Sequence[str] = ()
    reduction: str | Sequence[str] = ()
    grid: Sequence[int] | None = None
    flop: str | float | None = None
    bytes: str | float | None = None
    unit: str | None = None
    local: Callable[..., Any] | str | None = None
    calls: Sequence[int] = ()
    source: str = ""
    written: str = field(default="", init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise RuleError(f"kernel {self.name!r}: expected a name such as my_kernel, or flash_attention.py:*")
        for what in ("whole", "reduction"):
            object.__setattr__(self, what, factor_names(getattr(self, what)))
        object.__setattr__(self, "calls", tuple(self.calls))
        if self.grid is not None:
            object.__setattr__(self, "grid", tuple(self.grid))
        if self.rule and self.grid is not None:
            raise RuleError(f"kernel {self.name}: give a rule, or grid dimensions, not both")
        if self.rule and self.rule != REPLICATE:
            operands, results = parse_tensors(self.name, self.rule)
            used = {f for t in (*operands, *results) for d in t for f in d}
            for what in ("whole", "reduction"):
                if unknown := sorted(set(getattr(self, what)) - used):
                    raise RuleError(f"kernel {self.name}: {what} names {unknown[0]!r}, which rule {self.rule!r} lacks")
            check_reduction(self.name, self.rule, results, self.reduction, whole=self.whole)
        elif self.whole or self.reduction:
            raise RuleError(f"kernel {self.name}: whole and reduction name factors of a rule; give one")
        if self.name == DEFAULT and (self.rule != REPLICATE or self.local is not None):
            raise RuleError(f"kernel {DEFAULT}: the only rule for kernels without one is {REPLICATE}")
        if self.unit not in (None, "matmul", "vector"):
            raise RuleError(f"kernel {self.name}: unit is {self.unit!r}; expected matmul or vector")
        if not (self.local is None or callable(self.local) or (isinstance(self.local, str) and ":" in self.local)):
            raise RuleError(f"kernel {self.name}: local is {self.local!r}; give a function or module:function")
        for what in ("flop", "bytes"):
            stated = getattr(self, what)
            if isinstance(stated, bool) or not isinstance(stated, str | int | float | None):
                raise RuleError(f"kernel {self.name}: {what} is {stated!r}; give a number or a formula as 4*b*q*k*d")
        written_at(self)

    def __str__(self) -> str:
        said = self.rule or ("" if self.grid is None else f"grid {list(self.grid)}")
        return f"kernel {self.name}" + (f": {said}" if said else "")

    @property
    def says_how(self) -> bool:
        """Whether it says how the kernel may be cut."""
        return bool(self.rule) or self.grid is not None

    def names(self, facts: Mapping[str, Any], call: int) -> bool:
        """Whether it speaks of a call of a kernel, given what is known of the kernel and the number of the call."""
        return (not self.calls or call in self.calls) and self.is_of(facts)

    def is_of(self, facts: Mapping[str, Any]) -> bool:
        """Whether the kernel of which this is known has its name."""
        return any(fnmatchcase(name, self.name) for name in (facts["name"], f"{facts['file']}:{facts['name']}"))

    @property
    def local_name(self) -> str | None:
        """``module:function`` of what a device runs; ``?`` for a function that cannot be imported."""
        if self.local is None or isinstance(self.local, str):
            return self.local
        name = getattr(self.local, "__qualname__", "")
        module = getattr(self.local, "__module__", "")
        return f"{module}:{name}" if module and name and "<" not in name and module != "__main__" else "?"

    @classmethod
    def from_config(cls, given: Any, source: str) -> Self:
        """The statement that an entry of ``kernels`` makes."""
        return cls(**given.model_dump(), source=source)

    @classmethod
    def config_faults(cls, given: Any, path: KeyPath, mesh: Mesh) -> Iterator[tuple[KeyPath, str]]:
        """What `Kernel` refuses."""
        try:
            cls.from_config(given, "")
        except InputError as error:
            yield path, str(error)


@dataclass(frozen=True, slots=True)
class MatchedKernel(Matched):
    """One call of a kernel in a program: how it may be cut, what it costs, and what a device runs.

    op: its id. rule: as the op has it, in Shardy's notation; None inside of a `shard_map`. work: ``flop``,
    ``transcendentals`` and ``bytes`` of a call on whole arrays (None where they are not known), ``unit`` and ``from``.
    local: see `Kernel.local_name`. by: who says so.
    """

    kind: ClassVar[str] = "kernel"
    name: str
    op: int
    rule: str | None
    work: Mapping[str, Any]
    local: str | None
    by: str
    source: str = ""

    @property
    def text(self) -> str:
        """The call with its rule."""
        return f"kernel {self.name} (op {self.op}): {self.rule or 'inside of a shard_map'}"

    @property
    def cited(self) -> str:
        """The call with its rule and its place, for messages."""
        return with_place(self.text, self.source)

    @property
    def told(self) -> str:
        """The call with its rule and who says so, for answers."""
        return f"{self.cited} ({self.by})"

    def to_dict(self) -> dict[str, Any]:
        """The call as an entry of ``statements`` in plan.json."""
        return {
            "kind": self.kind, "text": self.text, "source": self.source, "name": self.name, "op": self.op,
            "rule": self.rule, "work": dict(self.work), "local": self.local, "by": self.by,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], mesh: Mesh | None = None) -> Self:
        """The inverse of `to_dict`."""
        rule, local = (None if data[key] is None else str(data[key]) for key in ("rule", "local"))
        name, op, by, source = str(data["name"]), int(data["op"]), str(data["by"]), str(data["source"])
        return cls(name, op, rule, dict(data["work"]), local, by, source)


def _float(given: Any) -> Any:
    return float(given) if type(given) is int else given


Formula = Annotated[str | float | None, short_form(_float, {"type": "integer"})]


class KernelSection(Section):
    """What is said of the kernels of a name; see `Kernel`."""

    name: str
    rule: str = ""
    whole: list[str] | str = Field(default_factory=list)
    reduction: list[str] | str = Field(default_factory=list)
    grid: list[int] | None = None
    flop: Formula = None
    bytes: Formula = None
    unit: Literal["matmul", "vector"] | None = None
    local: str | None = None
    calls: list[int] = Field(default_factory=list)


def _by_name(given: Any) -> Any:
    """``{name: rule}`` or ``{name: {rule: ...}}`` as a list of entries."""
    if not isinstance(given, Mapping):
        return given
    entries = {name: {"rule": entry} if isinstance(entry, str) else entry for name, entry in given.items()}
    return [{"name": name, **entry} if isinstance(entry, Mapping) else entry for name, entry in entries.items()]


_BY_NAME = {
    "type": "object",
    "additionalProperties": {"anyOf": [{"type": "string"}, {"type": "object"}]},
    "description": "entries by name, or a rule",
}
KIND = Kind(
    MatchedKernel,
    Kernel,
    ConfigKey("kernels", Annotated[list[KernelSection], short_form(_by_name, _BY_NAME)], by="name"),
)
