"""Whole programs under random schedules: control flow, recomputation, train steps."""

import pytest
from lowered_programs import PROGRAMS, check
from naive_schedule import MESHES
from running import Original

from autoshard.models import build


@pytest.mark.parametrize(
    ("program", "mesh", "uneven"),
    [
        ("mlp", "2x2x2", False),
        ("mlp", "3x2", True),
        ("scan_remat_adamw", "2x4", True),
        ("control_flow", "2x4", False),
        ("control_flow", "6", True),
    ],
)
def test_program_under_a_random_schedule(program, mesh, uneven):
    # S3.11: with no statement at all the results are right
    check(PROGRAMS[program](), MESHES[mesh], 5, uneven=uneven)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_program_under_many_random_schedules(program, mesh, seed):
    check(PROGRAMS[program](), MESHES[mesh], seed, uneven=bool(seed % 2))


TINY = {"batch": 8, "seq": 8, "vocab": 32, "d_model": 16, "heads": 4, "kv_heads": 2, "head_dim": 4, "d_ff": 32}


@pytest.mark.slow
@pytest.mark.parametrize("mesh", ["8", "2x4", "2x2x2"])
@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("mlp", {}),
        ("transformer", TINY),
        ("transformer", {**TINY, "scan": False}),
        ("moe", TINY),
        ("moe", {**TINY, "dispatch": "ragged"}),
        ("resnet", {"image": 8, "width": 4, "classes": 8}),
    ],
    ids=["mlp", "scan", "unrolled", "moe", "ragged moe", "resnet"],
)
def test_library_model_under_random_schedules(model, options, mesh):
    program = build(model, **options)
    original = Original(program.step, program.init(0), next(iter(program.batches(0))))
    for seed in range(2):
        check(original, MESHES[mesh], seed, uneven=bool(seed))
