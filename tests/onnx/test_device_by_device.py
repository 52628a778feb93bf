"""Random annotations, device by device: what the check lets pass computes what the model computes.

The library's own test suite, which takes longer to collect, is judged in `experiments/onnx_judge`.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from hand_made import one_op
from judged_cases import Tally, judge_case
from onnx.reference import ReferenceEvaluator

CASES = [
    ("Add", [(4, 5, 6), (5, 1)], {}),
    ("Where", [(4, 1), (4, 5), (1, 5)], {}),
    ("Conv", [(4, 6, 8, 8), (10, 6, 3, 3), (10,)], {}),
    ("Conv", [(4, 6, 8, 8), (9, 2, 1, 1)], {"group": 3}),
    ("ConvTranspose", [(4, 6, 5, 5), (6, 3, 2, 2), (3,)], {}),
    ("Flatten", [(4, 6, 5)], {"axis": 2}),
    ("Gemm", [(7, 5), (5, 9), (9,)], {"alpha": 0.5}),
    ("Gemm", [(5, 7), (9, 5), (7, 1)], {"transA": 1, "transB": 1}),
    ("MatMul", [(4, 7, 6), (6, 9)], {}),
    ("Einsum", [(4, 7, 6), (4, 6, 5)], {"equation": "bij,bjk->bki"}),
    ("ReduceMean", [(4, 7, 6)], {"keepdims": 0}),
    ("ReduceL2", [(4, 7, 6)], {}),
    ("ReduceLogSumExp", [(4, 7, 6)], {}),
    ("GlobalAveragePool", [(4, 6, 5, 7)], {}),
    ("LayerNormalization", [(4, 6, 5), (5,)], {}),
    ("Softmax", [(4, 6, 5)], {"axis": 1}),
    ("Transpose", [(4, 6, 5)], {"perm": [2, 0, 1]}),
    ("DepthToSpace", [(4, 8, 3, 3)], {"blocksize": 2}),
]


def case(op: str, shapes: list[tuple[int, ...]], attributes: dict) -> Any:
    """A model with inputs and the results of the reference evaluator."""
    rng = np.random.default_rng(7)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    model = one_op(op, {f"x{i}": s for i, s in enumerate(shapes)}, [], **attributes)
    if op == "Where":
        arrays[0] = arrays[0] > 0
        model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.BOOL
    del model.configuration[:], model.graph.node[0].device_configurations[:]
    results = ReferenceEvaluator(model).run(None, {f"x{i}": a for i, a in enumerate(arrays)})
    return SimpleNamespace(name=f"{op} {shapes}", model=model, data_sets=[(arrays, results)])


@pytest.mark.parametrize(("op", "shapes", "attributes"), CASES, ids=[f"{c[0]}{c[1]}" for c in CASES])
def test_what_passes_the_check_computes_the_same(op: str, shapes: list, attributes: dict) -> None:
    # S1.1, S1.2, S1.16, S1.33: uneven shards and weighted means among them
    tally = Tally()
    one = case(op, shapes, attributes)
    for seed in range(12):
        judge_case(one, seed, tally)
    assert tally.wrong == []
    assert tally.counts["right, cut"] > 0
