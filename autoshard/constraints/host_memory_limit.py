"""The limit on what the host holds for each device: ``pinned_host`` in the option ``memory_limit``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from autoshard.constraints.kind import Kind
from autoshard.constraints.statement import Matched, with_place
from autoshard.errors import InputError
from autoshard.sharding.mesh import Mesh


@dataclass(frozen=True, slots=True)
class HostMemoryLimit(Matched):
    """The host holds no more than `bytes` for each device. memory: which memory of the host."""

    kind: ClassVar[str] = "host_memory_limit"
    bytes: int
    source: str = ""
    memory: str = "pinned_host"

    def __post_init__(self) -> None:
        if isinstance(self.bytes, bool) or not isinstance(self.bytes, int) or self.bytes < 0:
            raise InputError(f"a limit on host memory is a number of bytes per device, found {self.bytes}")

    def __str__(self) -> str:
        return f"host memory limit: {self.bytes} bytes per device"

    @property
    def cited(self) -> str:
        """The limit in words, with its place."""
        return with_place(str(self), self.source)

    @property
    def told(self) -> str:
        """The limit with its place in a file, for answers."""
        return with_place(f"host memory limit {self.bytes} bytes per device", self.source)

    def to_dict(self) -> dict[str, Any]:
        """The limit as an entry of ``statements`` in plan.json."""
        return {"kind": self.kind, "memory": self.memory, "bytes": self.bytes, "source": self.source}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], mesh: Mesh | None = None) -> Self:
        """The inverse of `to_dict`."""
        return cls(data["bytes"], str(data.get("source", "")), str(data.get("memory", "pinned_host")))


KIND = Kind(HostMemoryLimit)
