"""XLA's compiler for NVIDIA GPUs, ahead of time: a plan's program compiled for GPUs that are not there.

Needs JAX's CUDA plugin and no GPU, no driver: ``pip install 'autoshard[gpu]'``. The compiler gets a description of the
chip in the place of a device. What it would measure on one (which of several kernels of a matmul is the quickest) it
cannot, so matmuls are left to cuBLAS, whose kernels are the quickest ones mostly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata, util
from typing import Any, Final

from autoshard.costmodels.load import load_profile
from autoshard.costmodels.machine import Machine
from autoshard.costmodels.place import place_mesh
from autoshard.errors import UnsupportedError
from autoshard.simulation.compiled import Compiled, compile_staged, first_lines
from autoshard.simulation.places import in_own_order, places

VENDOR: Final = "nvidia"
PLUGINS: Final = ("xla_cuda13", "xla_cuda12")
"""JAX's plugins with this compiler, the newest first."""

OPTIONS: Final[Mapping[str, Any]] = {"xla_gpu_enable_triton_gemm": False}
NOTES: Final = ("nothing was tuned on a GPU: matmuls are timed as cuBLAS ran them on an H100",)


@dataclass(frozen=True, slots=True)
class Chip:
    """What the compiler asks of a device (XLA, GpuTargetConfigProto).

    capability: CUDA compute capability. cores: multiprocessors. lanes: float32 units of one. shared, block_shared:
    bytes of shared memory of a multiprocessor, and at most of a block. cache: bytes of L2. clock_ghz: at its highest.
    """

    name: str
    capability: int
    cores: int
    lanes: int
    shared: int
    block_shared: int
    cache: int
    clock_ghz: float


CHIPS: Final[Mapping[str, Chip]] = {
    "a100_40": Chip("NVIDIA A100-SXM4-40GB", 8, 108, 64, 167936, 166912, 41943040, 1.41),
    "a100_80": Chip("NVIDIA A100-SXM4-80GB", 8, 108, 64, 167936, 166912, 41943040, 1.41),
    "h100": Chip("NVIDIA H100 80GB HBM3", 9, 132, 128, 233472, 232448, 52428800, 1.98),
    "h200": Chip("NVIDIA H200", 9, 132, 128, 233472, 232448, 52428800, 1.98),
    "b200": Chip("NVIDIA B200", 10, 148, 128, 233472, 232448, 132644864, 1.965),
    "gb200_nvl72": Chip("NVIDIA GB200", 10, 152, 128, 233472, 232448, 135528448, 2.062),
}
"""By profile. The H100's figures were read off one; the others stand in openxla/xla, target_config/specs (2026)."""


def missing(machine: Machine) -> str | None:
    """Why the GPU compiler cannot be asked about this machine; None if it can."""
    name = machine.profile.chip_name
    if name not in CHIPS:
        return (
            f"there is no ahead-of-time compiler for {name}; for {', '.join(CHIPS)} there is one in JAX's CUDA plugin"
        )
    if plugin() is None:
        return "the GPU compiler is not installed: pip install 'autoshard[gpu]' brings it, no GPU is needed"
    why = _silent()
    return None if why is None else f"JAX did not load its CUDA plugin ({why}): without a GPU, set JAX_PLATFORMS=cpu"


@cache
def _silent() -> str | None:
    """Why JAX, as it was set up in this process, describes no GPU; None where it does."""
    try:
        _described(place_mesh(load_profile("h100"), {"x": 1}), "1x1x1")
    except Exception as error:  # of several types
        return first_lines(error, 120)
    return None


def _described(machine: Machine, topology: str) -> list[Any]:
    from jax.experimental import topologies

    found = topologies.get_topology_desc(
        platform="cuda", topology_name="", target_config=described(machine), topology=topology
    )
    return sorted(found.devices, key=lambda device: device.id)


def plugin() -> str | None:
    """JAX's plugin with the compiler, as installed; None where there is none."""
    if util.find_spec("jax_plugins") is None:
        return None
    return next((name for name in PLUGINS if util.find_spec(f"jax_plugins.{name}") is not None), None)


def compiler_version() -> str:
    """``XLA for GPUs (jax-cuda13-pjrt 0.10.2)``, as installed."""
    package = f"jax-{(plugin() or PLUGINS[0]).removeprefix('xla_')}-pjrt"
    return f"XLA for GPUs ({package} {metadata.version(package)})"


def described(machine: Machine) -> str:
    """The chip of a machine as the text of the compiler's target configuration (protocol buffers)."""
    chip, memory = CHIPS[machine.profile.chip_name], machine.profile.memory
    extension = "" if chip.capability < 9 else " feature_extension: ACCELERATED_FEATURES"
    return f"""
gpu_device_info {{
  threads_per_block_limit: 1024  threads_per_warp: 32  threads_per_core_limit: 2048
  shared_memory_per_block: 49152  shared_memory_per_core: {chip.shared}
  shared_memory_per_block_optin: {chip.block_shared}
  core_count: {chip.cores}  fpus_per_core: {chip.lanes}  clock_rate_ghz: {chip.clock_ghz}
  block_dim_limit_x: 2147483647  block_dim_limit_y: 65535  block_dim_limit_z: 65535
  memory_bandwidth: {memory.bandwidth.value:.0f}  device_memory_size: {memory.bytes.value:.0f}
  l2_cache_size: {chip.cache}
  cuda_compute_capability {{ major: {chip.capability}{extension} }}
  registers_per_core_limit: 65536  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
runtime_version {{ major: {13 if plugin() == PLUGINS[0] else 12} }}
device_description_str: "{chip.name}"
"""


def devices_of(machine: Machine, device_ids: Sequence[int] | None = None) -> list[Any]:
    """Described (not real) GPUs, in the order that `Lowered.jax_mesh` wants them.

    device_ids: the mesh's own order of devices, if it has one. Raises `UnsupportedError` where the compiler refuses
    the description.
    """
    if (why := missing(machine)) is not None:
        raise UnsupportedError(why)
    where = places(machine)
    nodes = 1 + max(place[0] for place in where)
    of_node = machine.num_devices // nodes
    try:
        by_number = _described(machine, f"1x{nodes}x{of_node}")
    except Exception as error:  # of several types: a description that this compiler does not know
        why = first_lines(error)
        raise UnsupportedError(f"the GPU compiler describes no {machine.num_devices} GPUs: {why}") from error
    if len(by_number) != machine.num_devices:
        raise UnsupportedError(f"the GPU compiler describes {len(by_number)} GPUs, the plan has {machine.num_devices}")
    return in_own_order([by_number[domain * of_node + place[0]] for domain, *place in where], device_ids)


def compiled(staged: Any) -> Compiled:
    """What the compiler makes of what ``jax.jit(...).lower(...)`` gave; takes seconds.

    Raises `UnsupportedError` with the compiler's reason where it refuses the program.
    """
    program, peak = compile_staged(staged, "the GPU compiler", OPTIONS)
    return Compiled(str(program.as_text()), peak)
