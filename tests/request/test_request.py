"""A request is one value, whether keywords or a config made it."""

import textwrap
from dataclasses import fields, replace

import pytest

from autoshard import Pin
from autoshard.api.session import trace_config
from autoshard.config.asking import request_of_config
from autoshard.config.load import load_config
from autoshard.config.problem import build_problem
from autoshard.costmodels import load_profile, place_mesh
from autoshard.errors import InputError
from autoshard.request.asking import asked
from autoshard.request.request import Request, request_of
from autoshard.search_options import SearchOptions

CONFIG = """
    function: request_work:double
    args: {x: "float32[8,4]"}
    mesh: {a: 2, b: {size: 2, link: dcn}}
    hardware: tpu_v5e
    pins: {x: '[{"a"}, {}]'}
    memory_limit: 1MiB
    solver: {effort: 0.5, seed: 3, accepted_gap: 0.01}
    time_limit: 1min
"""


@pytest.fixture
def config(tmp_path):
    (tmp_path / "request_work.py").write_text("def double(x):\n    return x + x\n")
    (tmp_path / "plan.yaml").write_text(textwrap.dedent(CONFIG))
    return load_config(tmp_path / "plan.yaml")


def requested(config) -> Request:
    problem = build_problem(config)
    return request_of_config(config, problem, trace_config(config, problem), SearchOptions().within(60))


def test_a_link_of_an_axis_is_refused_beside_a_machine_that_is_placed_already(config):
    of_config = requested(config)
    placed = replace(of_config, hardware=place_mesh(load_profile("tpu_v5e"), {"a": 2, "b": 2}))
    with pytest.raises(InputError, match="axis 'b' is to lie on dcn, and the machine is placed already"):
        asked(placed)


def test_a_config_and_keywords_that_say_the_same_ask_for_the_same(config):
    of_config = requested(config)
    of_words = request_of(
        of_config.traced,
        mesh={"a": 2, "b": {"size": 2, "link": "dcn"}},
        hardware="tpu_v5e",
        constraints=[Pin("x", '[{"a"}, {}]')],
        memory_limit="1MiB",
        time_limit=60,
        effort=0.5,
        seed=3,
        accepted_gap=0.01,
    )
    one, other = asked(of_config), asked(of_words)
    assert one.problem.machine == other.problem.machine
    assert one.problem.memory_limit == other.problem.memory_limit == 2**20
    assert [p.sharding for p in one.problem.pins] == [p.sharding for p in other.problem.pins]
    assert of_config.told_options() == of_words.told_options()
    assert of_config.between_slices == of_words.between_slices == {"b"}


def test_the_time_limit_of_a_request_begins_when_it_is_made(config):
    request = request_of(requested(config).traced, mesh={"a": 2}, hardware="tpu_v5e", time_limit="1min")
    left = request.options.deadline.left()
    assert left is not None
    assert 0 < left <= 60


def test_an_unknown_keyword_is_named_with_what_it_may_have_been(config):
    with pytest.raises(TypeError, match="unknown keyword 'efort'; did you mean 'effort'"):
        request_of(requested(config).traced, mesh={"a": 2}, hardware="tpu_v5e", efort=2)


def test_a_keyword_of_jax_is_told_with_the_statement_in_its_place(config):
    with pytest.raises(TypeError, match="unknown keyword 'in_shardings'; state a sharding with constraints="):
        request_of(requested(config).traced, mesh={"a": 2}, hardware="tpu_v5e", in_shardings=None)


def test_a_placed_machine_has_no_open_sizes(config):
    machine = place_mesh(load_profile("tpu_v5e"), {"a": 4})
    with pytest.raises(InputError, match="a machine is placed for one mesh"):
        request_of(requested(config).traced, mesh={"devices": 4, "axes": ["a"]}, hardware=machine)


def test_on_a_mesh_of_other_sizes_baselines_that_need_more_axes_are_left_out(config):
    request = request_of(
        requested(config).traced, mesh={"devices": 4, "axes": ["a", "b"]}, hardware="tpu_v5e",
        baselines=["fsdp", "fsdp+tensor"], roles={"x": ["batch", None]},
    )  # fmt: skip
    found = request.on({"a": 4}, lambda name, mesh: name == "fsdp")
    assert (found.mesh, found.baselines) == ({"a": 4}, ["fsdp"])


def test_on_a_mesh_of_other_sizes_all_else_stays(config):
    request = request_of(requested(config).traced, mesh={"devices": 4, "axes": ["a", "b"]}, hardware="tpu_v5e", seed=5)
    found = request.on({"a": 2, "b": 2}, lambda name, mesh: True)
    same = [f.name for f in fields(Request) if f.name not in ("mesh", "baselines")]
    assert all(getattr(found, name) == getattr(request, name) for name in same)


def test_a_config_with_open_sizes_is_read_again_for_each_mesh(config, tmp_path):
    text = textwrap.dedent(CONFIG).replace("{a: 2, b: {size: 2, link: dcn}}", "{devices: 4, axes: [a, b]}")
    (tmp_path / "open.yaml").write_text(text)
    request = requested(load_config(tmp_path / "open.yaml"))
    assert request.mesh_search is not None
    found = request.on({"a": 4, "b": 1}, lambda name, mesh: True)
    assert {axis: given["size"] for axis, given in found.mesh.items()} == {"a": 4, "b": 1}
    assert found.config["settings"]["mesh"] == {"a": 4, "b": 1}
