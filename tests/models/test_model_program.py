"""ModelProgram: specs, names of dimensions, determinism, and work."""

import resource
from fnmatch import fnmatchcase

import jax
import numpy as np
import pytest

from autoshard.errors import InputError
from autoshard.models import build
from autoshard.models.parameters import weight

VARIANTS = [
    ("mlp", {}),
    ("mlp", {"task": "regression", "bias": False, "layers": 1}),
    ("transformer", {}),
    ("transformer", {"scan": False, "clip_norm": 1.0, "param_dtype": "bfloat16"}),
    (
        "transformer",
        {"positions": "learned", "norm": "layer", "bias": True, "gated_mlp": False, "tied_embeddings": True},
    ),
    ("transformer", {"qk_norm": True, "qkv_bias": True, "parallel_block": True}),
    ("moe", {"scan": False}),
    ("moe", {"dispatch": "ragged"}),
    ("resnet", {}),
    ("resnet", {"bottleneck": False, "stages": [2, 1]}),
]
variants = pytest.mark.parametrize(("model", "options"), VARIANTS, ids=str)


def leaves_of(program):
    return zip(program.paths(), jax.tree.leaves(program.specs), strict=True)


def described(tree):
    return jax.tree.map(lambda x: (x.shape, np.dtype(x.dtype)), tree)


@variants
def test_every_input_leaf_is_met_by_exactly_one_pattern_of_its_rank(model, options):
    program = build(model, **options)
    used = set()
    for path, leaf in leaves_of(program):
        met = [pattern for pattern in program.logical_axes if fnmatchcase(path, pattern)]
        assert len(met) == 1, path
        assert len(program.axes_of(path)) == len(leaf.shape), path
        used.add(met[0])
    assert used == set(program.logical_axes)


@variants
def test_a_logical_name_occurs_once_in_an_array_and_moments_have_the_names_of_their_parameter(model, options):
    program = build(model, **options)
    for path in program.paths():
        names = program.axes_of(path)
        assert len(set(names)) == len(names), path
        if "/mu/" in path or "/nu/" in path:
            parameter = path.split("/mu/")[-1].split("/nu/")[-1]
            assert names == program.axes_of(f"state/params/{parameter}")


@variants
def test_a_step_returns_the_state_it_takes(model, options):
    program = build(model, **options)
    state, metrics = jax.eval_shape(program.step, *program.specs)
    assert described(state) == described(program.specs[0])
    assert not any(leaf.weak_type for leaf in jax.tree.leaves(state))
    assert list(metrics) == ["loss"]
    assert metrics["loss"].shape == ()


@variants
def test_initial_values_and_batches_have_the_announced_shapes(model, options):
    program = build(model, **options)
    assert described(program.init(0)) == described(program.specs[0])
    assert described(next(program.batches(0))) == described(program.specs[1])


def test_size_of_a_logical_name_is_the_same_everywhere_in_a_transformer():
    program = build("transformer", heads=4, kv_heads=2)
    sizes = {}
    for path, leaf in leaves_of(program):
        for name, size in zip(program.axes_of(path), leaf.shape, strict=True):
            assert sizes.setdefault(name, size) == size, (path, name)
    assert sizes == {
        "vocab": 256, "embed": 64, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16, "mlp": 128, "batch": 8,
        "seq": 32,
    }  # fmt: skip


def test_an_unknown_path_is_an_error_that_lists_the_patterns():
    with pytest.raises(InputError, match=r"has no input 'state/params/wq'; patterns: .*state/params/layers/wq"):
        build("transformer").axes_of("state/params/wq")


def test_the_optimizer_starts_as_optax_starts_it():
    from autoshard.models import training

    program = build("mlp", clip_norm=1.0)
    state = program.init(0)
    started = training.optimizer(
        program.options, jax.tree.map(lambda _: weight((1,), (None,), fan_in=1), state["params"])
    )
    jax.tree.map(np.testing.assert_array_equal, state["opt"], started.init(state["params"]))


def test_moments_are_float32_when_parameters_are_bfloat16():
    state, _ = build("transformer", param_dtype="bfloat16").specs
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(state["params"])} == {"bfloat16"}
    moments = jax.tree.leaves((state["opt"][0].mu, state["opt"][0].nu))
    assert {str(leaf.dtype) for leaf in moments} == {"float32"}


@pytest.mark.parametrize("model", ["mlp", "moe", "resnet"])
def test_the_same_seed_gives_the_same_values_and_another_seed_others(model):
    first, again, other = (build(model).init(seed) for seed in (3, 3, 4))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    for one, two in zip(jax.tree.leaves(first["params"]), jax.tree.leaves(other["params"]), strict=True):
        drawn = np.std(one) > 0  # norms and biases start constant
        assert not drawn or np.all(one != two)


@pytest.mark.parametrize("model", ["mlp", "transformer", "resnet"])
def test_batches_depend_on_the_seed_alone_and_differ_from_each_other(model):
    program = build(model)
    one, two = program.batches(5), program.batches(5)
    first, second = next(one), next(one)
    jax.tree.map(np.testing.assert_array_equal, first, next(two))
    jax.tree.map(np.testing.assert_array_equal, second, next(two))
    assert any((first[name] != second[name]).any() for name in first)
    assert any((first[name] != next(program.batches(6))[name]).any() for name in first)


def test_stacked_and_unrolled_layers_start_from_the_same_values():
    stacked, unrolled = (build("transformer", scan=scan).init(0)["params"]["layers"] for scan in (True, False))
    for i, layer in enumerate(unrolled):
        jax.tree.map(lambda a, b, i=i: np.testing.assert_array_equal(a[i], b), stacked, layer)


def matmul_flop(jaxpr):
    """FLOP of all matmuls and convolutions of a jaxpr, loops included (multiply-add = 2)."""
    total = 0
    for eqn in jaxpr.eqns:
        out = eqn.outvars[0].aval
        if eqn.primitive.name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            total += 2 * out.size * int(np.prod([eqn.invars[0].aval.shape[d] for d in contracted]))
        elif eqn.primitive.name == "conv_general_dilated":
            kernel = eqn.invars[1].aval.shape
            total += 2 * out.size * int(np.prod(kernel[:-1]))
        elif eqn.primitive.name == "ragged_dot_general":
            total += 2 * out.size * eqn.invars[0].aval.shape[-1]
        trips = eqn.params.get("length", 1)
        bodies = (getattr(value, "jaxpr", value) for value in eqn.params.values())
        total += sum(trips * matmul_flop(body) for body in bodies if hasattr(body, "eqns"))
    return total


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("mlp", {}),
        ("transformer", {"kv_heads": 2}),
        ("transformer", {"scan": False, "tied_embeddings": True, "gated_mlp": False, "head_dim": 24}),
        ("moe", {"dispatch": "ragged"}),
        ("resnet", {"groups": 2, "stages": [2, 1]}),
        ("resnet", {"bottleneck": False, "stem": "large", "image": 19}),
    ],
    ids=str,
)
def test_model_flop_counts_the_matmuls_of_the_forward_pass(model, options):
    program = build(model, **options)
    traced = jax.make_jaxpr(program.loss)(*program.specs)
    assert program.forward_matmul_flop == matmul_flop(traced.jaxpr)
    assert program.model_flop_per_step == 3 * program.forward_matmul_flop


def test_flop_of_llama3_8b_are_six_per_parameter_and_token_plus_attention():
    program = build("transformer", dims="llama3_8b", batch=1)
    embedding, norms = 128256 * 4096, 65 * 4096
    assert program.matmul_params == program.param_count - embedding - norms
    attention = 12 * 32 * 4096 * 8192  # 12 L N H S per token
    assert program.model_flop_per_step == 8192 * (6 * program.matmul_params + attention)


def test_the_largest_model_traces_without_its_memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB
    program = build("transformer", dims="llama3_405b", batch=2048)
    jax.make_jaxpr(program.step)(*program.specs)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert program.param_count > 4e11  # 1.6 TB in float32
    assert grown < 500_000
