"""The limit on the memory of a device: an option of its own (``memory_limit``), since it may depend on the machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator

from autoshard.constraints.in_config import ConfigKey, Section, short_form
from autoshard.constraints.kind import Kind
from autoshard.constraints.statement import Matched, with_place
from autoshard.errors import InputError
from autoshard.sharding.mesh import Mesh
from autoshard.units import MemoryAmount, limit_amount, memory_amount


@dataclass(frozen=True, slots=True)
class MemoryLimit(Matched):
    """No device holds more than `bytes` at any point of the program."""

    kind: ClassVar[str] = "memory_limit"
    bytes: int
    source: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.bytes, bool) or not isinstance(self.bytes, int) or self.bytes <= 0:
            raise InputError(f"a memory limit is a positive number of bytes per device, found {self.bytes}")

    def __str__(self) -> str:
        return f"memory limit: {self.bytes} bytes per device"

    @property
    def cited(self) -> str:
        """The limit in words, with its place."""
        return with_place(str(self), self.source)

    @property
    def told(self) -> str:
        """The limit with its place in a file, for answers."""
        return with_place(f"memory limit {self.bytes} bytes per device", self.source)

    def to_dict(self) -> dict[str, Any]:
        """The limit as an entry of ``statements`` in plan.json."""
        return {"kind": self.kind, "bytes": self.bytes, "source": self.source}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], mesh: Mesh | None = None) -> Self:
        """The inverse of `to_dict`."""
        return cls(data["bytes"], str(data.get("source", "")))


Limit = Annotated[MemoryAmount | Literal["none"], BeforeValidator(limit_amount)]
Memory = Annotated[MemoryAmount, BeforeValidator(memory_amount)]


class LimitSection(Section):
    """Limits in bytes per device, on the device's own memory and on the host's.

    device: ``none`` for no limit; None where nothing is stated, and the limit is the room that the device has.
    """

    device: Limit | None = None
    pinned_host: Memory | None = None


def _limits(limit: Any) -> Any:
    """An amount for device memory, or amounts by kind."""
    if not isinstance(limit, Mapping):
        return None if limit is None else {"device": limit_amount(limit)}
    return limit


KIND = Kind(
    MemoryLimit,
    config=ConfigKey(
        "memory_limit", Annotated[LimitSection | None, short_form(_limits, {"type": ["string", "number"]})], None
    ),
)
