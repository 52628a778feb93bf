"""Compilers that can be asked ahead of time about a machine that is not there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from autoshard.costmodels.machine import Machine
from autoshard.errors import UnsupportedError

_NAMES: Final = ("tpu", "gpu")


@dataclass(frozen=True, slots=True)
class Compiled:
    """What the compiler made of a program: its scheduled HLO text, and what one device holds at its peak, in bytes.

    peak_bytes: None where the compiler does not say.
    """

    text: str
    peak_bytes: int | None


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
    from autoshard.simulation import gpu, tpu

    return Compiler(name, {"tpu": tpu, "gpu": gpu}[name])


def compiler_for(machine: Machine) -> Compiler:
    """The one that knows chips of this vendor; the TPU compiler, which says that it does not, for all others."""
    from autoshard.simulation import gpu

    return compiler_named("gpu" if machine.profile.vendor == gpu.VENDOR else "tpu")


def prepare() -> None:
    """Set what compilers need in the environment, where nothing else is said. Call it before JAX is imported."""
    from autoshard.simulation import tpu

    tpu.prepare()


def compile_staged(staged: Any, whose: str, options: Mapping[str, Any] | None = None) -> tuple[Any, int | None]:
    """(the compiled program, its peak in bytes or None). whose: the compiler, for the error that it refuses."""
    try:
        program = staged.compile(compiler_options=dict(options) if options else None)
    except Exception as error:  # XlaRuntimeError and others; the text says what the compiler found
        raise UnsupportedError(f"{whose} refuses the program: {first_lines(error)}") from error
    return program, getattr(program.memory_analysis(), "peak_memory_in_bytes", None)  # older JAX has no such figure


def first_lines(error: Exception, width: int = 300) -> str:
    """The beginning of an error's text, on one line."""
    return " ".join(str(error).split())[:width]
