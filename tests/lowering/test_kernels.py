"""Custom kernels run cut, as planned: values are those of one device. On CPUs Pallas kernels are interpreted."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.custom_partitioning import custom_partitioning

import autoshard

ASKED = {"mesh": {"data": 2, "model": 4}, "hardware": "tpu_v5e"}


def _random(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def _kernels(plan):
    return {op.attrs["kernel"]["name"]: op for op, _ in plan.program.walk() if "kernel" in op.attrs}


def _cut(plan, name):
    """How many parts each factor of a kernel is cut in."""
    op = _kernels(plan)[name]
    return [plan.schedule.mesh.size(atoms) for atoms in plan.schedule.placements[op.id].factors]


def _equal(plan, f, *arguments):
    for one, other in zip(
        jax.tree.leaves(plan.jit()(*arguments)), jax.tree.leaves(jax.jit(f)(*arguments)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


# -- flash attention -----------------------------------------------------------------------------------------------


def _gradients(attend):
    return jax.grad(lambda q, k, v: (attend(q, k, v) ** 2).sum(), argnums=(0, 1, 2))


def _by_hand(q, k, v):
    """Causal attention in plain JAX."""
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * 0.3
    causal = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), axis=-1), v)


@pytest.fixture(scope="module")
def flash():
    """The gradient of causal flash attention, and arguments for it."""
    from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention

    attend = functools.partial(flash_attention, causal=True, sm_scale=0.3)
    return _gradients(attend), [_random(2, 4, 128, 8) for _ in range(3)]


@pytest.fixture(scope="module")
def flash_plan(flash):
    pin = autoshard.Pin("out/*", '[{"data"}, {"model"}, {}, {}]')
    return autoshard.plan(flash[0], *flash[1], constraints=[pin], **ASKED)


@pytest.mark.parametrize("kernel", ["", "_dkv", "_dq"])
def test_flash_attention_is_cut_on_batch_and_heads_forward_and_backward(flash_plan, kernel):
    assert _cut(flash_plan, f"_flash_attention{kernel}_kernel")[:2] == [2, 4]


def test_flash_attention_that_runs_cut_has_the_gradients_of_plain_attention(flash_plan, flash):
    _equal(flash_plan, _gradients(_by_hand), *flash[1])


def test_plan_of_flash_attention_from_a_file_runs_again(flash_plan, flash, tmp_path):
    flash_plan.save(tmp_path / "plan.json")
    loaded = autoshard.Plan.load(tmp_path / "plan.json")
    assert loaded.attach(flash[0], *flash[1]).lowered.planned == flash_plan.lowered.planned


# -- kernels of one's own ------------------------------------------------------------------------------------------


def _scaled(x, y):
    """Rows times columns in blocks of 8, by a Pallas kernel."""

    def body(x_ref, y_ref, out_ref):
        out_ref[...] = jnp.dot(x_ref[...], y_ref[...])

    rows, columns, inner = x.shape[0], y.shape[1], x.shape[1]
    return pl.pallas_call(
        body, out_shape=jax.ShapeDtypeStruct((rows, columns), x.dtype), grid=(rows // 8, columns // 8), name="blocked",
        in_specs=[pl.BlockSpec((8, inner), lambda i, j: (i, 0)), pl.BlockSpec((inner, 8), lambda i, j: (0, j))],
        out_specs=pl.BlockSpec((8, 8), lambda i, j: (i, j)), interpret=True,
    )(x, y)  # fmt: skip


ROWS = autoshard.Pin("out", '[{"data"}, {"model"}]')
ARGUMENTS = (_random(32, 16), _random(16, 32))
BY_RULE = autoshard.Kernel("blocked", rule="([i, k], [k, j])->([i, j])", whole="k")
BY_GRID = autoshard.Kernel("blocked", grid=[0, 1])


@pytest.mark.parametrize("kernel", [BY_RULE, BY_GRID], ids=["rule", "grid"])
def test_pallas_kernel_runs_on_blocks_of_its_grid(kernel):
    plan = autoshard.plan(_scaled, *ARGUMENTS, constraints=[kernel, ROWS], **ASKED)
    assert sorted(_cut(plan, "blocked"))[-2:] == [2, 4]
    _equal(plan, _scaled, *ARGUMENTS)


def test_pallas_kernel_under_vmap_is_cut_along_the_batch():
    f = jax.vmap(_scaled)
    arguments = (_random(8, 8, 16), _random(8, 16, 8))
    pin = autoshard.Pin("out", '[{"data", "model"}, {}, {}]')
    plan = autoshard.plan(f, *arguments, constraints=[autoshard.Kernel("blocked", grid=[]), pin], **ASKED)
    assert 8 in _cut(plan, "blocked")
    _equal(plan, f, *arguments)


def test_no_block_of_a_pallas_kernel_is_cut():
    """32 rows in blocks of 8 are at most 4 parts."""
    plan = autoshard.plan(_scaled, *ARGUMENTS, constraints=[BY_GRID], **ASKED)
    rule = _kernels(plan)["blocked"].rule
    assert rule is not None and [rule.factor_sizes[f] for f in rule.shardable] == [4, 4]


def test_a_local_function_runs_in_the_place_of_the_kernel():
    half = autoshard.Kernel("blocked", rule="([i, k], [k, j])->([i, j])", whole="k", local=lambda x, y: x @ y / 2)
    plan = autoshard.plan(_scaled, *ARGUMENTS, constraints=[half, ROWS], **ASKED)
    np.testing.assert_allclose(plan.jit()(*ARGUMENTS), ARGUMENTS[0] @ ARGUMENTS[1] / 2, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def summed():
    """A plan that cuts the contraction of a kernel, its function and arguments."""
    whole = autoshard.Kernel("blocked", rule="([i, k], [k, j])->([i, j])", reduction="k", local=jnp.matmul)
    pins = [
        autoshard.Pin("x", '[{}, {"model"}]'),
        autoshard.Pin("y", '[{"model"}, {}]'),
        autoshard.Pin("out", "[{}, {}]"),
    ]
    f = lambda x, y: _scaled(x, y) * 2  # noqa: E731
    arguments = _random(8, 256), _random(256, 8)
    return autoshard.plan(f, *arguments, constraints=[whole, *pins], **ASKED), f, arguments


def test_cut_reduction_of_a_local_function_is_summed(summed):
    plan, f, arguments = summed
    assert _cut(plan, "blocked")[1] == 4
    _equal(plan, f, *arguments)


def test_kernel_is_cut_by_a_shard_map_of_its_own_where_xla_partitions_the_program(summed):
    plan, f, arguments = summed
    target = plan.lower("constraints")
    assert "tensor<8x64xf32>" in target.stablehlo()
    np.testing.assert_allclose(target.jit()(*arguments), jax.jit(f)(*arguments), rtol=1e-4, atol=1e-4)


@jax.jit
def fused(x, y):
    return jnp.sin(x) @ y


def test_a_jitted_function_with_a_local_function_is_one_kernel():
    f = lambda x, y: fused(jnp.tanh(x), y)  # noqa: E731
    kernel = autoshard.Kernel("fused", rule="([i, k], [k, j])->([i, j])", whole="k", local=fused)
    plan = autoshard.plan(f, *ARGUMENTS, constraints=[kernel, ROWS], **ASKED)
    assert [op.kind for op in plan.program.body.ops] == ["tanh", "jit"]
    _equal(plan, f, *ARGUMENTS)


# -- custom_partitioning -------------------------------------------------------------------------------------------


@custom_partitioning
def product(x, y):
    return jnp.sin(x) @ y


product.def_partition(
    partition=lambda mesh, arguments, result: (
        mesh, lambda x, y: jnp.sin(x) @ y, result.sharding, tuple(a.sharding for a in arguments),
    ),
    sharding_rule="b i j, b j k -> b i k", need_replication_factors=("i",),
)  # fmt: skip


def test_custom_partitioning_is_cut_by_its_sharding_rule():
    arguments = (_random(8, 4, 8), _random(8, 8, 4))
    plan = autoshard.plan(
        product, *arguments, constraints=[autoshard.Pin("out", '[{"data", "model"}, {}, {}]')], **ASKED
    )
    rule = str(_kernels(plan)["product"].rule)
    assert rule == "([i, j, k], [i, k, l])->([i, j, l]) {i=8, j=4, k=8, l=4} need_replication={j, k}"
    _equal(plan, product, *arguments)


def test_partition_function_that_wants_another_sharding_is_refused():
    @custom_partitioning
    def stubborn(x):
        return x * 2

    whole = jax.sharding.PartitionSpec()
    stubborn.def_partition(
        partition=lambda mesh, arguments, result: (
            mesh, lambda x: x * 2, jax.sharding.NamedSharding(mesh, whole), (jax.sharding.NamedSharding(mesh, whole),),
        ),
        sharding_rule="i -> i",
    )  # fmt: skip
    plan = autoshard.plan(stubborn, _random(8), constraints=[autoshard.Pin("out", '[{"data", "model"}]')], **ASKED)
    with pytest.raises(autoshard.UnsupportedError, match="its partition function wants operand 0 as"):
        _ = plan.lowered
