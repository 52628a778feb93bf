"""Compilers that can be asked ahead of time about a machine that is not there."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from autoshard.costmodels.machine import Machine
from autoshard.errors import InputError, UnsupportedError
from autoshard.simulation import gpu, tpu
from autoshard.simulation.compiled import Compiled

ASKED: Final = ("auto", "tpu", "gpu", "own")
"""Who may be asked for a schedule: the compiler of the machine, a compiler by name, our own scheduler."""


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


def judge_of(machine: Machine, asked: str) -> tuple[Compiler | None, str]:
    """(The compiler to ask, or None for our own scheduler; why the machine's compiler cannot be asked, if that is why).

    asked: one of `ASKED`. Raises `InputError` for anything else, `UnsupportedError` where a named compiler cannot be
    asked.
    """
    if asked not in ASKED:
        raise InputError(f"no compiler {asked!r}; there are {', '.join(ASKED)}")
    if asked == "own":
        return None, ""
    judge = compiler_for(machine) if asked == "auto" else compiler_named(asked)
    why = judge.missing(machine)
    if why is None:
        return judge, ""
    if asked != "auto":
        raise UnsupportedError(f"--compiler {asked}: {why}")
    return None, why


def prepare() -> None:
    """Set what compilers need in the environment, where nothing else is said. Call it before JAX is imported."""
    tpu.prepare()
