"""What is refused and what is only warned about; abstract size; the same program every time."""

import os
import subprocess
import sys
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import io_callback

from autoshard.errors import InputError, UnsupportedError
from autoshard.frontends.jax.function import trace
from autoshard.models import build

X = jax.ShapeDtypeStruct((4, 8), jnp.float32)


def test_debug_print_is_refused_with_its_line():
    def f(x):
        jax.debug.print("x = {}", x)
        return x + 1

    with pytest.raises(
        UnsupportedError, match=r"jax.debug.print \(debug_\w+\) at test_jax_limits.py:\d+ \(.*f\).* side effects"
    ):
        trace(f, X)


def test_ordered_callbacks_are_refused():
    def f(x):
        return io_callback(np.sin, x, x, ordered=True)

    with pytest.raises(UnsupportedError, match=r"io_callback at .* has side effects"):
        trace(f, X)


def test_pure_callbacks_are_refused_inside_of_loops_too():
    def f(x):
        return jax.lax.fori_loop(0, 3, lambda i, y: jax.pure_callback(np.sin, y, y), x)

    with pytest.raises(UnsupportedError, match=r"pure_callback at .* calls back into Python"):
        trace(f, X)


def test_mutable_references_are_refused():
    def f(x):
        ref = jax.new_ref(x)
        ref[...] += 1
        return ref[...]

    with pytest.raises(UnsupportedError, match=r"side effects|stateful"):
        trace(f, X)


def test_an_unknown_primitive_is_warned_about_once_with_its_line():
    from jax.extend.core import Primitive

    mystery = Primitive("mystery_for_tests")
    mystery.def_abstract_eval(lambda x: x)
    warnings = trace(lambda x: mystery.bind(mystery.bind(x)), X).program.warnings
    assert len(warnings) == 1
    assert "mystery_for_tests" in warnings[0] and "test_jax_limits.py:" in warnings[0]


def test_a_device_put_without_a_named_sharding_and_layouts_are_reported_as_ignored():
    def f(x):
        return jax.device_put(x * 2, jax.devices()[0])

    program = trace(f, X).program
    assert [op.kind for op in program.body.ops] == ["mul"]
    assert [w.partition(" at ")[0] for w in program.warnings] == ["device_put"]
    assert "is ignored: it is no NamedSharding" in program.warnings[0]


def test_values_that_are_offloaded_to_the_host_stay_on_the_device_and_that_is_told():
    """No pin brings them there, which is what the message advised."""
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=["h"], offload_src="device", offload_dst="pinned_host"
    )

    def f(x):
        return jax.checkpoint(lambda x: jnp.sin(checkpoint_name(x @ x.T, "h")).sum(), policy=policy)(x)

    (warning,) = trace(jax.grad(f), X).program.warnings  # moving it back to the device states nothing
    assert "it moves a value to the host's memory" in warning and "pin" not in warning.partition("ignored")[2].split()


def test_two_traces_give_equal_programs():
    def make():
        def layer(c, w):
            return jnp.tanh(c @ w) * jnp.where(c > 0, c, jnp.nan), None

        return jax.grad(lambda x, ws: jnp.sum(jax.lax.scan(jax.checkpoint(layer), x, ws)[0]))

    ws = jax.ShapeDtypeStruct((3, 8, 8), jnp.float32)
    assert trace(make(), X, ws).program == trace(make(), X, ws).program


_PRINT_DIGEST = """
import hashlib
from autoshard.models import build
from autoshard.frontends.jax.function import trace
m = build("moe", layers=2)
print(hashlib.sha256(repr(trace(m.step, *m.specs, argnames=m.argnames).program).encode()).hexdigest())
"""


def test_the_program_does_not_depend_on_the_hash_seed(repository):
    digests = []
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "JAX_PLATFORMS": "cpu"}
        run = subprocess.run(
            [sys.executable, "-c", _PRINT_DIGEST], env=env, cwd=repository, capture_output=True, text=True, check=True
        )
        digests.append(run.stdout.strip())
    assert digests[0] == digests[1] != ""


def test_what_was_traced_before_does_not_change_a_program():
    def make():
        return lambda x: jax.nn.relu(jax.nn.softmax(x)) + jax.nn.one_hot(jnp.argmax(x, 1), 8)

    first = trace(make(), X).program
    trace(lambda x: jax.nn.softmax(x) * 2, X)
    assert trace(make(), X).program == first


def test_a_model_of_405_billion_parameters_is_traced_in_little_memory():
    model = build("transformer", dims="llama3_405b", batch=64)
    assert model.param_count > 4e11
    tracemalloc.start()
    before = len(jax.live_arrays())
    program = trace(model.step, *model.specs, argnames=model.argnames, donate_argnums=0).program
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6
    assert sum(a.nbytes for a in jax.live_arrays()[before:]) < 1e6
    parameters = [v for v in program.values if v.name.startswith("state/params/")]
    assert sum(v.type.elements for v in parameters) == model.param_count
    assert {op.kind for op in program.body.ops} >= {"scan"}
    assert "state/params/layers/wq" in program.input_names


@pytest.mark.parametrize("what", ["shard_map", "constraint"])
def test_a_spec_without_a_mesh_is_told_where_to_set_one(what: str) -> None:
    spec = jax.sharding.PartitionSpec("x", None)

    def f(x):
        if what == "shard_map":
            return jax.shard_map(lambda a: 2 * a, in_specs=spec, out_specs=spec)(x)
        return jax.lax.with_sharding_constraint(2 * x, spec)

    with pytest.raises(InputError, match=r"plan inside of `with jax\.set_mesh\(mesh\):`"):
        trace(f, X)


@pytest.mark.parametrize("what", ["shard_map", "constraint"])
def test_a_mesh_with_explicit_axes_is_told_to_have_axes_of_type_auto(what: str) -> None:
    """`jax.make_mesh` makes axes of type Explicit where it is not told otherwise."""
    mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    spec = jax.sharding.PartitionSpec("x", None)

    def f(x):
        if what == "shard_map":
            return jax.shard_map(lambda a: 2 * a, mesh=mesh, in_specs=spec, out_specs=spec)(x)
        return jax.lax.with_sharding_constraint(2 * x, jax.sharding.NamedSharding(mesh, spec))

    with pytest.raises(InputError, match="make the mesh in it with axes of type Auto"):
        trace(f, X)


@pytest.mark.parametrize("words", [np.array(["a", "b"]), np.array([{}, {}]), np.array(["2026-01-01"], "datetime64[D]")])
def test_an_array_without_numbers_is_told_by_its_path(words):
    with pytest.raises(InputError, match=r"batch\['words'\] is an array of .*, and a program has arrays of numbers"):
        trace(lambda batch: batch["x"] + 1, {"x": jnp.ones((8, 8)), "words": words})
