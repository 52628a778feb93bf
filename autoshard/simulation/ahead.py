"""Compilers that can be asked ahead of time about a machine that is not there."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from autoshard.costmodels.machine import Machine
from autoshard.simulation import gpu, tpu
from autoshard.simulation.compiled import Compiled


@dataclass(frozen=True, slots=True)
class Compiler:
    """A compiler, by the module that knows it."""

    name: str
    module: ModuleType

    def missing(self, machine: Machine) -> str | None:
        """Why it cannot be asked about this machine; None if it can."""
        return self.module.missing(machine)

    def version(self) -> str:
        """Its name and version, as installed."""
        return self.module.compiler_version()

    def notes(self) -> tuple[str, ...]:
        """What is not taken as a real device's compiler would take it."""
        return self.module.NOTES

    def devices_of(self, machine: Machine, device_ids: Sequence[int] | None = None) -> list[Any]:
        """Described devices in the order of the mesh; `UnsupportedError` where it does not know such a machine."""
        return self.module.devices_of(machine, device_ids)

    def compiled(self, staged: Any) -> Compiled:
        """What it makes of what ``jax.jit(...).lower(...)`` gave; `UnsupportedError` where it refuses."""
        return self.module.compiled(staged)


def compiler_named(name: str) -> Compiler:
    """``tpu`` or ``gpu``."""
    return Compiler(name, {"tpu": tpu, "gpu": gpu}[name])


def compiler_for(machine: Machine) -> Compiler:
    """The one that knows chips of this vendor; the TPU compiler, which says that it does not, for all others."""
    return compiler_named("gpu" if machine.profile.vendor == gpu.VENDOR else "tpu")


def prepare() -> None:
    """Set what compilers need in the environment, where nothing else is said. Call it before JAX is imported."""
    tpu.prepare()
