"""Numbers of values and outputs that a program does not have."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from autoshard.errors import InputError
from autoshard.frontends.jax.function import trace
from autoshard.propagation import propagate
from autoshard.sharding.tensor_sharding import TensorSharding

PROGRAM = trace(jnp.tanh, jax.ShapeDtypeStruct((4, 8), jnp.float32)).program


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"groups": [[0, 99]]}, "there is no value 99"),
        ({"groups": [[0, -1]]}, "there is no value -1"),
        ({"outputs": {7: TensorSharding.from_text("[{}, {}]")}}, "there is no output 7"),
        ({"outputs": {-1: TensorSharding.from_text("[{}, {}]")}}, "there is no output -1"),
    ],
)
def test_unknown_members_of_groups_and_outputs_are_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        propagate(PROGRAM, {"x": 2}, {}, **asked)
