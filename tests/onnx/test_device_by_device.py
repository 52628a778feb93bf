"""Random annotations, device by device: what the check lets pass computes what the model computes.

The whole suite of the library under three annotations a case is in `experiments/onnx_judge`.
"""

import random
import warnings

import pytest
from judged_cases import Tally, judge_case, small_cases

OPS = ["Add", "Conv", "Flatten", "Gemm", "MatMul", "ReduceMean", "ReduceProd", "Softmax", "Transpose", "Where"]


@pytest.mark.parametrize("op", OPS)
def test_what_passes_the_check_computes_the_same(op: str) -> None:
    # S1.1, S1.2, S1.16, S1.33: uneven shards and weighted means among them
    tally = Tally()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numpy, in cases about infinities
        cases = small_cases(op)
        assert cases
        for seed in range(6):
            judge_case(random.Random(seed).choice(cases), seed, tally)
    assert tally.wrong == []
    assert tally.counts["right, cut"] > 0
