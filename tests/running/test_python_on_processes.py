"""The Python API in a program of two processes that JAX has joined: what each hands over, and what it gets back."""

import json
import socket
import subprocess
import sys

import pytest
from process_runs import environment

SCRIPT = """\
import json, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh
import autoshard
from autoshard import Pin

jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{sys.argv[1]}", 2, int(sys.argv[2]))


def step(w, key):
    key, now = jax.random.split(key)
    return w + jax.random.normal(now, w.shape), key


def differs(result, wanted):
    return max([float(np.abs(s.data - wanted[s.index]).max()) for s in result.addressable_shards], default=0.0)


w, key = np.ones((8, 4), np.float32), jax.random.key(3)
alone = [(w, key)]
for _ in range(2):
    alone.append(tuple(jax.jit(step)(*alone[-1])))
wanted = [np.asarray(w) for w, _ in alone]
asked = {"hardware": "cpu_sim", "constraints": Pin("w", '[{"data"}, {"model"}]')}
devices, names = np.array(jax.devices()), ("data", "model")

planned = autoshard.jit(step, mesh={"data": 2, "model": 4}, keep=False, **asked)
found = {"jit": differs(planned(*planned(w, key))[0], wanted[2])}

plan = planned.plan
turned = autoshard.plan(step, w, key, mesh=Mesh(devices[::-1].reshape(2, 4), names), **asked)
moved = turned.place(*plan.jit()(*plan.place(w, key)))
found["moved"] = differs(turned.jit()(*moved)[0], wanted[2])

half = autoshard.plan(step, w, key, mesh=Mesh(devices[4:].reshape(2, 2), names), **asked)
result, _ = half.jit()(*half.place(w, key))
found["half"] = [differs(result, wanted[1]), len(result.addressable_shards)]

own = Pin("w", ['[{"data"}, {}]', '[{}, {"model"}]'][jax.process_index()])
try:
    autoshard.jit(step, mesh={"data": 2, "model": 4}, hardware="cpu_sim", constraints=own, keep=False)(w, key)
except autoshard.InputError as error:
    found["apart"] = str(error)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each of the two processes found."""
    script = tmp_path_factory.mktemp("processes") / "script.py"
    script.write_text(SCRIPT)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    there = {**environment(), "XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    processes = [
        subprocess.Popen([sys.executable, str(script), str(port), str(k)], env=there, text=True, stdout=-1, stderr=-1)
        for k in range(2)
    ]
    try:
        told = [process.communicate(timeout=240) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert not any(process.returncode for process in processes), told
    return [json.loads(out.splitlines()[-1]) for out, _ in told]


def test_a_function_that_is_planned_at_its_first_call_takes_random_keys(found):
    assert all(one["jit"] < 1e-6 for one in found)


def test_random_keys_are_moved_to_another_order_of_the_devices(found):
    assert all(one["moved"] < 1e-6 for one in found)


def test_a_process_without_devices_of_the_mesh_holds_nothing_and_goes_on(found):
    assert [one["half"][1] for one in found] == [0, 4]
    assert all(one["half"][0] < 1e-6 for one in found)


def test_processes_that_made_different_plans_do_not_run_them(found):
    for number, one in enumerate(found):
        assert f"process {number} has another plan of step than process {1 - number}: " in one["apart"]
