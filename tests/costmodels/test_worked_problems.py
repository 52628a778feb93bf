# ruff: noqa: E501  one problem a line
"""Worked problems with published or hand-worked answers, asked as `autoshard cost` asks them, in its notation (S3.1).

Sources, by their short names: *book* is How To Scale Your Model (Austin et al., https://jax-ml.github.io/scaling-book,
chapter and place named; its GPU chapter is 12), *guide* MaxText's sharding guide
(docs/guides/optimization/sharding.md), *nccl-tests* NVIDIA/nccl-tests, doc/PERFORMANCE.md, *hand* arithmetic that the
line shows. Books round (V / W without the (n-1)/n of a finite group): such figures are compared with `large_group_s`,
which is that, or with a wide tolerance.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest

from autoshard.costmodels import questions as ask
from autoshard.costmodels.hardware_tables import critical_intensities
from autoshard.costmodels.load import load_profile
from autoshard.costmodels.model_questions import ask_inference, ask_model
from autoshard.costmodels.strategy_questions import ask_critical_batch, ask_strategy

V5E, V6E, V5P, V4 = "tpu_v5e", "tpu_v6e", "tpu_v5p", "tpu_v4"


@dataclass(frozen=True)
class Collective:
    name: str
    kind: str
    bytes: float
    mesh: dict[str, int]
    axes: str
    hardware: str
    expected: float
    key: str = "seconds"
    rel: float = 1e-6
    bound: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


CUBE = {"x": 4, "y": 4, "z": 4}
POD = {"x": 16, "y": 16}
NODES = {"d": 8, "t": 8}
BD = 2 * 1024 * 4096  # bfloat16[1024, 4096]
EF = 2 * 2048 * 8192  # bfloat16[2048, 8192]

COLLECTIVES = [
    # One torus axis
    Collective("book 3 pop quiz 2: 3 hops of a quarter", "all-gather", EF, {"x": 8, "y": 4}, "y", V5E, 3 * (EF / 4) / 4.5e10, bound="bandwidth"),
    Collective("book 3 pop quiz 2: 560 us", "all-gather", EF, {"x": 8, "y": 4}, "y", V5E, 560e-6, rel=0.01),
    Collective("book 3 pop quiz 2b: 3 hops of 1 us", "all-gather", 2 * 256 * 256, {"x": 8, "y": 4}, "y", V5E, 3e-6, bound="latency"),
    Collective("book 3 Q2.1: 23 us over one axis, the other cut", "all-gather", BD / 4, CUBE, "x", V4, 23e-6, "large_group_s", 0.02),
    Collective("book 3 Q2.2: 46 us over two axes", "all-gather", BD, CUBE, "x,y", V4, 46e-6, "large_group_s", 0.02),
    Collective("book 3 Q2.2: latency 4 us", "all-gather", BD, CUBE, "x,y", V4, 4e-6, "latency_s"),
    Collective("book 3 Q2.3: 190 us, all of it in each group", "all-reduce", BD, CUBE, "z", V4, 190e-6, "large_group_s", 0.03),
    Collective("hand: Q2.3 with the array cut 16 ways first", "all-reduce", BD / 16, CUBE, "z", V4, 2 * (BD / 16) * 3 / 4 / 9e10),
    Collective("book 3 Q3: 256 bytes take 2 hops", "all-gather", 256, CUBE, "x", V4, 2e-6, bound="latency"),
    Collective("hand: ring of 16 on v5e, V 15/16 / 2w", "all-gather", 9e9, POD, "x", V5E, 9e9 * 15 / 16 / 9e10),
    Collective("hand: V / W rounded", "all-gather", 9e9, POD, "x", V5E, 0.1, "large_group_s"),
    Collective("hand: a reduce-scatter costs the same", "reduce-scatter", 9e9, POD, "x", V5E, 9e9 * 15 / 16 / 9e10),
    Collective("book 3: an all-reduce costs twice that", "all-reduce", 9e9, POD, "x", V5E, 2 * 9e9 * 15 / 16 / 9e10),
    Collective("book 3 Q10: an all-to-all a quarter", "all-to-all", 9e9, POD, "x", V5E, 0.1 / 4),
    Collective("hand: 8 of 8x16 is a line, w alone", "all-gather", 9e9, {"x": 8, "y": 16}, "x", V5E, 9e9 * 7 / 8 / 4.5e10),
    Collective("hand: 16 of 8x16 is a ring", "all-gather", 9e9, {"x": 8, "y": 16}, "y", V5E, 9e9 * 15 / 16 / 9e10),
    Collective("hand: an all-to-all on a line is twice that on a ring", "all-to-all", 9e9, {"x": 8, "y": 16}, "x", V5E, 9e9 / 4 / 4.5e10),
    Collective("hand: two chips have one link", "all-gather", 9e9, {"x": 2, "y": 2}, "x", V5E, 9e9 / 2 / 4.5e10),
    Collective("hand: v5p ring of 4, 180 GB/s", "all-gather", 9e9, CUBE, "x", V5P, 9e9 * 3 / 4 / 1.8e11),
    Collective("hand: no wrap in 2x2x2", "all-gather", 9e9, {"x": 2, "y": 2, "z": 2}, "x", V5P, 9e9 / 2 / 9e10),
    Collective("hand: v6e ring of 16, 180 GB/s", "reduce-scatter", 1.8e9, POD, "y", V6E, 0.01 * 15 / 16),
    Collective("hand: v6e 4x4 has lines", "reduce-scatter", 1.8e9, {"x": 4, "y": 4}, "y", V6E, 0.02 * 3 / 4),
    Collective("hand: v7x ring of 4", "all-gather", 1.8e9, CUBE, "y", "tpu_v7x", 0.01 * 3 / 4),
    Collective("hand: v3 wraps at 32 only", "all-gather", 1.4e9, {"x": 32, "y": 32}, "y", "tpu_v3", 0.01 * 31 / 32),
    Collective("hand: v3 16x16 has lines", "all-gather", 1.4e9, POD, "y", "tpu_v3", 0.02 * 15 / 16),
    Collective("hand: odd ring, all-to-all times (n^2-1)/n^2 of a line of 3", "all-to-all", 9e9, {"x": 3, "y": 3}, "x", V5P, 9e9 / 4 / 9e10 * 8 / 9),
    # Several axes
    Collective("book 3: two axes, V / 2W", "all-gather", 9e9, POD, "x,y", V5E, 0.05, "large_group_s", 0.005),
    Collective("hand: two axes, 255/256 of it", "all-gather", 9e9, POD, "x,y", V5E, 9e9 * 255 / 256 / 1.8e11),
    Collective("hand: three axes of v5p, V / 3W", "all-gather", 5.4e9, CUBE, "x,y,z", V5P, 0.01 * 63 / 64),
    Collective("hand: three axes all-reduce", "all-reduce", 5.4e9, CUBE, "x,y,z", V4, 0.04 * 63 / 64),
    Collective("hand: a ring and a line add up", "all-gather", 13.5e9, {"x": 8, "y": 16}, "x,y", V5E, 0.1 * 127 / 128),
    Collective("book 2 Q6: a corner takes in two links", "all-gather", 16e9, {"x": 4, "y": 4}, "x,y", V5E, 16e9 * 15 / 16 / 9e10),
    Collective("hand: all-to-all on 16x16, V n_max / (4 N W)", "all-to-all", 9e9, POD, "x,y", V5E, 9e9 * 16 / (4 * 256 * 9e10)),
    Collective("hand: all-to-all on the 4x4x4 cube", "all-to-all", 9e9, CUBE, "x,y,z", V5P, 9e9 * 4 / (4 * 64 * 1.8e11)),
    Collective("hand: one axis of 4096 chips lies on three rings of 16", "all-gather", 5.4e9, {"x": 4096}, "x", V5P, 0.01 * 4095 / 4096),
    Collective("hand: hops of a pod, 8 + 8", "all-gather", 0, POD, "x,y", V5E, 16e-6, bound="latency"),
    Collective("hand: hops of a line of 8", "all-gather", 0, {"x": 8, "y": 16}, "x", V5E, 7e-6, bound="latency"),
    Collective("hand: an all-reduce has two passes of hops", "all-reduce", 0, {"x": 8, "y": 16}, "x", V5E, 14e-6, bound="latency"),
    # A hop: 45 kB on v5e, 90 kB on v5p (book 3)
    Collective("book 3: a hop of 45 kB takes 1 us on v5e", "permute", 45e3, POD, "x", V5E, 1e-6),
    Collective("book 3: a hop of 90 kB takes 1 us on v5p", "permute", 90e3, CUBE, "x", V5P, 1e-6),
    Collective("hand: a large shard to the neighbour", "collective-permute", 4.5e9, POD, "x", V5E, 0.1),
    # One device, nothing to move
    Collective("hand: one device", "all-reduce", 1e9, {"x": 1, "y": 4}, "x", V5E, 0.0),
    Collective("hand: one GPU", "all-gather", 1e9, {"x": 1}, "x", "h100", 0.0),
    # Slices
    Collective("book 5: gradients between slices, 2 V / chips / dcn", "all-reduce", 1e9 / 256, {"d": 64, "x": 256}, "d", V5E, 2 * 1e9 / 256 / 3.125e9, "large_group_s", options={"links": {"d": "dcn"}}),
    Collective("hand: two slices carry half", "all-reduce", 1e9, {"d": 2, "x": 256}, "d", V5E, 1e9 / 3.125e9),
    Collective("hand: v5p, 6.25 GB/s per chip", "all-gather", 1e9, {"d": 4, "x": 64}, "d", V5P, 1e9 * 3 / 4 / 6.25e9, options={"links": {"d": "dcn"}}),
    Collective("hand: slices and chips at once, the slices' part is hidden", "all-reduce", 1e9, {"d": 2, "x": 16, "y": 16}, "d,x,y", V5E, 2e9 * 255 / 256 / 1.8e11),
    # NVLink and nodes
    Collective("book 12: a node's all-gather, V 7/8 / 450 GB/s", "all-gather", 4.5e9, {"x": 8}, "x", "h100", 0.01 * 7 / 8),
    Collective("book 12: rounded", "all-gather", 4.5e9, {"x": 8}, "x", "h100", 0.01, "large_group_s"),
    Collective("book 12: a node's all-reduce", "all-reduce", 4.5e9, {"x": 8}, "x", "h100", 0.02 * 7 / 8),
    Collective("book 12: SHARP halves it, V / 450 GB/s", "all-reduce", 4.5e9, {"x": 8}, "x", "h100", 0.01, options={"in_network_reduction": True}),
    Collective("book 12: a node's all-to-all, V 7/64 / 450 GB/s", "all-to-all", 4.5e9, {"x": 8}, "x", "h100", 0.01 * 7 / 64),
    Collective("hand: A100, 300 GB/s", "all-gather", 3e9, {"x": 8}, "x", "a100_80", 0.01 * 7 / 8),
    Collective("hand: V100, 150 GB/s", "all-gather", 1.5e9, {"x": 8}, "x", "v100", 0.01 * 7 / 8),
    Collective("hand: B200, 900 GB/s", "reduce-scatter", 9e9, {"x": 8}, "x", "b200", 0.01 * 7 / 8),
    Collective("hand: 72 GPUs of NVL72", "all-gather", 9e9, {"x": 72}, "x", "gb200_nvl72", 0.01 * 71 / 72),
    Collective("hand: 4 GPUs of a node", "all-gather", 4.5e9, {"x": 4}, "x", "h100", 0.01 * 3 / 4),
    Collective("hand: MI300X, 8 with 7 links each: V / 8w", "all-gather", 5.12e9, {"x": 8}, "x", "mi300x", 0.01),
    Collective("hand: MI300X, a pair has one link", "all-gather", 1.28e9, {"x": 2}, "x", "mi300x", 0.01),
    Collective("hand: MI300X all-reduce of 4", "all-reduce", 2.56e9, {"x": 4}, "x", "mi300x", 0.02),
    Collective("book 12: over nodes, V / 400 GB/s of the node", "all-gather", 4e9, {"x": 1024}, "x", "h100", 0.01, "large_group_s", 0.01),
    Collective("hand: over 8 nodes, rounded as well", "all-gather", 4e9, {"x": 64}, "x", "h100", 0.01, "large_group_s"),
    Collective("hand: 127/128 of that", "all-gather", 4e9, {"x": 1024}, "x", "h100", 0.01 * 127 / 128),
    Collective("book 12: hierarchical all-reduce is twice that", "all-reduce", 4e9, {"x": 1024}, "x", "h100", 0.02 * 127 / 128),
    Collective("hand: two nodes are bound inside", "all-gather", 4.5e9, {"d": 2, "t": 8}, "d,t", "h100", 0.01 * 7 / 8),
    Collective("book 12: tensor inside leaves the outer term alone", "all-reduce", 4e9 / 8, NODES, "d", "h100", 2 * 4e9 / 4e11 * 7 / 8),
    Collective("book 12: all-to-all over 8 nodes, V (M-1)/(M^2 400 GB/s)", "all-to-all", 4e9, {"x": 64}, "x", "h100", 4e9 * 7 / 64 / 4e11),
    Collective("hand: half a MB in a node waits for latency", "all-gather", 5e5, {"x": 8}, "x", "h100", 1e-5, bound="latency"),
    # nccl-tests: bus bandwidth is what the links carry
    Collective("nccl-tests: bus bandwidth of an all-reduce", "all-reduce", 8e9, {"x": 8}, "x", "h100", 4.5e11, "bus_bytes_per_s"),
    Collective("nccl-tests: bus bandwidth of an all-gather", "all-gather", 8e9, {"x": 8}, "x", "a100_80", 3e11, "bus_bytes_per_s"),
    Collective("nccl-tests: bus bandwidth of an all-to-all", "all-to-all", 8e9, {"x": 8}, "x", "a100_80", 3e11, "bus_bytes_per_s"),
    # Sub-axes
    Collective("hand: the minor 4 of a ring of 16 are a line", "all-gather", 4.5e9, POD, "x:(4)4", V5E, 0.1 * 3 / 4),
    Collective("hand: the major 4 share the ring, a quarter each", "all-gather", 9e9, POD, "x:(1)4", V5E, 0.1 * 4 * 3 / 4),
    Collective("hand: both make the axis", "all-gather", 9e9, POD, "x:(1)4,x:(4)4", V5E, 0.1 * 15 / 16),
]  # fmt: skip


@pytest.mark.parametrize("problem", COLLECTIVES, ids=lambda p: p.name)
def test_a_collective(problem: Collective) -> None:
    answer = ask.ask_collective(
        problem.kind, problem.bytes, problem.mesh, problem.axes.split(","), problem.hardware, **problem.options
    )
    assert getattr(answer, problem.key) == pytest.approx(problem.expected, rel=problem.rel, abs=1e-15)
    if problem.bound is not None:
        assert answer.bound == problem.bound


def test_levels_of_a_hierarchical_all_reduce_carry_their_bytes() -> None:
    # book 12: V (n-1)/n on each level, divided by the devices inside it; twice for an all-reduce
    answer = ask.ask_collective("all-reduce", 8e9, NODES, ["d", "t"], "h100")
    assert [(level.level, level.group_size) for level in answer.levels] == [("nvlink", 8), ("scale_out", 8)]
    assert answer.bytes_sent_per_device == {"nvlink": 2 * 8e9 * 7 / 8, "scale_out": 2 * 8e9 * 7 / 8 / 8}
    assert [level.bandwidth_s for level in answer.levels] == pytest.approx([14e9 / 4.5e11, 1.75e9 / 5e10])


MATMULS: list[tuple[str, str, dict[str, float], dict[str, int], str, dict[str, Any], dict[str, Any]]] = [
    # name, text, sizes, mesh, hardware, options, expected
    ("book 1: 240 rows turn a bfloat16 matmul compute bound on v5e", "B D @ D F -> B F", {"B": 1, "D": 1e6, "F": 1e6}, {}, V5E, {}, {"memory_flip_sizes.B": pytest.approx(243, rel=0.01)}),
    ("book 2 Q4: 271 rows of int8 with D=4096, F=16384", "B D @ D F -> B F", {"B": 8, "D": 4096, "F": 16384}, {}, V5E, {"dtype": "int8"}, {"memory_flip_sizes.B": pytest.approx(271, rel=0.04), "bound": "memory"}),
    ("book 1 Q2: 8-bit weights halve it to 120", "B D @ D F -> B F", {"B": 1, "D": 1e6, "F": 1e6}, {}, V5E, {"storage": ("bfloat16", "int8", "bfloat16")}, {"memory_flip_sizes.B": pytest.approx(121.6, rel=0.01)}),
    ("book 1 Q1: 8-bit work on 8-bit weights, 243 again", "B D @ D F -> B F", {"B": 1, "D": 1e6, "F": 1e6}, {}, V5E, {"dtype": "int8"}, {"memory_flip_sizes.B": pytest.approx(243, rel=0.01)}),
    ("book 1 Q5: about 300 rows on H100", "B D @ D F -> B F", {"B": 1, "D": 1e6, "F": 1e6}, {}, "h100", {}, {"memory_flip_sizes.B": pytest.approx(295, rel=0.01)}),
    ("book 1 Q4: a matrix of its own for each row never is", "B D @ B D F -> B F", {"B": 512, "D": 4096, "F": 4096}, {}, V5E, {"dtype": "int8"}, {"flops_per_byte": pytest.approx(2, rel=0.01), "bound": "memory", "memory_flip_sizes.B": None}),
    ("book 1: 1e12 FLOP take 1.01 ms on H100", "B D @ D F -> B F", {"B": 1e4, "D": 1e4, "F": 5e3}, {}, "h100", {}, {"compute_s": pytest.approx(1.01e-3, rel=0.005), "bound": "compute"}),
    ("book 4 Q2: an idle axis repeats the work", "B_x D_y @ D_y F -> B_x F", {"B": 4096, "D": 4096, "F": 4096}, {"x": 4, "y": 8, "z": 4}, V5P, {}, {"flops_per_device": 2 * 4096**3 / 32}),
    ("book 4 Q3: all dimensions once", "I J K L @ I J M N O -> K L M N O", {"I": 2, "J": 3, "K": 4, "L": 5, "M": 6, "N": 7, "O": 8}, {}, V5E, {}, {"flops_per_device": 2.0 * 2 * 3 * 4 * 5 * 6 * 7 * 8}),
    ("book 3 case 1: nothing to send", "I_x J @ J K_y -> I_x K_y", {"I": 4096, "J": 4096, "K": 4096}, {"x": 4, "y": 4}, V5E, {}, {"kinds": []}),
    ("book 3 case 2: gather the cut operand", "I J_x @ J K -> I K", {"I": 4096, "J": 4096, "K": 4096}, {"x": 4, "y": 4}, V5E, {}, {"kinds": ["all_gather"]}),
    ("book 3 case 3: reduce the partial sums", "I J_x @ J_x K -> I K", {"I": 4096, "J": 4096, "K": 4096}, {"x": 4, "y": 4}, V5E, {}, {"kinds": ["all_reduce"]}),
    ("book 3 case 3: or scatter them too", "I J_x @ J_x K -> I K_x", {"I": 4096, "J": 4096, "K": 4096}, {"x": 4, "y": 4}, V5E, {}, {"kinds": ["reduce_scatter"]}),
    ("book 3 case 3: or leave them", "I J_x @ J_x K -> I K {U_x}", {"I": 4096, "J": 4096, "K": 4096}, {"x": 4, "y": 4}, V5E, {}, {"kinds": []}),
    ("guide: partial sums, then a reduce-scatter of 2 B E bytes", "B M_x @ M_x E -> B E_x", {"B": 1024, "M": 28672, "E": 8192}, POD, V6E, {}, {"kinds": ["reduce_scatter"], "bytes": [2 * 1024 * 8192], "flops_per_device": 2 * 1024 * 28672 / 16 * 8192}),
    ("guide: B M_x @ M_x E = BE (partial)", "B M_x @ M_x E = B E (partial)", {"B": 1024, "M": 28672, "E": 8192}, POD, V6E, {}, {"kinds": []}),
    ("book 3 case 4: one axis on both sides", "I_x J @ J K_x -> I_x K", {"I": 4096, "J": 4096, "K": 4096}, {"x": 4, "y": 4}, V5E, {}, {"kinds": ["all_gather"]}),
    ("guide: tensor parallelism, M / x = 7168 beats Trillium's 5100", "B M_x @ M_x E -> B E_x", {"B": 1024, "M": 28672, "E": 8192}, {"x": 4}, V6E, {}, {"verdicts": ["compute"], "intensity": [7168]}),
    ("guide: M / x = 3584 does not", "B M_x @ M_x E -> B E_x", {"B": 1024, "M": 28672, "E": 8192}, {"x": 8}, V6E, {}, {"verdicts": ["communication"], "intensity": [3584]}),
    ("guide: an axis on the batch leaves the intensity", "B_y M_x @ M_x E -> B_y E_x", {"B": 1024, "M": 28672, "E": 8192}, POD, V6E, {}, {"intensity": [28672 / 16]}),
    ("guide: fsdp's intensity is B / x", "B_x E @ E_x M -> B_x M", {"B": 2**20, "E": 8192, "M": 28672}, POD, V6E, {}, {"kinds": ["all_gather"], "intensity": [2**20 / 16]}),
    ("guide: whichever weight axis is cut", "B_x E @ E M_x -> B_x M", {"B": 2**20, "E": 8192, "M": 28672}, POD, V6E, {}, {"kinds": ["all_gather"], "intensity": [2**20 / 16]}),
    ("book 5: fsdp on one axis of v5p flips at 2550 rows a chip", "B_x D @ D_x F -> B_x F", {"B": 1e6, "D": 8192, "F": 28672}, {"x": 16, "y": 16, "z": 16}, V5P, {}, {"large_group_flip_sizes.B": pytest.approx(2550 * 16)}),
    ("book 5: at 850 on three", "B_x D @ D_x F -> B_x F", {"B": 1e6, "D": 8192, "F": 28672}, {"x": 4096}, V5P, {}, {"large_group_flip_sizes.B": pytest.approx(850 * 4096)}),
    ("book 12: fsdp over 8 nodes flips at 2472 rows a GPU", "B_x D @ D_x F -> B_x F", {"B": 1e6, "D": 8192, "F": 28672}, {"x": 64}, "h100", {}, {"large_group_flip_sizes.B": pytest.approx(2472.5 * 64)}),
    ("book 5: at 2189 on a ring of v5e", "B_x D @ D_x F -> B_x F", {"B": 1e6, "D": 8192, "F": 28672}, POD, V5E, {}, {"large_group_flip_sizes.B": pytest.approx(2188.9 * 16, rel=1e-3)}),
    ("book 3 Q4: gather, then the quicker slice and reduce below 2550 rows", "B D @ D_x F -> B F", {"B": 512, "D": 8192, "F": 8192}, {"x": 16, "y": 16, "z": 16}, V5P, {}, {"kinds": ["all_gather"], "quicker": ["all_reduce"]}),
    ("hand: uneven rows, the fullest of 4 devices has 2 of 5", "B_x D @ D F -> B_x F", {"B": 5, "D": 128, "F": 128}, {"x": 4}, V5E, {}, {"flops_per_device": 2.0 * 2 * 128 * 128}),
]  # fmt: skip


@pytest.mark.parametrize("problem", MATMULS, ids=lambda p: p[0])
def test_a_matmul(problem) -> None:
    _, text, dims, mesh, hardware, options, expected = problem
    answer = ask.ask_matmul(text, dims, mesh, hardware, **options)
    lists = {
        "kinds": [c.kind for c in answer.collectives],
        "bytes": [c.bytes for c in answer.collectives],
        "verdicts": [c.verdict for c in answer.collectives],
        "intensity": [c.flops_per_byte for c in answer.collectives],
        "quicker": [c.kind for c in answer.quicker or ()],
    }
    for name, value in expected.items():
        key, _, item = name.partition(".")
        found = lists[key] if key in lists else getattr(answer, key)
        assert (found[item] if item else found) == value, name


# Critical sizes of strategies (book 5 and 12), for a machine's links: what, strategy, mesh, hardware, options, row, value
CRITICAL = [
    ("book 5: fsdp on three axes 850", "llama3_70b", "fsdp", {"fsdp": 4096}, V5P, {}, 0, 850),
    ("book 5: tensor on one axis at most F / 2550", "llama3_70b", "fsdp+tensor", {"fsdp": 256, "tensor": 16}, V5P, {}, 1, 28672 / 2550),
    ("hand: gemma 7b, whose gate and up matrices are 24576 wide each", "gemma_7b", "fsdp+tensor", {"fsdp": 256, "tensor": 16}, V5P, {}, 1, 24576 / 2550),
    ("book 6: both together, 453 tokens if they add", "llama3_70b", "fsdp+tensor", {"fsdp": 256, "tensor": 16}, V5P, {}, 3, 453.6),
    ("book 6: 1618 of 8960 chips on fsdp", "llama3_70b", "fsdp+tensor", {"fsdp": 2240, "tensor": 4}, V5P, {"batch_tokens": 4.19e6}, 4, 1618),
    ("book 12: dp inside a node, 2200 tokens", "llama3_70b", "dp", {"data": 8}, "h100", {}, 0, 989e12 / 450e9),
    ("book 12: across nodes, 2475 tokens a GPU", "llama3_70b", "fsdp", {"fsdp": 8192}, "h100", {}, 0, 2472.5),
    ("book 12: the same of 8 nodes", "llama3_70b", "fsdp", {"fsdp": 64}, "h100", {}, 0, 2472.5),
    ("book 12: B200, 2500 inside", "llama3_70b", "dp", {"data": 8}, "b200", {}, 0, 2500),
    ("book 12: B200, 5625 across", "llama3_70b", "fsdp", {"fsdp": 8192}, "b200", {}, 0, 5625),
    ("book 5: 71 to 76 thousand tokens a slice over dcn", "llama3_70b", "data+fsdp", {"data": 2, "fsdp": 4096}, V5P, {"links": {"data": "dcn"}}, 0, 73440),
    ("hand: mixtures times E / k", "mixtral_8x7b", "fsdp", {"fsdp": 8}, "h100", {}, 0, 989e12 / 450e9 * 8 / 2),
]  # fmt: skip


@pytest.mark.parametrize("problem", CRITICAL, ids=lambda p: p[0])
def test_a_critical_size(problem) -> None:
    _, model, strategy, mesh, hardware, options, row, value = problem
    found = ask_critical_batch(model, strategy, mesh, hardware, **options)[row]
    assert (found["at_least"] or found["at_most"]) == pytest.approx(value, rel=0.005)


def test_gemma_7b_turns_communication_bound_at_19_way_tensor_parallelism(tmp_path) -> None:
    # book 5, "Tensor parallelism": with F of about 50k (gate and up as one matrix) it is so at 19 ways
    card = tmp_path / "gemma.yaml"
    card.write_text(
        "{layers: 28, d_model: 3072, d_ff: 49152, heads: 16, kv_heads: 16, head_dim: 256, vocab: 256128, "
        "gated_mlp: false, tied_embeddings: true, train_seq: 8192, source: the book's}"
    )
    rows = ask_critical_batch(str(card), "fsdp+tensor", {"fsdp": 256, "tensor": 16}, V5P)
    assert int(rows[1]["at_most"]) == 19


# Bound of whole steps
STEPS = [
    ("book 6: llama 70b, fsdp alone on a v5p pod is communication bound", "llama3_70b", "fsdp", {"fsdp": 8960}, 4.19e6, V5P, "communication"),
    ("book 6: fsdp and 4-way tensor are not", "llama3_70b", "fsdp+tensor", {"fsdp": 2240, "tensor": 4}, 4.19e6, V5P, "compute"),
    ("book 5 Q3: llama 13b, 3M tokens, fsdp alone on 16x16x16", "llama2_13b", "fsdp", {"fsdp": 4096}, 3e6, V5P, "communication"),
    ("hand: a large batch is compute bound", "llama3_70b", "fsdp", {"fsdp": 8960}, 16e6, V5P, "compute"),
    ("hand: 64-way tensor is not, whatever the batch", "llama3_8b", "tensor", {"tensor": 64}, 16e6, V5P, "communication"),
]  # fmt: skip


@pytest.mark.parametrize("problem", STEPS, ids=lambda p: p[0])
def test_what_bounds_a_step(problem) -> None:
    _, model, strategy, mesh, tokens, hardware, bound = problem
    assert ask_strategy(model, strategy, mesh, tokens, hardware).bound == bound


def test_llama_70b_on_15e12_tokens_takes_44_days_of_a_v5p_pod_at_40_percent() -> None:
    # book 6: 6 x 70e9 x 15e12 / (8960 x 4.59e14 x 0.4) = 3.8e6 s; with attention (13%) and less the lookup 4.4e6
    step = ask_strategy(
        "llama3_70b", "fsdp+tensor", {"fsdp": 2240, "tensor": 4}, 4.19e6, V5P, efficiency=0.4, seq=8192
    ).cost
    assert step.compute_s * 15e12 / 4.19e6 / 86400 == pytest.approx(44 * 1.145, rel=0.02)


def test_weights_and_moments_of_adam_take_10_bytes_a_parameter() -> None:
    # book 5 Q2: (2 + 4 + 4) x 13e9 = 130 GB
    assert ask_model("llama2_13b").training_bytes == pytest.approx(130e9, rel=0.01)
    # book 5: 9e9 parameters fill a v5p
    assert load_profile(V5P).memory.bytes.value / 10 == pytest.approx(9e9, rel=0.2)


def test_parameters_of_llama_13b_by_part() -> None:  # book 5 Q1: 8.5e9 + 4.2e9 + 0.3e9
    answer = ask_model("llama2_13b")
    assert (answer.mlp_params, answer.attention_params, answer.embedding_params) == (8493465600, 4194304000, 327680000)


def test_parameters_of_llama_70b_by_part() -> None:  # book 6: 56.3e9 + 12e9 + 2.1e9
    answer = ask_model("llama3_70b")
    assert (answer.mlp_params, answer.attention_params, answer.embedding_params) == (
        56371445760,
        12079595520,
        2101346304,
    )


def test_attention_equals_the_projections_at_twice_the_width() -> None:  # book 4 Q5: T = 2D
    counts = ask_model("llama2_7b", seq=2 * 4096)  # heads x head_dim = D, all heads of their own
    attention = counts.train_flops_per_token * counts.attention_share
    assert attention == pytest.approx(6 * counts.attention_params)


@pytest.mark.parametrize(
    ("model", "dtype", "bytes_"),
    [
        ("llama3_70b", "int8", 160 * 1024),  # book 8: 160 kB a token
        ("llama3_70b", "bfloat16", 324e3),  # book 8, table: 324 kB
        ("llama2_13b", "bfloat16", 2 * 40 * 40 * 128 * 2),  # hand: 2 L K H elements
        ("gpt3_175b", "bfloat16", 2 * 96 * 96 * 128 * 2),
        ("deepseek_v3", "bfloat16", 61 * (512 + 64) * 2),  # its report: 512 + 64 elements a layer
    ],
)
def test_a_key_value_cache(model, dtype, bytes_) -> None:
    assert ask_model(model, kv_dtype=dtype).kv_bytes_per_token == pytest.approx(bytes_, rel=0.02)


def test_llama_70b_in_8_bits_generates_in_17_ms_on_8_v5e() -> None:  # book 8
    answer = ask_inference("llama3_70b", 8, V5E, batch=32, context=8192, weight_dtype="int8", kv_dtype="int8")
    assert answer.book_seconds == pytest.approx(17e-3, rel=0.04)
    assert answer.book_tokens_per_s_per_device == pytest.approx(235, rel=0.04)
    assert answer.weight_bytes + answer.kv_bytes == pytest.approx(112e9, rel=0.02)
    assert (answer.least_devices, answer.book_bound) == (7, "memory")
    assert answer.critical_batch == pytest.approx(120, rel=0.04)


def test_a_full_v5e_generates_in_19_ms() -> None:  # book 8: 43 caches of 8k fit beside bfloat16 weights on 16 chips
    answer = ask_inference("llama3_70b", 16, V5E, batch=43, context=8192)
    assert answer.book_seconds == pytest.approx(19e-3, rel=0.06)
    assert answer.fits and answer.largest_batch == pytest.approx(43, rel=0.15)


def test_prefill_of_8192_tokens_takes_almost_a_second_at_40_percent() -> None:
    # book 8: 0.91 s without attention, which adds 15% in full and half of that where it is causal
    answer = ask_inference("llama3_70b", 16, V5E, context=8192)
    assert answer.prefill_seconds / 0.4 == pytest.approx(0.91 * 1.075, rel=0.03)


@pytest.mark.parametrize(
    ("hardware", "name", "value"),
    [
        (V5E, "memory", 243), (V5P, "memory", 166), (V6E, "memory", 560), (V4, "memory", 229),
        ("h100", "memory", 295), ("a100_80", "memory", 153), ("b200", "memory", 281), ("mi300x", "memory", 246.7),
        (V5P, "ici ring", 2550), (V6E, "ici ring", 5100), (V5E, "ici line", 4378), (V4, "ici ring", 3056),
        (V5P, "dcn", 73440), (V5E, "dcn", 63040), ("h100", "nvlink", 2198), ("b200", "nvlink", 2500),
        ("h100", "scale_out, whole domain of 8", 2472), ("gb200_nvl72", "scale_out, whole domain of 72", 694.4),
        ("mi300x", "xgmi", 2918), ("v100", "nvlink", 833),
    ],
)  # fmt: skip
def test_flops_per_byte_of_a_machine(hardware, name, value) -> None:  # book 1, 2, 5 and 12; data sheets divided
    assert critical_intensities(load_profile(hardware))[name] == pytest.approx(value, rel=0.002)
