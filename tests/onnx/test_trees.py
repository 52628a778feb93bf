"""TreeEnsemble of ai.onnx.ml: judged by ONNX's reference evaluator, and by onnxruntime for what follows the sums."""

import random

import jax
import numpy as np
import onnxruntime
import pytest
import scipy.special
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autoshard.errors import InputError
from autoshard.frontends.jax.function import trace
from autoshard.onnx.function import function

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)
AVERAGE, SUM, MIN, MAX = range(4)
NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO, PROBIT = range(5)


class Ensemble:
    """Attributes of an ensemble, from trees: (mode, feature, split or set, missing, yes, no), or (target, weight)."""

    def __init__(self, *trees):
        self.nodes, self.leaves, self.sets = [], [], []
        self.roots = [self._add(tree) for tree in trees]

    def _add(self, tree):
        if len(tree) == 2:
            self.leaves.append(tree)
            return len(self.leaves) - 1
        at = len(self.nodes)
        self.nodes.append(None)
        mode, feature, split, missing, yes, no = tree
        if mode == MEMBER:
            self.sets += [*split, np.nan]
            split = 0.0
        to = [self._add(branch) for branch in (yes, no)]
        self.nodes[at] = (mode, feature, split, missing, *to, len(yes) == 2, len(no) == 2)
        return at

    def attributes(self):
        modes, features, splits, missing, yes, no, yes_leaf, no_leaf = map(list, zip(*self.nodes, strict=True))
        found = {
            "tree_roots": self.roots,
            "nodes_modes": np.asarray(modes, np.uint8),
            "nodes_featureids": features,
            "nodes_splits": np.asarray(splits, np.float32),
            "nodes_missing_value_tracks_true": [int(m) for m in missing],
            "nodes_truenodeids": yes,
            "nodes_falsenodeids": no,
            "nodes_trueleafs": [int(n) for n in yes_leaf],
            "nodes_falseleafs": [int(n) for n in no_leaf],
            "leaf_targetids": [target for target, _ in self.leaves],
            "leaf_weights": np.asarray([weight for _, weight in self.leaves], np.float32),
        }
        return {**found, "membership_values": np.asarray(self.sets, np.float32)} if self.sets else found


def model(shape, attributes, **more):
    given = {"n_targets": 2, "aggregate_function": SUM, "post_transform": NONE, **attributes, **more}
    given = {k: numpy_helper.from_array(v, k) if isinstance(v, np.ndarray) else v for k, v in given.items()}
    given = {k: v for k, v in given.items() if v is not None}
    graph = helper.make_graph(
        [helper.make_node("TreeEnsemble", ["x"], ["y"], name="trees", domain="ai.onnx.ml", **given)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 5)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def computed(made, x):
    return np.asarray(jax.jit(function(made).__call__)({}, {"x": np.asarray(x, np.float32)})["y"])


def shapes_of(given):
    made = function(given)
    return jax.eval_shape(made, *made.args)


def drawn(rng, depth):
    """A random tree over 3 features and 2 targets, with numbers that inputs hit."""
    if depth == 0 or rng.random() < 0.2:
        return rng.randrange(2), rng.choice([-2.0, 0.5, 1.0, 4.0])
    mode = rng.randrange(7)
    split = rng.sample([1.0, 2.0, 3.0], rng.randint(1, 3)) if mode == MEMBER else float(rng.randint(0, 3))
    below = drawn(rng, depth - 1), drawn(rng, depth - 1)
    return mode, rng.randrange(3), split, rng.random() < 0.5, *below


def split_by(feature, at, yes, no):
    return LEQ, feature, at, False, yes, no


@pytest.mark.parametrize("seed", range(10))
def test_rows_come_to_the_leaves_of_the_reference(seed):
    rng = random.Random(seed)
    trees = [split_by(0, 1.0, drawn(rng, 3), drawn(rng, 3)) for _ in range(rng.randint(1, 4))]
    made = model((6, 3), Ensemble(*trees).attributes(), aggregate_function=seed % 4)
    x = np.asarray([[rng.choice([0, 1, 2, 3, np.nan]) for _ in range(3)] for _ in range(6)], np.float32)
    (want,) = ReferenceEvaluator(made).run(None, {"x": x})
    np.testing.assert_allclose(computed(made, x), want, rtol=1e-6)


def test_a_deep_tree_is_a_scan():
    tree = 0, 20.0
    for at in range(19, -1, -1):
        tree = split_by(0, float(at), (0, float(at)), tree)
    made = model((3, 1), Ensemble(tree).attributes(), n_targets=1)
    assert computed(made, [[-1.0], [12.5], [30.0]]).tolist() == [[0.0], [13.0], [20.0]]
    traced = trace(function(made).__call__, *function(made).args, argnames=("weights", "inputs")).program
    assert "scan" in {op.kind for op in traced.ops.values()}


def test_sets_are_in_the_order_of_the_nodes_and_may_hold_zero():
    # node 0 leads to node 2 first; the sets are those of nodes 1 and 2
    tree = split_by(0, 0.5, (MEMBER, 1, [], False, (0, 1.0), (0, 2.0)), (MEMBER, 1, [], False, (0, 3.0), (0, 4.0)))
    attributes = Ensemble(tree).attributes()
    attributes |= {"nodes_truenodeids": [2, 0, 2], "nodes_falsenodeids": [1, 1, 3]}
    made = model((4, 2), attributes, n_targets=1, membership_values=np.asarray([7, np.nan, 0, 8, np.nan], np.float32))
    assert computed(made, [[0, 0], [0, 7], [1, 7], [1, 0]]).tolist() == [[3.0], [4.0], [1.0], [2.0]]


def test_a_tree_that_is_one_leaf_gives_that_leaf():
    ensemble = Ensemble(split_by(0, 1.0, (0, 1.0), (0, 2.0)), split_by(0, 0.0, (1, 5.0), (1, 5.0)))
    attributes = ensemble.attributes() | {"nodes_truenodeids": [0, 2], "nodes_falsenodeids": [1, 2]}
    assert computed(model((1, 1), attributes), [[3.0]]).tolist() == [[2.0, 5.0]]


def transformed(transform):
    """An ensemble of two trees and three targets, its rows, and their scores after a transform."""
    trees = [split_by(0, 1.0, (0, 0.25), (1, 0.75)), split_by(1, 1.0, (1, 0.125), (2, 0.5))]
    made = model((4, 2), Ensemble(*trees).attributes(), n_targets=3, post_transform=transform)
    x = np.asarray([[0, 0], [0, 2], [2, 0], [2, 2]], np.float32)
    return made, x, computed(made, x)


@pytest.mark.parametrize(
    ("transform", "formula"),
    [
        (SOFTMAX, lambda scores: scipy.special.softmax(scores, axis=1)),
        (LOGISTIC, scipy.special.expit),
        (PROBIT, scipy.special.ndtri),
    ],
)
def test_transforms_follow_their_formulas(transform, formula):
    plain = transformed(NONE)[2]
    np.testing.assert_allclose(transformed(transform)[2], formula(plain), rtol=1e-5, atol=1e-6)


def test_softmax_zero_is_that_of_onnxruntime():
    made, x, found = transformed(SOFTMAX_ZERO)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(found, session.run(None, {"x": x})[0], atol=1e-6)


TREE = split_by(0, 1.0, split_by(1, 1.0, (0, 1.0), (1, 2.0)), (0, 3.0))


@pytest.mark.parametrize(
    ("message", "changed"),
    [
        ("n_targets is at least 1, found None", {"n_targets": None}),
        ("post_transform 0 to 4, found 1 and 9", {"post_transform": 9}),
        ("lead from node 0 back to it", {"nodes_truenodeids": [1, 0], "nodes_trueleafs": [0, 0]}),
        (
            "nodes_featureids has 2 numbers, each at least 0 and below 2, found 2 from 0 to 5",
            {"nodes_featureids": [0, 5]},
        ),
        ("nodes_featureids has 2 numbers", {"nodes_featureids": [0, -1]}),
        (r"nodes_truenodeids leads to a node or leaf that is not there \(2 and 3\)", {"nodes_truenodeids": [2, 0]}),
        ("leaf_targetids has 3 numbers, each at least 0 and below 2", {"leaf_targetids": [0, 1, 2]}),
        ("tree_roots has 1 numbers, each at least 0 and below 2, found 1 from 4 to 4", {"tree_roots": [4]}),
        ("nodes_splits has 2 numbers, found 1", {"nodes_splits": np.ones(1, np.float32)}),
        ("for each of the 1 nodes that ask for one, found 0", {"nodes_modes": np.asarray([0, 6], np.uint8)}),
    ],
)
def test_a_malformed_ensemble_is_refused(message, changed):
    with pytest.raises(InputError, match=f"TreeEnsemble node 'trees': .*{message}"):
        shapes_of(model((4, 2), Ensemble(TREE).attributes(), **changed))
