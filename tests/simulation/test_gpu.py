"""XLA's compiler for GPUs: what is read in its programs, how kernels are timed, and what it makes of a plan."""

import importlib.util
import sys
from math import prod
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autoshard
from autoshard.api.simulate import simulate
from autoshard.costmodels import load_profile, place_mesh
from autoshard.costmodels.machine import Machine
from autoshard.errors import UnsupportedError
from autoshard.simulation import ahead, gpu
from autoshard.simulation.compiled import Compiled
from autoshard.simulation.libraries import library_flop, unknown_call
from autoshard.simulation.scheduled import Instruction, Module, read_module
from autoshard.simulation.timeline import timeline
from autoshard.simulation.work import GPU_KERNELS, Worker

needs_plugin = pytest.mark.skipif(gpu.plugin() is None, reason="JAX's CUDA plugin is not installed")

MATMUL = """HloModule m, is_scheduled=true, num_partitions=1

ENTRY %main (a: bf16[256,512], b: bf16[512,1024]) -> bf16[256,1024] {
  %a = bf16[256,512]{1,0} parameter(0)
  %b = bf16[512,1024]{1,0} parameter(1)
  %c = (bf16[256,1024]{1,0}, s8[33554432]{0}) custom-call(%a, %b), custom_call_target="__cublas$lt$matmul", \
backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],\
"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]}}}
  ROOT %r = bf16[256,1024]{1,0} get-tuple-element(%c), index=0
}
"""

CONVOLUTIONS = """HloModule m, is_scheduled=true, num_partitions=1

ENTRY %main (x: f32[8,16,16,32], w: f32[64,3,3,32], g: f32[8,16,16,64]) -> f32[8,16,16,64] {
  %x = f32[8,16,16,32]{3,2,1,0} parameter(0)
  %w = f32[64,3,3,32]{3,2,1,0} parameter(1)
  %g = f32[8,16,16,64]{3,2,1,0} parameter(2)
  %f = (f32[8,16,16,64]{3,2,1,0}, u8[0]{0}) custom-call(%x, %w), window={size=3x3 pad=1_1x1_1}, \
dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$convForward"
  %i = (f32[8,16,16,32]{3,2,1,0}, u8[0]{0}) custom-call(%g, %w), window={size=3x3 pad=1_1x1_1}, \
dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$convBackwardInput"
  %k = (f32[64,3,3,32]{3,2,1,0}, u8[0]{0}) custom-call(%x, %g), window={size=3x3 pad=1_1x1_1}, \
dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$convBackwardFilter"
  ROOT %r = f32[8,16,16,64]{3,2,1,0} get-tuple-element(%f), index=0
}
"""

SLICES = """HloModule m, is_scheduled=true, num_partitions=1

%sliced (p: f32[64,1024], at: s32[]) -> f32[1,1024] {
  %p = f32[64,1024]{1,0} parameter(0)
  %at = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %d = f32[1,1024]{1,0} dynamic-slice(%p, %at, %zero), dynamic_slice_sizes={1,1024}
}

%renamed (q: f32[65536]) -> f32[1024] {
  %q = f32[65536]{0} parameter(0)
  %as = f32[64,1024]{1,0} bitcast(%q)
  %row = f32[1,1024]{1,0} slice(%as), slice={[3:4], [0:1024]}
  ROOT %flat = f32[1024]{0} bitcast(%row)
}

%added (big: f32[4096,1024], rows: s32[8,1], few: f32[8,1024]) -> f32[4096,1024] {
  %big = f32[4096,1024]{1,0} parameter(0)
  %rows = s32[8,1]{1,0} parameter(1)
  %few = f32[8,1024]{1,0} parameter(2)
  ROOT %s = f32[4096,1024]{1,0} scatter(%big, %rows, %few), to_apply=%sum
}

ENTRY %main (p: f32[64,1024], at: s32[], q: f32[65536], big: f32[4096,1024], rows: s32[8,1], few: f32[8,1024]) -> f32[1024] {
  %p = f32[64,1024]{1,0} parameter(0)
  %at = s32[] parameter(1)
  %q = f32[65536]{0} parameter(2)
  %big = f32[4096,1024]{1,0} parameter(3)
  %rows = s32[8,1]{1,0} parameter(4)
  %few = f32[8,1024]{1,0} parameter(5)
  %start = ((f32[64,1024]{1,0}, s32[]), f32[1,1024]{1,0}, u32[]) fusion-start(%p, %at), kind=kLoop, calls=%sliced
  %done = f32[1,1024]{1,0} fusion-done(%start)
  %add = f32[4096,1024]{1,0} fusion(%big, %rows, %few), kind=kLoop, calls=%added
  ROOT %out = f32[1024]{0} fusion(%q), kind=kLoop, calls=%renamed
}
"""  # noqa: E501

HIDDEN = """HloModule m, is_scheduled=true, num_partitions=8

ENTRY %main (x: bf16[4096,4096], w: bf16[512,4096]) -> bf16[4096,4096] {
  %x = bf16[4096,4096]{1,0} parameter(0)
  %w = bf16[512,4096]{1,0} parameter(1)
  %g = (bf16[512,4096]{1,0}, bf16[4096,4096]{1,0}) all-gather-start(%w), channel_id=1, \
replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}, use_global_device_ids=true
  %y = bf16[4096,4096]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %d = bf16[4096,4096]{1,0} all-gather-done(%g)
  ROOT %z = bf16[4096,4096]{1,0} dot(%y, %d), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.fixture(scope="module")
def node() -> Machine:
    return place_mesh(load_profile("h100"), {"x": 8})


@pytest.fixture(scope="module")
def one() -> Machine:
    return place_mesh(load_profile("h100"), {"x": 1})


def instruction(module: Module, name: str) -> Instruction:
    return module.computations[module.entry].instructions[name]


def test_a_call_of_cublas_is_a_matmul_and_its_scratch_space_is_not_written(one: Machine) -> None:
    module = read_module(MATMUL)
    entry = module.computations[module.entry]
    assert library_flop(entry.instructions["c"], entry) == ("bfloat16", 2.0 * 256 * 512 * 1024)
    work = Worker(module, one).of(entry.instructions["c"], entry)
    assert work.bytes == 2 * (256 * 512 + 512 * 1024 + 256 * 1024)


@pytest.mark.parametrize("name", ["f", "i", "k"])
def test_a_convolution_and_its_two_gradients_by_cudnn_have_the_same_flop(name: str) -> None:
    module = read_module(CONVOLUTIONS)
    entry = module.computations[module.entry]
    taps = (3 * 16 - 2) ** 2  # of 3 at each of 16 places, without the padding
    assert library_flop(entry.instructions[name], entry) == ("float32", 2.0 * 8 * taps * 32 * 64)


def test_calls_that_nothing_here_knows_are_told_by_name() -> None:
    module = read_module(MATMUL.replace("__cublas$lt$matmul", "my_kernel"))
    assert unknown_call(instruction(module, "c")) == "my_kernel"
    assert unknown_call(instruction(read_module(MATMUL), "c")) == ""


@pytest.mark.parametrize(
    ("name", "moved"),
    [("start", 2 * 4096 + 4), ("out", 2 * 4096), ("add", 8 * 4 + 2 * 8 * 4096)],
    ids=["an asynchronous slice", "a slice under another name", "rows that are added in place"],
)
def test_only_the_part_that_is_touched_crosses_memory(one: Machine, name: str, moved: int) -> None:
    module = read_module(SLICES)
    assert Worker(module, one).of(instruction(module, name), module.computations[module.entry]).bytes == moved


def test_kernels_are_timed_as_they_were_measured(one: Machine) -> None:
    module = read_module(MATMUL)
    entry = module.computations[module.entry]
    work = Worker(module, one).of(entry.instructions["c"], entry)
    at_peak = work.flop / one.flops_per_s("bfloat16")
    at_rate = work.bytes / one.profile.memory.bandwidth.value
    busy = max(at_peak / GPU_KERNELS.matmul["bf16"], at_rate / GPU_KERNELS.matmul_memory)
    assert work.seconds("expected") == pytest.approx(busy + GPU_KERNELS.matmul_start_s)
    assert work.seconds("roofline") == pytest.approx(max(at_peak, at_rate))


TURNED = """HloModule t, entry_computation_layout={(f32[1024,1,64]{2,1,0})->f32[64,1,1024]{2,1,0}}

%loop (p: f32[IN]) -> f32[OUT] {
  %p = f32[IN]{2,1,0} parameter(0)
  ROOT %t = f32[OUT]{2,1,0} transpose(%p), dimensions={ORDER}
}

ENTRY %main (a: f32[IN]) -> f32[OUT] {
  %a = f32[IN]{2,1,0} parameter(0)
  ROOT %f = f32[OUT]{2,1,0} fusion(%a), kind=KIND, calls=%loop
}
"""


@pytest.mark.parametrize(
    ("of", "out", "order", "kind", "reads"),
    [
        ("1024,1,64", "64,1,1024", "2,1,0", "kLoop", 8),
        ("1024,1,3", "3,1,1024", "2,1,0", "kLoop", 3),
        ("1024,1,64", "64,1,1024", "2,1,0", "kInput", 1),
        ("1024,1,64", "1,1024,64", "1,0,2", "kLoop", 1),
        ("1024,1,64", "1024,64,1", "0,2,1", "kLoop", 1),
    ],
    ids=["a sector for each element", "short rows", "through shared memory", "rows stay rows", "a dimension of one"],
)
def test_loops_that_turn_rows_read_sectors(one: Machine, of: str, out: str, order: str, kind: str, reads: int) -> None:
    module = read_module(TURNED.replace("KIND", kind).replace("ORDER", order).replace("OUT", out).replace("IN", of))
    entry = module.computations[module.entry]
    work = Worker(module, one).of(entry.instructions["f"], entry)
    array_s = 4 * prod(int(n) for n in of.split(",")) / one.profile.memory.bandwidth.value
    due_s = 2 * array_s / GPU_KERNELS.memory + (reads - 1) * array_s / GPU_KERNELS.cache + GPU_KERNELS.start_s
    assert work.seconds("expected") == pytest.approx(due_s)


def test_kernels_of_a_calibrated_machine_are_timed_by_the_rates_of_its_chip(one: Machine, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "base: h100\nname: mine\nchip: h100\nsources: {mine: {title: measured, date: '2026-11'}}\n"
        "peak_flops: {bf16: {value: 7.0e+14, unit: FLOP/s, source: mine}}\n"
    )
    slower = place_mesh(load_profile(file), {"x": 1})
    module = read_module(MATMUL.replace("1024", "8192").replace("512", "4096").replace("256", "8192"))  # FLOP bound it
    entry = module.computations[module.entry]
    plain, calibrated = (Worker(module, m).of(entry.instructions["c"], entry) for m in (one, slower))
    assert calibrated.roofline_s > plain.roofline_s
    assert calibrated.seconds("expected") == plain.seconds("expected")


def test_a_gather_that_runs_beside_a_matmul_is_waited_for_no_longer_than_it_outlasts_it(node: Machine) -> None:
    line = timeline(read_module(HIDDEN), node)
    (gather,) = line.collectives()
    matmul = next(e for e in line.events if e.name == "y")
    assert gather.bytes == 2 * 4096 * 4096
    assert line.exposed_s == pytest.approx(max(0.0, gather.seconds - matmul.seconds))


@pytest.mark.parametrize("name", sorted(gpu.CHIPS))
def test_a_described_chip_has_the_memory_of_its_profile(name: str) -> None:
    machine = place_mesh(load_profile(name), {"x": 8})
    text = gpu.described(machine)
    assert f"memory_bandwidth: {machine.profile.memory.bandwidth.value:.0f}" in text
    assert f"device_memory_size: {machine.profile.memory.bytes.value:.0f}" in text


@pytest.mark.parametrize("name", ["v100", "mi300x", "tpu_v5e"])
def test_a_chip_that_the_compiler_does_not_know_is_told_with_those_that_it_knows(name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"no ahead-of-time compiler for {name}.*h100, h200"):
        gpu.devices_of(place_mesh(load_profile(name), {"x": 4}))


def test_without_the_plugin_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch, node: Machine) -> None:
    monkeypatch.setattr(gpu, "plugin", lambda: None)
    assert "pip install 'autoshard[gpu]'" in (gpu.missing(node) or "")


def test_a_calibrated_machine_is_compiled_for_as_its_chip(node: Machine) -> None:
    machine = place_mesh(load_profile("h100@compiler"), {"x": 8})
    assert ahead.compiler_for(machine).name == "gpu"
    assert gpu.described(machine) == gpu.described(node)


def step(w1: jax.Array, w2: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    def loss(w1: jax.Array, w2: jax.Array) -> jax.Array:
        return jnp.mean(jnp.square((jax.nn.relu(x @ w1) @ w2).astype(jnp.float32)))

    g1, g2 = jax.grad(loss, argnums=(0, 1))(w1, w2)
    return w1 - 0.1 * g1, w2 - 0.1 * g2


@needs_plugin
def test_the_compiler_for_gpus_runs_the_planned_collectives_of_two_nodes() -> None:
    specs = [jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((1024, 4096), (4096, 1024), (8192, 1024))]
    plan = autoshard.plan(step, *specs, mesh={"data": 2, "model": 8}, hardware="h100", effort=0.2)
    found = simulate(plan, compiler="gpu")
    assert found.scheduler.startswith("XLA for GPUs (jax-cuda")
    assert found.changes == ()
    assert found.found().keys() == found.planned.keys()
    assert found.notes[0] == gpu.NOTES[0]
    assert set(found.clocks) == {"expected", "roofline"}
    assert found.seconds == found.clocks["expected"].seconds > found.clocks["roofline"].seconds


@needs_plugin
def test_a_mesh_in_its_own_order_of_devices_keeps_that_order(node: Machine) -> None:
    plain = gpu.devices_of(node)
    turned = gpu.devices_of(node, tuple(reversed(range(8))))
    assert [d.id for d in turned] == [d.id for d in reversed(plain)]


@needs_plugin
def test_a_program_that_holds_more_than_the_device_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((256, 512), (512, 256), (1024, 256))]
    plan = autoshard.plan(step, *specs, mesh={"x": 4}, hardware="h100", effort=0.2)
    monkeypatch.setattr(gpu, "compiled", lambda staged: Compiled(MATMUL, 81 * 10**9))
    with pytest.raises(UnsupportedError, match=r"as explicit the compiled program holds 75.44 GiB .* of 74.51 GiB"):
        simulate(plan, compiler="gpu")


@pytest.mark.parametrize(("hardware", "limit", "doubted"), [("h100", 36 << 20, True), ("h100", 400 << 20, False),
                                                            ("tpu_v5e", 36 << 20, False)])  # fmt: skip
def test_a_plan_for_gpus_says_where_its_memory_is_in_doubt(hardware: str, limit: int, doubted: bool) -> None:
    specs = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((1024, 1024), (1024, 1024), (4096, 1024))]
    plan = autoshard.plan(step, *specs, mesh={"x": 4}, hardware=hardware, memory_limit=limit, effort=0.2)
    assert hardware == "tpu_v5e" or (limit / 1.25 < plan.memory.peak_bytes) is doubted
    said = "memory is counted as XLA for GPUs holds it; it held up to 25% more (docs/memory.md#on-gpus)"
    assert any(note.startswith(said) for note in plan.notes) is doubted


def test_a_profile_of_a_gpu_without_rules_of_its_own_is_doubted_more() -> None:
    specs = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((1024, 1024), (1024, 1024), (4096, 1024))]
    h100 = load_profile("h100").model_copy(update={"name": "mine", "memory_rules": None})
    machine = place_mesh(h100, {"x": 4}, None)
    plan = autoshard.plan(step, *specs, mesh={"x": 4}, hardware=machine, memory_limit=40 << 20, effort=0.2)
    assert any("XLA for GPUs held up to 2.3 times as much" in note for note in plan.notes)


@pytest.fixture(scope="module")
def measured() -> ModuleType:
    """The experiment with the kernels that ran on an H100."""
    place = Path(__file__).resolve().parents[2] / "experiments" / "gpu" / "kernels.py"
    spec = importlib.util.spec_from_file_location("gpu_kernels", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    sys.modules["gpu_kernels"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


def test_the_shares_of_kernels_are_those_that_ran(measured: ModuleType) -> None:
    assert measured.share("loop") == pytest.approx(GPU_KERNELS.memory, abs=0.02)
    assert measured.share("Triton beside matmuls") == pytest.approx(GPU_KERNELS.tiled_memory, abs=0.02)
    assert min(measured.rates("loop with a transpose")) > 0.7
    assert np.median(measured.matmul_shares()) == pytest.approx(GPU_KERNELS.matmul["bf16"], abs=0.02)


def test_loops_that_turned_rows_took_the_time_of_their_sectors(measured: ModuleType) -> None:
    ran = [k for k in measured.kernels() if k.kind == "loop that turns rows" and k.work.bytes > measured.LARGE]
    assert len(ran) == 2
    for kernel in ran:
        assert kernel.work.seconds("expected") == pytest.approx(kernel.seconds, rel=0.05)


def test_programs_that_ran_are_timed_within_a_quarter_and_most_closer(measured: ModuleType, one: Machine) -> None:
    ran = measured.programs().values()
    off = [abs(timeline(read_module(p["text"]), one).seconds / p["seconds"] - 1) for p in ran]
    assert np.median(off) < 0.05 < max(off) < 0.25
