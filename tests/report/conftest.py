"""Small plans that pages are made of, and a browser that opens them."""

import json
from collections.abc import Iterator
from pathlib import Path

import browser
import jax
import jax.numpy as jnp
import pytest

import autoshard
from autoshard import Pin
from autoshard.api.plans import Plan

LAYERS = 3
WIDTH = 256


def train_step(params: list[dict[str, jax.Array]], x: jax.Array) -> tuple[list[dict[str, jax.Array]], jax.Array]:
    """A step with layers that are written out, a loop, and gradients."""

    def loss(params: list[dict[str, jax.Array]]) -> jax.Array:
        h = x
        for layer in params:
            up = jnp.tanh(h @ layer["up"]) + jnp.exp(h @ layer["up"]) * 0.5
            h = h + jax.nn.softmax(up, axis=-1) @ layer["down"]
        h, _ = jax.lax.scan(lambda carry, _: (jnp.sin(carry), None), h, length=4)
        return (h**2).mean()

    value, grads = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def make_plan(sharding: str) -> Plan:
    leaf = jax.ShapeDtypeStruct((WIDTH, 4 * WIDTH), jnp.float32), jax.ShapeDtypeStruct((4 * WIDTH, WIDTH), jnp.float32)
    params = [{"up": leaf[0], "down": leaf[1]} for _ in range(LAYERS)]
    return autoshard.plan(
        train_step, params, jax.ShapeDtypeStruct((512, WIDTH), jnp.float32), mesh={"data": 2, "model": 4},
        hardware="tpu_v5e", constraints=[Pin("params/0/up", sharding)], donate_argnums=0,
        effort=0.02, accepted_gap=0.2, price_sharing=False,
    )  # fmt: skip


@pytest.fixture(scope="session")
def plan() -> Plan:
    return make_plan('[{}, {"model"}]')


@pytest.fixture(scope="session")
def plan_file(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("plans") / "a" / "plan.json"
    plan.save(file)
    return file


@pytest.fixture(scope="session")
def other_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("plans") / "b" / "plan.json"
    make_plan('[{"data"}, {}]').save(file)
    return file


@pytest.fixture(scope="session")
def hostile_file(plan_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plan with names, places and remarks that would be markup or code where a page took them for that."""
    data = json.loads(plan_file.read_text())
    program = data["program"]
    program["name"] = browser.ATTACK
    program["warnings"] = [browser.ATTACK]
    data["notes"] = [browser.ATTACK]
    data["baselines"] = [{"name": browser.ATTACK, "objective_s": 1.0, "peak_bytes": 1, "reason": browser.ATTACK}]
    program["input_names"] = [name + browser.ATTACK for name in program["input_names"]]
    program["output_names"] = [name + browser.ATTACK for name in program["output_names"]]
    for value in program["values"]:
        value["name"] += browser.ATTACK
        value["tags"] = [browser.ATTACK]
    blocks = [program["body"]]
    while blocks:
        for op in blocks.pop()["ops"]:
            op["source"] = browser.ATTACK
            blocks += op["regions"]
    file = tmp_path_factory.mktemp("plans") / "hostile" / "plan.json"
    file.parent.mkdir()
    file.write_text(json.dumps(data))
    return file


@pytest.fixture(scope="module")
def chromium() -> Iterator[browser.Browser]:
    if browser.CHROMIUM is None:
        pytest.skip("no Chromium is installed (apt-get install chromium)")
    with browser.Browser() as opened:
        opened.resize(1500, 1000)
        yield opened
