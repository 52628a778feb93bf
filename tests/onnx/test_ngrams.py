"""TfIdfVectorizer: n-grams of whole numbers, judged by ONNX's reference evaluator, with weights by onnxruntime.

The reference takes weights for those of coordinates; ONNX says that they are those of n-grams.
"""

import random
from itertools import product

import jax
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from autoshard.errors import InputError, UnsupportedError
from autoshard.onnx.function import function

PLAIN = {
    "mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0, "ngram_counts": [0, 2],
    "ngram_indexes": [0, 1, 2], "pool_int64s": [5, 6, 5, 6],
}  # fmt: skip
"""The 1-grams 5 and 6, and the 2-gram 5 6."""


def vectorizer(shape, kind=TensorProto.INT32, **changed):
    attributes = {k: v for k, v in {**PLAIN, **changed}.items() if v is not None}
    graph = helper.make_graph(
        [helper.make_node("TfIdfVectorizer", ["x"], ["y"], name="grams", **attributes)],
        "g",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def computed(model, x):
    return np.asarray(jax.jit(function(model).__call__)({}, {"x": x})["y"])


def shapes_of(given):
    made = function(given)
    return jax.eval_shape(made, *made.args)


def drawn(rng, modes):
    """A pool of 1-, 2- and 3-grams over four numbers, coordinates in any order, some left out, and rows."""
    pools = [rng.sample(list(product(range(4), repeat=n)), rng.randint(0, 4)) for n in (1, 2, 3)]
    pools[1] = pools[1] or [(0, 1)]
    grams = sum(map(len, pools))
    shortest = rng.randint(1, 3)
    shape = rng.choice([(9,), (3, 9), (2, 4)])
    model = vectorizer(
        shape,
        mode=rng.choice(modes),
        min_gram_length=shortest,
        max_gram_length=rng.randint(shortest, 3),
        max_skip_count=rng.randint(0, 4),
        ngram_counts=[0, len(pools[0]), len(pools[0]) + 2 * len(pools[1])],
        ngram_indexes=rng.sample(range(grams + 2), grams),
        pool_int64s=[n for pool in pools for gram in pool for n in gram],
        weights=[rng.choice([0.5, 1.0, 2.0, 3.0]) for _ in range(grams)],
    )
    x = [rng.randrange(5) for _ in range(int(np.prod(shape)))]
    return model, np.asarray(x, np.int32).reshape(shape)


@pytest.mark.parametrize("seed", range(8))
def test_counts_are_those_of_the_reference(seed):
    model, x = drawn(random.Random(seed), ["TF"])
    (want,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_array_equal(computed(model, x), want)


@pytest.mark.parametrize("seed", range(8))
def test_weighted_counts_are_those_of_onnxruntime(seed):
    model, x = drawn(random.Random(seed), ["IDF", "TFIDF"])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(computed(model, x), session.run(None, {"x": x})[0])


@pytest.mark.parametrize(("mode", "counts"), [("IDF", [1, 1, 1]), ("TFIDF", [3, 2, 2])])
def test_weights_that_are_left_out_are_one(mode, counts):
    x = np.asarray([5, 6, 5, 6, 5], np.int32)
    assert computed(vectorizer((5,), mode=mode), x).tolist() == counts


def test_single_numbers_are_counted_once_however_many_are_skipped():
    # 5 . 6: the 2-gram with one number skipped; 5 and 6 alone are not counted anew for every skip
    x = np.asarray([5, 9, 6], np.int32)
    assert computed(vectorizer((3,), max_skip_count=2), x).tolist() == [1, 1, 1]


def test_a_row_that_is_shorter_than_an_n_gram_has_none():
    assert computed(vectorizer((2, 1)), np.asarray([[5], [7]], np.int32)).tolist() == [[1, 0, 0], [0, 0, 0]]


def test_n_grams_with_one_coordinate_are_counted_together():
    x = np.asarray([5, 6, 6], np.int32)
    assert computed(vectorizer((3,), ngram_indexes=[0, 0, 2]), x).tolist() == [3, 0, 1]


@pytest.mark.parametrize(
    ("kind", "error", "message", "changed"),
    [
        (8, UnsupportedError, "input 'x' holds strings", {"pool_strings": ["a"], "pool_int64s": None}),
        (6, UnsupportedError, "number the words and give pool_int64s", {"pool_strings": ["a"], "pool_int64s": None}),
        (7, UnsupportedError, "do not fit into int32; set jax_enable_x64", {"pool_int64s": [5, 6, 5, 2**40]}),
        (6, InputError, "mode is one of TF, IDF, TFIDF, found 'BM25'", {"mode": "BM25"}),
        (6, InputError, "n-grams of 3 to 2 numbers", {"min_gram_length": 3}),
        (6, InputError, "takes numbers 1 to 4 of the 4 of pool_int64s for 2-grams", {"ngram_counts": [0, 1]}),
        (6, InputError, "a 1-gram is in pool_int64s twice", {"pool_int64s": [5, 5, 5, 6]}),
        (6, InputError, "each of the 3 n-grams of the pool, found 2", {"ngram_indexes": [0, 1]}),
        (6, InputError, "each of the 3 n-grams of the pool, found 1", {"weights": [1.0]}),
        (6, UnsupportedError, "which of them counts in mode IDF", {"mode": "IDF", "ngram_indexes": [0, 0, 1]}),
    ],
)
def test_what_is_refused(kind, error, message, changed):
    with pytest.raises(error, match=message):
        shapes_of(vectorizer((4,), kind, **changed))


def test_more_than_rows_is_refused():
    with pytest.raises(InputError, match=r"TfIdfVectorizer node 'grams': its input is one row \[C\] or rows"):
        shapes_of(vectorizer((2, 2, 4)))
