"""Every value has a readable, unique name; inputs and outputs are addressed by pytree path."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name

from autoshard.errors import InputError
from autoshard.frontends.jax.function import trace
from autoshard.program.program import Origin
from autoshard.program.types import TensorType

X = jax.ShapeDtypeStruct((4, 8), jnp.float32)


class Moments(NamedTuple):
    mu: object
    nu: object


@functools.partial(jax.tree_util.register_dataclass, data_fields=["weight"], meta_fields=[])
@dataclasses.dataclass
class Layer:
    weight: object


@jax.tree_util.register_pytree_node_class
class Opaque:
    """A custom node without key paths."""

    def __init__(self, a, b):
        self.a, self.b = a, b

    def tree_flatten(self):
        return (self.a, self.b), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


def total(*trees):
    return sum(jnp.sum(x) for x in jax.tree.leaves(trees))


def names_of(f, *specs, **options):
    return trace(f, *specs, **options).program.input_names


def test_a_dictionary_key_follows_the_parameter_name():
    assert names_of(lambda state, batch: total(state, batch), {"params": {"wq": X}}, X) == ("state/params/wq", "batch")


def test_named_tuples_give_field_names_and_sequences_indices():
    assert names_of(lambda opt: total(opt), [Moments(X, {"w": X}), (X,)]) == ("opt/0/mu", "opt/0/nu/w", "opt/1/0")


def test_registered_dataclasses_give_field_names():
    assert names_of(lambda layer: total(layer), {"l": Layer(X)}) == ("layer/l/weight",)


def test_custom_nodes_without_keys_are_numbered():
    assert names_of(lambda p: total(p), Opaque(X, {"b": X})) == ("p/0", "p/1/b")


def test_none_is_no_leaf():
    assert names_of(lambda p: total(p), {"a": None, "b": X}) == ("p/b",)


def test_variadic_arguments_are_numbered():
    assert names_of(lambda first, *rest: total(first, rest), X, X, {"a": X}) == ("first", "rest/0", "rest/1/a")


def test_partial_and_jitted_functions_keep_their_parameter_names():
    def loss(params, batch, scale):
        return total(params, batch) * scale

    traced = trace(functools.partial(jax.jit(loss), scale=2.0), X, X)
    assert traced.program.input_names == ("params", "batch")
    assert traced.program.name == "loss"


def test_argnames_replace_the_parameter_names():
    assert names_of(lambda a, b: total(a, b), X, {"w": X}, argnames=("state", "batch")) == ("state", "batch/w")


def test_argnames_must_be_different_and_as_many_as_arguments():
    for wrong in (("a",), ("a", "a")):
        with pytest.raises(InputError, match="must be 2 different names"):
            trace(lambda a, b: total(a, b), X, X, argnames=wrong)


def test_two_leaves_never_share_a_name():
    assert names_of(lambda p: total(p), {"a": {"b": X}, "a/b": X}) == ("p/a/b", "p/a/b~2")


def test_nor_does_a_leaf_whose_own_name_is_that_which_another_one_was_given():
    named = names_of(lambda p: total(p), {"a": {"b": X}, "a/b": X, "a/b~2": X})
    assert named == ("p/a/b", "p/a/b~2", "p/a/b~2~2")


def test_an_argument_never_shares_a_name_with_a_result():
    program = trace(lambda out: out, {"w": X}).program
    assert (program.input_names, program.output_names) == (("out~2/w",), ("out/w",))


def test_outputs_are_named_by_path_and_a_single_array_is_out():
    assert trace(lambda x: x + 1, X).program.output_names == ("out",)
    assert trace(lambda x: ({"loss": x}, Moments(x, x)), X).program.output_names == (
        "out/0/loss",
        "out/1/mu",
        "out/1/nu",
    )


def test_every_value_name_is_unique_and_shows_the_op():
    def f(x, ws):
        y, _ = jax.lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, ws)
        a, b = jax.lax.split(y, (4, 4), axis=1)
        return a + b

    program = trace(f, X, jax.ShapeDtypeStruct((3, 8, 8), jnp.float32)).program
    names = [v.name for v in program.values]
    assert len(set(names)) == len(names)
    assert [program.values[a].name for a in program.body.ops[0].regions[0].args] == ["scan:0/x", "scan:0/ws"]
    assert {"scan:0", "dot_general:1", "split:3.0", "split:3.1"} <= set(names)


def test_value_ids_index_the_list_of_values_and_op_ids_are_consecutive():
    program = trace(jax.grad(lambda x: jnp.sum(jnp.tanh(x) @ x.T)), X).program
    assert [v.id for v in program.values] == list(range(len(program.values)))
    assert sorted(program.ops) == list(range(len(program.ops)))


def test_checkpoint_name_tags_its_value_and_leaves_no_op():
    program = trace(lambda x: jnp.tanh(checkpoint_name(x @ x.T, "scores")), X).program
    assert [op.kind for op in program.body.ops] == ["transpose", "dot_general", "tanh"]
    assert program.values[program.body.ops[1].results[0]].tags == ("scores",)


def test_a_value_can_carry_several_tags_and_an_input_one():
    program = trace(lambda x: checkpoint_name(checkpoint_name(checkpoint_name(x, "a"), "b"), "a") * 2, X).program
    assert program.values[program.body.args[0]].tags == ("a", "b")


def test_ops_know_their_source_line_and_function():
    def forward(x):
        return jnp.tanh(x)

    op = trace(lambda x: forward(x), X).program.body.ops[0]
    line = forward.__code__.co_firstlineno + 1
    assert op.source.startswith(f"test_jax_names.py:{line} (")
    assert op.source.partition(" (")[2].startswith("test_ops_know") or "forward" in op.source


def test_jax_helpers_show_the_line_that_calls_them_this_time():
    def earlier(x):
        return jax.nn.silu(x)

    def later(x):
        return jax.nn.silu(x)  # JAX keeps the lines of `earlier` for what is inside of silu

    trace(earlier, X)
    line = later.__code__.co_firstlineno + 1
    assert all(f":{line} " in op.source for op in trace(later, X).program.body.ops)


def test_named_scopes_and_the_backward_pass_show_in_the_source():
    def f(x):
        with jax.named_scope("block"):
            return jnp.sum(jnp.sin(x))

    sources = [op.source for op in trace(jax.grad(f), X).program.body.ops]
    assert any("jvp(block)" in s for s in sources)
    assert any("transpose(jvp(block))" in s for s in sources)


def test_python_scalars_are_weakly_typed_inputs():
    traced = trace(lambda x, lr: x * lr, jax.ShapeDtypeStruct((4,), jnp.bfloat16), 0.1)
    assert traced.in_types[1].weak_type
    assert traced.program.values[traced.program.body.results[0]].type == TensorType((4,), "bfloat16")


def test_arrays_and_numpy_arrays_serve_as_types():
    traced = trace(lambda a, b: a + b, jnp.ones((2, 3), jnp.bfloat16), np.ones((2, 3)))
    assert [str(traced.program.type_of(v)) for v in traced.program.body.args] == ["bfloat16[2,3]", "float32[2,3]"]


def test_a_leaf_that_is_no_array_is_static():
    traced = trace(lambda config, x: x * 2 if config["mode"] == "fast" else x, {"mode": "fast"}, X)
    assert traced.program.input_names == ("x",) and [op.kind for op in traced.program.body.ops] == ["mul"]


def test_donated_arguments_are_given_by_leaf():
    specs = ({"a": X, "b": X}, X, [X])
    assert trace(lambda s, b, t: total(s, b, t), *specs, donate_argnums=(0, -1)).program.donated == {0, 1, 3}
    assert trace(lambda s, b, t: total(s, b, t), *specs, donate_argnums=1).program.donated == {2}
    with pytest.raises(InputError, match="donate_argnums names argument 3, but there are 3: s, b, t"):
        trace(lambda s, b, t: total(s, b, t), *specs, donate_argnums=3)


def test_closed_over_arrays_are_constants_and_closed_over_scalars_literals():
    table, scale = np.arange(8, dtype=np.float32), jnp.asarray(3.0)
    traced = trace(lambda x: x * table * scale + table, X)
    program = traced.program
    assert [program.values[a].origin for a in program.body.args] == [Origin.INPUT, Origin.CONST]
    assert program.values[program.body.args[1]].name == "const:0"
    np.testing.assert_array_equal(traced.consts[0], table)
    assert [v.literal for v in program.values if v.origin is Origin.LITERAL] == [3.0]


def test_equal_literals_of_one_type_are_one_value():
    program = trace(lambda x: (x + 2.0) * 2.0 + jnp.int32(2), X).program
    assert [v.name for v in program.values if v.origin is Origin.LITERAL] == ["literal:2.0:float32"]


def test_equal_ops_have_one_rule_and_others_their_own():
    def f(x):
        return jnp.sin(x) + 0.0, jnp.sin(x + 1.0) + 0.0, x[:1] * 2.0

    program = trace(f, jax.ShapeDtypeStruct((4, 8), jnp.float32)).program
    zero, one, other = [op.rule for op in program.ops.values() if op.kind == "add"]
    assert zero is other and zero.linear != one.linear
    assert len({id(op.rule) for op in program.ops.values() if op.kind == "sin"}) == 1


def test_ops_on_lines_of_their_own_keep_them_however_often_they_are_traced():
    def layer(x):
        y = jnp.sin(x)
        return jnp.cos(y)

    def f(x):
        return jax.checkpoint(layer)(layer(layer(x)))

    line = layer.__code__.co_firstlineno
    ops = trace(f, jax.ShapeDtypeStruct((4, 8), jnp.float32)).program.ops.values()
    found = [(op.kind, op.source.split(" ")[0]) for op in ops if op.kind in ("sin", "cos")]
    assert found == [("sin", f"test_jax_names.py:{line + 1}"), ("cos", f"test_jax_names.py:{line + 2}")] * 3
