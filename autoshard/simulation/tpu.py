"""The TPU compiler, ahead of time: a plan's program compiled for a slice that is not there, as scheduled HLO text.

Needs the package `libtpu` (``pip install 'autoshard[tpu]'``) and no TPU. The mesh is laid on the slice as the plan's
machine lays it: position *i* of the mesh is the chip whose coordinates `Machine.layout` gives.
"""

import os
import tempfile
from collections.abc import Mapping, MutableMapping, Sequence
from importlib import metadata, util
from itertools import permutations
from math import prod
from pathlib import Path
from typing import Any, Final

from autoshard.costmodels.machine import Machine
from autoshard.errors import UnsupportedError
from autoshard.simulation.compiled import Compiled, compile_staged, first_lines
from autoshard.simulation.places import in_own_order, places

TOPOLOGIES: Final[Mapping[str, str]] = {
    "tpu_v5e": "v5e",
    "tpu_v5p": "v5p",
    "tpu_v6e": "v6e",
}
"""Profile -> the name under which libtpu knows the chip; those of which a device of JAX is a whole chip there."""

NOTES: Final[tuple[str, ...]] = ()
"""What is taken otherwise than on a TPU: nothing that we know of."""

ENVIRONMENT: Final[Mapping[str, str]] = {
    "JAX_PLATFORMS": "cpu",  # programs run on the CPU; the TPU is only compiled for
    "TPU_SKIP_MDS_QUERY": "1",  # no metadata server is asked what this machine is
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # several processes may compile at once
}
"""What libtpu needs in the environment where there is no TPU; set before JAX is imported."""


def prepare(environment: MutableMapping[str, str] = os.environ) -> None:
    """Set `ENVIRONMENT`, where nothing else is said. Call it before JAX is imported."""
    for name, value in ENVIRONMENT.items():
        environment.setdefault(name, value)


def missing(machine: Machine) -> str | None:
    """Why the TPU compiler cannot be asked about this machine; None if it can."""
    name = machine.profile.chip_name
    if name not in TOPOLOGIES:
        return f"there is no ahead-of-time compiler for {name}; for {', '.join(TOPOLOGIES)} there is one in libtpu"
    if util.find_spec("libtpu") is None:
        return "the TPU compiler is not installed: pip install 'autoshard[tpu]' brings libtpu, no TPU is needed"
    return None


def compiler_version() -> str:
    """``libtpu 0.0.42``, as installed."""
    return f"libtpu {metadata.version('libtpu')}"


def devices_of(machine: Machine, device_ids: Sequence[int] | None = None) -> list[Any]:
    """Described (not real) TPU devices, in the order that `Lowered.jax_mesh` wants them.

    device_ids: the mesh's own order of devices, if it has one. Raises `UnsupportedError` where the compiler does not
    know a slice of the machine's shape.
    """
    if (why := missing(machine)) is not None:
        raise UnsupportedError(why)
    prepare()
    from jax.experimental import topologies

    shape = machine.slice_shape
    slices = machine.num_devices // prod(shape)
    lengths = sorted(shape, key=lambda length: (length == 1, length))  # four v5p are 2x2x1, not 1x2x2
    name = f"{TOPOLOGIES[machine.profile.chip_name]}:{'x'.join(map(str, lengths))}"
    try:
        topology = topologies.get_topology_desc(
            platform="tpu", topology_name=name, **({"num_slices": slices} if slices > 1 else {})
        ).devices
    except Exception as error:  # libtpu's own errors, of several types
        raise UnsupportedError(f"the TPU compiler has no slice {name} ({str(error).splitlines()[0]})") from error
    return _in_mesh_order(machine, list(topology), device_ids)


def _in_mesh_order(machine: Machine, found: Sequence[Any], device_ids: Sequence[int] | None) -> list[Any]:
    shape = machine.slice_shape
    extent = tuple(max(d.coords[k] for d in found) + 1 for k in range(len(found[0].coords)))
    # a slice may be described with its dimensions in another order, and with one of size 1 behind
    order = next(
        (p for p in permutations(range(len(extent)), len(shape)) if tuple(extent[k] for k in p) == tuple(shape)), None
    )
    if order is None or len(found) != machine.num_devices:
        raise UnsupportedError(
            f"the TPU compiler describes {len(found)} devices as {'x'.join(map(str, extent))}, the plan's machine has "
            f"{machine.num_devices} as {'x'.join(map(str, shape))}"
        )
    at: dict[tuple[int, ...], Any] = {
        (getattr(d, "slice_index", 0) or 0, *(d.coords[k] for k in order)): d for d in found
    }
    return in_own_order([at[place] for place in places(machine)], device_ids)


def scheduled_text(staged: Any) -> str:
    """The text of `compiled`."""
    return compiled(staged).text


def compiled(staged: Any) -> Compiled:
    """What the compiler makes of what ``jax.jit(...).lower(...)`` gave; takes up to minutes.

    Raises `UnsupportedError` with the compiler's reason where it refuses the program (too little memory, for one).
    """
    program, peak = compile_staged(staged, "the TPU compiler")
    try:
        text = program.as_text()
    except Exception as error:  # for v5p and v6e printing fails on some asynchronous calls
        return Compiled(_dumped_text(staged, error), peak)
    if not text:
        raise UnsupportedError("the TPU compiler gave no text")
    return Compiled(str(text), peak)


def _dumped_text(staged: Any, error: Exception) -> str:
    """The text that the compiler writes to a folder: without cycles, and with collectives as they are synchronously."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
        try:
            staged.compile(compiler_options=options)
        except Exception as again:
            raise UnsupportedError(f"the compiled program cannot be printed: {first_lines(error)}") from again
        files = sorted(Path(folder).glob("*after_optimizations.txt"), key=lambda f: f.stat().st_size)
        if not files:
            raise UnsupportedError(f"the compiled program cannot be printed: {first_lines(error)}") from error
        return files[-1].read_text()
