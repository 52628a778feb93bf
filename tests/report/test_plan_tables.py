"""What a person reads about a plan, from the data of plan.json alone."""

import jax
import jax.numpy as jnp
import pytest

import autoshard
from autoshard.deadline import clock
from autoshard.report import print_run, summary
from autoshard.report.progress import COMPILING, Progress, describe
from autoshard.report.rows import input_groups, traffic


def small_plan() -> dict:
    """Two layers' weights with their Adam moments and a batch, on 2x4."""
    names = [
        *(f"state/{kind}/layers/{i}/w" for kind in ("params", "opt/0/mu", "opt/0/nu") for i in (0, 1)),
        "batch/x",
    ]
    shapes = [*[[16, 32]] * 6, [8, 16]]
    cut = {"dims": [[0], [1]], "unreduced": []}
    held = [{"what": name, "bytes": 256} for name in names] + [{"what": f"temporary:{i}", "bytes": 8} for i in range(5)]
    return {
        "status": "feasible",
        "objective_s": 0.0123,
        "bound_s": 0.012,
        "gap": 0.0244,
        "notes": ["an unknown op [brackets] was kept whole"],
        "mesh": {"name": "mesh", "axes": {"data": 2, "model": 4}, "device_ids": None, "atoms": ["data", "model"]},
        "hardware": {"name": "tpu_v5e"},
        "statements": [{"kind": "memory_limit", "bytes": 2**30, "source": ""}],
        "program": {
            "name": "small",
            "values": [
                {"id": i, "name": n, "shape": s, "dtype": "float32"}
                for i, (n, s) in enumerate(zip(names, shapes, strict=True))
            ],
            "body": {"args": list(range(7)), "results": [], "ops": []},
            "input_names": names,
        },
        "schedule": {
            "definitions": {**{str(i): cut for i in range(6)}, "6": {"dims": [[0], []], "unreduced": []}},
        },
        "collectives": [
            {"where": "a", "kind": "all_gather", "axes": "model", "bytes": 1024, "seconds": 1e-3, "times": 2},
            {"where": "b", "kind": "all_gather", "axes": "model", "bytes": 2048, "seconds": 2e-3, "times": 1},
            {"where": "c", "kind": "all_reduce", "axes": "data", "bytes": 512, "seconds": 5e-3, "times": 1},
        ],
        "cost": {"compute_s": 0.01, "communication_s": 0.009, "nothing_overlaps_s": 0.019},
        "memory": {"peak_bytes": 3 * 2**20, "where": "dot_general:3 model.py:7", "held": held},
        "baselines": [
            {"name": "fsdp", "objective_s": 0.0246, "peak_bytes": 2**20, "reason": ""},
            {"name": "data", "objective_s": None, "peak_bytes": None, "reason": "over the memory limit"},
        ],
    }


def test_numbered_layers_and_moments_with_one_sharding_are_one_group() -> None:
    weights, batch = input_groups(small_plan())
    assert (weights.label, weights.count, weights.sharding) == ("state/params/layers/*/w", 6, '[{"data"}, {"model"}]')
    assert (batch.label, batch.count, batch.shape) == ("batch/x", 1, (8, 16))


def test_bytes_of_a_group_are_those_one_device_holds() -> None:
    weights, batch = input_groups(small_plan())
    assert weights.local_bytes == 6 * (16 // 2) * (32 // 4) * 4
    assert batch.local_bytes == (8 // 2) * 16 * 4


def test_a_long_path_is_broken_into_lines_and_cuts_no_column_off() -> None:
    plan = small_plan()
    plan["program"]["input_names"][6] = plan["program"]["values"][6]["name"] = "batch/" + "x" * 110
    lines = summary(plan, width=120).splitlines()
    row = next(line for line in lines if line.strip().startswith("batch/xxx"))
    assert '[{"data"}, {}]' in row and row.endswith("256 B")


def test_kinds_of_collectives_are_not_broken_where_other_columns_have_words() -> None:
    x, w = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((64, 2048), (2048, 512)))
    pins = [autoshard.Pin("x", '[{}, {"model"}]'), autoshard.Pin("out", '[{"model"}, {}]')]
    plan = autoshard.plan(lambda x, w: x @ w, x, w, mesh={"model": 4}, hardware="tpu_v5e", constraints=pins)
    table = plan.summary(width=80).partition("arithmetic intensity of the collectives")[2]
    assert "reduce_scatter" in table


def test_moments_with_another_sharding_are_a_group_of_their_own() -> None:
    plan = small_plan()
    plan["schedule"]["definitions"]["0"] = {"dims": [[], []], "unreduced": []}
    assert [g.count for g in input_groups(plan)] == [1, 5, 1]


def test_collectives_are_added_up_by_axes_and_kind_longest_first() -> None:
    first, second = traffic(small_plan())
    assert (first.axes, first.kind, first.count, first.bytes, first.seconds) == ("data", "all_reduce", 1, 512, 5e-3)
    assert (second.axes, second.kind, second.count, second.bytes) == ("model", "all_gather", 3, 2 * 1024 + 2048)


def test_the_summary_tells_proof_shardings_traffic_memory_and_notes() -> None:
    text = summary(small_plan())
    for part in (
        "small on tpu_v5e, mesh data=2 x model=4",
        "status feasible, step 12.3 ms, no plan takes less than 12 ms, gap 2.44%",
        '[{"data"}, {"model"}]',
        "all_reduce",
        "3 MiB per device at the peak of 1 GiB allowed, dot_general:3 model.py:7",
        "and 4 more",
        "over the memory limit",
        "note: an unknown op [brackets] was kept whole",
    ):
        assert part in text, part


def test_a_bound_of_the_last_stage_is_not_told_of_all_plans() -> None:
    told = summary(small_plan() | {"stages": [{}, {}]})
    assert "no plan of the last of 2 stages takes less than 12 ms" in told


def test_why_a_baseline_has_no_plan_is_told_in_the_units_of_the_table() -> None:
    why = "memory: at least 86652887048 bytes are live at once, the limit is 14602888806 bytes"
    baseline = {"name": "data", "objective_s": None, "peak_bytes": None, "reason": why}
    told = summary(small_plan() | {"baselines": [baseline]}, width=160)
    assert "at least 80.7 GiB are live at once, the limit is 13.6 GiB" in told


def test_no_line_is_wider_than_asked() -> None:
    for width in (60, 80, 120):
        assert max(map(len, summary(small_plan(), width=width).splitlines())) <= width


def test_a_plan_without_collectives_says_so() -> None:
    assert "collectives: none" in summary(small_plan() | {"collectives": []})


def test_losses_say_whether_they_fell(capsys) -> None:
    print_run([3.0, 2.0, 1.0])
    assert "fell: 3.0000 -> 1.0000" in capsys.readouterr().out
    print_run([1.0, 2.0])
    assert "did not fall" in capsys.readouterr().out


def test_progress_elsewhere_than_on_a_terminal_is_one_line_a_stage(capsys) -> None:
    with Progress() as progress:
        for event in ("tracing", "solving: 1", "solving: 2", "decoding"):
            progress(event)
    assert [line.split("s  ")[1] for line in capsys.readouterr().err.splitlines()] == [
        "tracing",
        "solving: 1",
        "decoding",
    ]


def test_progress_says_once_that_our_own_code_is_compiled(capsys) -> None:
    with Progress() as progress:
        progress("tracing")
        clock.stand()
        clock.stand()
        progress("tracing")
    assert [line.split("s  ")[1] for line in capsys.readouterr().err.splitlines()] == ["tracing", COMPILING]


def test_quiet_progress_says_nothing(capsys) -> None:
    with Progress(quiet=True) as progress:
        progress("tracing")
        clock.stand()
    assert capsys.readouterr().err == ""


def test_a_line_of_progress_has_its_stage_before_the_colon() -> None:
    assert describe("training: step 3 of 20")[0] == "training"


def memory_of(peak: int, allocation: int, usable: int, fits: bool) -> dict:
    return {
        "peak_bytes": peak, "where": "", "time": 0, "held": [], "device_bytes": 16 * 2**30, "usable_bytes": usable,
        "allocation_bytes": allocation, "fits": fits,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("peak", "said"),
    [
        (10.0, "fits: 11.5 GiB with headroom, the device has 16 GiB, of which programs get 15.75 GiB"),
        (
            14.0,
            "may not fit: 16.1 GiB with headroom, the device has 16 GiB, of which programs get 15.75 GiB; a memory_",
        ),
        (15.9, "does not fit: 18.28 GiB with headroom, the device has 16 GiB, of which programs get 15.75 GiB"),
    ],
)
def test_the_summary_says_whether_the_device_has_room(peak, said) -> None:
    from autoshard.report.plan_tables import _fits

    used, usable = int(peak * 2**30), int(15.75 * 2**30)
    assert _fits(memory_of(used, int(used * 1.15), usable, used * 1.15 <= usable)).startswith(said)
