"""What a user states and the answer must hold: pins on values and a limit on memory."""

from dataclasses import dataclass

from autoshard.errors import InputError, ShardingError
from autoshard.sharding.tensor_sharding import TensorSharding


@dataclass(frozen=True, slots=True)
class Pin:
    """Every value that `pattern` addresses has this sharding. Hard: it holds in the plan, or there is no plan.

    pattern: which values (see `autoshard.constraints.patterns`): ``batch/tokens``, ``state/params/*/wq``,
        ``out/0/**``, ``@attn_out``, ``model.py:123/dot_general``.
    sharding: in Shardy's notation, ``[{"data"}, {}]``. A closed dimension ``{}`` is not cut at all, an open
        one ``{"data", ?}`` is cut by data first and may gain more.
    source: where it was written, for messages (``config.yaml:12:3``).

    >>> str(Pin("batch/tokens", '[{"data"}, {}]'))
    'pin batch/tokens: [{"data"}, {}]'
    """

    pattern: str
    sharding: TensorSharding | str
    source: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str) or not self.pattern.strip():
            raise InputError(f"a pin needs a pattern such as batch/tokens, found {self.pattern!r}")
        if isinstance(self.sharding, str):
            try:
                object.__setattr__(self, "sharding", TensorSharding.from_text(self.sharding))
            except ShardingError as error:
                raise ShardingError(f"{self.where}: {error}") from None
        elif not isinstance(self.sharding, TensorSharding):
            raise InputError(
                f"{self.where}: the sharding must be text such as "
                f"'[{{\"data\"}}, {{}}]' or a TensorSharding, found {self.sharding!r}"
            )

    @property
    def parsed(self) -> TensorSharding:
        """The sharding, parsed (it always is, once the pin exists)."""
        assert isinstance(self.sharding, TensorSharding)
        return self.sharding

    @property
    def where(self) -> str:
        """How messages name this pin: its place where known, and its pattern."""
        return f"{self.source}: pin {self.pattern!r}" if self.source else f"pin {self.pattern!r}"

    def __str__(self) -> str:
        return f"pin {self.pattern}: {self.sharding}"


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
    """

    pattern: str
    sharding: TensorSharding
    values: tuple[int, ...]
    outputs: tuple[int, ...]
    source: str = ""

    def to_dict(self) -> dict[str, object]:
        """As an entry of ``statements`` in plan.json."""
        return {
            "kind": "pin",
            "pattern": self.pattern,
            "sharding": str(self.sharding),
            "source": self.source,
            "values": list(self.values),
            "outputs": list(self.outputs),
        }
