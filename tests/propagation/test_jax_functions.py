"""JAX functions: our propagation over the traced program against Shardy's over the lowered module."""

import jax
import jax.numpy as jnp
import pytest
from against_shardy import MESH, U, ours_and_shardys
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from autoshard.frontends.jax.function import trace
from autoshard.interop.jax import auto_abstract_mesh
from autoshard.propagation import propagate


def scanned(x, w):
    return jax.lax.scan(lambda c, wi: (jnp.tanh(c @ wi), c.sum(0)), x, w)


def looped(x, w):
    return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.tanh(c[1] @ w)), (0, x))


def branched(i, x, y):
    return jax.lax.cond(i.sum() > 0, lambda a, b: a + b, lambda a, b: a * jnp.exp(b), x, y)


def attention(q, k, v):
    logits = jnp.einsum("bqhd,bkhd->bhqk", q, k)
    logits = jnp.where(jnp.tril(jnp.ones((16, 16), bool)), logits, -1e9)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(logits), v)


def loss(w1, w2, x, y):
    return jnp.mean((jax.nn.gelu(x @ w1) @ w2 - y) ** 2)


HEADS = (8, 16, 4, 32)
LOSS = ((64, 128), (128, 64), (32, 64), (32, 64)), (P(U, "model"), None, P("data", U), None)
CASES = {
    "scan": (scanned, ((16, 64), (6, 64, 64)), (P("data", U), P(U, U, "model"))),
    "scan backward": (scanned, ((16, 64), (6, 64, 64)), (P(U, "model"), None)),
    "while": (looped, ((16, 64), (64, 64)), (P("data", U), None)),
    "while, captured weight": (looped, ((16, 64), (64, 64)), (None, P(U, "model"))),
    "cond": (branched, ((4,), (16, 8), (16, 8)), (None, P("data", U), None)),
    "attention": (attention, (HEADS, HEADS, HEADS), (P("data", U, "model", U), None, None)),
    "gradient": (jax.grad(loss, (0, 1)), *LOSS),
    "remat": (jax.grad(jax.checkpoint(loss), (0, 1)), *LOSS),
    "embedding": (lambda e, t: e[t], ((128, 64), ("int32", 8, 16)), (P(U, "model"), P("data", U))),
    "convolution": (
        lambda x, k: jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
        ((8, 16, 16, 4), (3, 3, 4, 32)),
        (P("data", U, U, U), P(U, U, U, "model")),
    ),
    "reshape": (lambda x: x.reshape(16, 4, 16).transpose(1, 0, 2), ((16, 64),), (P("data", "model"),)),
    "conflict": (lambda x, y: x + y, ((16, 64), (16, 64)), (P("data", U), P(U, "data"))),
    "cache update": (
        lambda c, u: jax.lax.dynamic_update_slice(c, u, (0, 3, 0)),
        ((8, 16, 32), (8, 1, 32)),
        (P("data", U, "model"), None),
    ),
    "constants": (lambda x: x + jnp.arange(64.0)[None], ((16, 64),), (P("data", "model"),)),
    "gradient of scan": (
        jax.grad(lambda w, x: scanned(x, w)[0].sum()),
        ((6, 64, 64), (16, 64)),
        (P(U, U, "model"), P("data", U)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_traced_functions_get_the_shardings_of_their_lowered_form(name: str) -> None:
    ours, theirs = ours_and_shardys(*CASES[name])
    assert ours == theirs


def test_where_shardy_has_no_rule_ours_passes_more() -> None:
    ours, theirs = ours_and_shardys(lambda x: jax.lax.top_k(x, 4), ((16, 64),), (P("data", U),))
    assert ours[0] == '[{"data", ?}, {?}]'
    assert theirs[0] == "[{?}, {?}]"


LAYERS = {"layers": 2, "d_model": 32, "d_ff": 64, "heads": 4, "kv_heads": 2, "vocab": 64, "batch": 8, "seq": 16}
WEIGHTS = {"wq": -2, "w_gate": -1, "w_up": -1}  # the dimension that goes on "model"
MODELS = {
    "mlp": {},
    "transformer": LAYERS,
    "transformer, remat": {**LAYERS, "remat": True},
    "moe": LAYERS,
    "resnet": {},
}


def stated(path: str, rank: int) -> P | None:
    """Batches on data; heads and the hidden dimension of some weights on model."""
    if path.startswith("[1]"):
        return P("data", *[U] * (rank - 1))
    cut = next((d for name, d in WEIGHTS.items() if path.endswith(f"['{name}']") and "params" in path), None)
    return None if cut is None else P(*("model" if d == rank + cut else U for d in range(rank)))


@pytest.mark.parametrize(
    "name", [n if n in ("transformer", "mlp") else pytest.param(n, marks=pytest.mark.slow) for n in MODELS]
)
def test_train_steps_of_the_library_get_the_shardings_of_their_lowered_form(name: str) -> None:
    from autoshard.models import build

    model = build(name.split(",")[0], **MODELS[name])
    leaves, tree = jax.tree.flatten(model.specs)
    paths = [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_flatten_with_path(model.specs)[0]]
    specs = [stated(path, leaf.ndim) for path, leaf in zip(paths, leaves, strict=True)]
    shapes = [(str(leaf.dtype), *leaf.shape) for leaf in leaves]
    ours, theirs = ours_and_shardys(
        lambda *xs: jax.tree.leaves(model.step(*jax.tree.unflatten(tree, xs))), shapes, specs
    )
    assert ours == theirs
    assert sum('"' in sharding for sharding in ours) >= 2


def test_the_source_of_an_axis_is_the_constraint_in_the_code() -> None:  # S2.50
    sharding = NamedSharding(auto_abstract_mesh((4, 2), ("data", "model")), P("data", None))

    def f(x):
        y = jnp.exp(x)
        return jnp.tanh(jax.lax.with_sharding_constraint(y, sharding))

    program = trace(f, jax.ShapeDtypeStruct((8, 8), "float32")).program
    found = propagate(program, MESH, {}, trace=True)
    assert found.provenance is not None
    (constraint,) = (op for op in program.ops.values() if op.kind == "sharding_constraint")
    for value in (program.body.args[0], constraint.operands[0], program.body.results[0]):
        (axis,) = found.provenance[value]
        assert (str(axis.axis), axis.dim, axis.origin) == ('"data"', 0, constraint.results[0])
    assert found.provenance[program.body.args[0]][0].path[-1].op == constraint.id
