"""What a user states and the answer must hold: pins on values and a limit on memory."""

from dataclasses import dataclass, field, replace
from typing import Any

from autoshard.constraints.place import written_at
from autoshard.errors import InputError, ShardingError
from autoshard.sharding.dimension_sharding import DimensionSharding
from autoshard.sharding.tensor_sharding import TensorSharding

OF_JAX = ("NamedSharding", "PartitionSpec", "P")
"""Types that JAX has for shardings (`P` is how newer versions call the second); JAX is not imported here."""


@dataclass(frozen=True, slots=True)
class Pin:
    """Every value that `pattern` addresses has this sharding. Hard: it holds in the plan, or there is no plan.

    pattern: which values (see `autoshard.constraints.patterns`): ``batch/tokens``, ``state/params/*/wq``,
        ``out/0/**``, ``@attn_out``, ``model.py:123/dot_general``.
    sharding: in Shardy's notation, ``[{"data"}, {}]``. A closed dimension ``{}`` is not cut at all, an open
        one ``{"data", ?}`` is cut by data first and may gain more. Or a `PartitionSpec` of JAX (axes of the planning
        mesh), or a `NamedSharding`, on any mesh over the same devices.
    source: where it was written (``config.yaml:12:3``); `written`: the same for messages, found out where not given.
    priority: user priority of the dimensions that carry no mark (``{"x"}p1``) of their own; 0 is decided first (S0.43).

    >>> str(Pin("batch/tokens", '[{"data"}, {}]'))
    'pin batch/tokens: [{"data"}, {}]'
    >>> str(Pin("w", '[{"x"}, {}]', priority=1))
    'pin w (priority 1): [{"x"}, {}]'
    """

    pattern: str
    sharding: TensorSharding | str | Any
    source: str = ""
    priority: int = 0
    written: str = field(default="", init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        written_at(self)
        if not isinstance(self.pattern, str) or not self.pattern.strip():
            raise InputError(f"a pin needs a pattern such as batch/tokens, found {self.pattern!r}")
        if isinstance(self.sharding, str):
            try:
                object.__setattr__(self, "sharding", TensorSharding.from_text(self.sharding))
            except ShardingError as error:
                raise ShardingError(f"{self.where}: {error}") from None
        elif not isinstance(self.sharding, TensorSharding) and type(self.sharding).__name__ not in OF_JAX:
            raise InputError(
                f"{self.where}: the sharding must be text such as '[{{\"data\"}}, {{}}]', a TensorSharding, or a "
                f"NamedSharding or PartitionSpec of JAX, found {self.sharding!r}"
            )
        if isinstance(self.priority, bool) or not isinstance(self.priority, int) or self.priority < 0:
            raise InputError(f"{self.where}: a priority is a whole number of 0 or more, found {self.priority!r}")

    @property
    def parsed(self) -> TensorSharding:
        """The sharding, parsed (it is, once the pin exists, unless it is one of JAX: see `request.arguments`)."""
        assert isinstance(self.sharding, TensorSharding)
        return self.sharding

    @property
    def where(self) -> str:
        """How messages name this pin: its place where known, and its pattern."""
        return f"{self.source}: pin {self.pattern!r}" if self.source else f"pin {self.pattern!r}"

    def __str__(self) -> str:
        return f"pin {self.pattern}{_priority_text(self.priority)}: {self.sharding}"


def _priority_text(priority: int) -> str:
    return f" (priority {priority})" if priority else ""


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """No device holds more than `bytes` at any point of the program."""

    bytes: int
    source: str = ""

    def __post_init__(self) -> None:
        if self.bytes <= 0:
            raise InputError(f"a memory limit is a positive number of bytes per device, found {self.bytes}")

    def __str__(self) -> str:
        return f"memory limit: {self.bytes} bytes per device"


Statement = Pin | MemoryLimit


@dataclass(frozen=True, slots=True)
class MatchedPin:
    """A pin and what it addresses in one program.

    values: ids of values that are defined in this sharding, ascending.
    outputs: slots of program outputs that are handed back in this sharding, ascending.
    sharding: with replicated and unreduced axes in mesh order.
    mesh, stated: where it was stated on another mesh, that mesh and the sharding on it. moves: where `sharding` is not
        the whole truth of that, see `autoshard.sharding.device_orders.Translated`.
    """

    pattern: str
    sharding: TensorSharding
    values: tuple[int, ...]
    outputs: tuple[int, ...]
    source: str = ""
    priority: int = 0
    written: str = field(default="", compare=False, repr=False)
    mesh: str = ""
    stated: str = ""
    moves: tuple[int, ...] = ()

    @property
    def cited(self) -> str:
        """In the user's words, with its place."""
        text = f"pin {self.pattern}{_priority_text(self.priority)}: {self.sharding}"
        place = self.source or self.written
        return f"{place}: {text}" if place else text

    @property
    def priorities(self) -> tuple[int, ...]:
        """The user priorities at which parts of it count, ascending."""
        found = {self.priority if d.priority is None else d.priority for d in self.sharding.dims}
        if self.sharding.replicated or self.sharding.unreduced or not found:
            found.add(self.priority)
        return tuple(sorted(found))

    def up_to(self, priority: int) -> "MatchedPin":
        """What counts in the round of this priority: later dimensions are open and empty (S0.52)."""
        dims = tuple(
            d if (self.priority if d.priority is None else d.priority) <= priority else DimensionSharding(is_open=True)
            for d in self.sharding.dims
        )
        sharding = replace(self.sharding, dims=dims)
        if self.priority > priority:
            sharding = replace(sharding, replicated=(), unreduced=())
        return replace(self, sharding=sharding)

    def to_dict(self) -> dict[str, object]:
        """As an entry of ``statements`` in plan.json."""
        return {
            "kind": "pin",
            "pattern": self.pattern,
            "sharding": str(self.sharding),
            "source": self.source,
            "values": list(self.values),
            "outputs": list(self.outputs),
            **({"priority": self.priority} if self.priority else {}),
            **({"mesh": self.mesh, "stated": self.stated} if self.mesh else {}),
        }
