"""What a right config means: keys, units, references and what plan.json keeps of it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoshard.config import Config, ConfigError, load_config
from autoshard.config.problem import build_problem
from autoshard.config.yaml_text import load_yaml
from autoshard.devices import simulate_devices
from autoshard.errors import InputError
from autoshard.files import read_json, read_text, write_json, write_text
from autoshard.frontends.jax.function import trace
from autoshard.units import memory_amount, seconds

MLP = """\
model: {name: mlp, batch: 8}
mesh:
  data: 2
  model: {size: 4, link: ici}
hardware: tpu_v5e
pins:
  batch/x: '[{"data"}, {}]'
  "state/params/*": '[{?}, {?}]'
memory_limit: 50%
time_limit: 2 min
"""


def written(folder: Path, text: str, name: str = "c.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def mlp(tmp_path: Path) -> Config:
    return load_config(written(tmp_path, MLP))


def test_mesh_and_links_come_from_both_forms_of_an_axis(mlp: Config) -> None:
    assert str(mlp.mesh) == '<["data"=2, "model"=4]>'
    assert mlp.links == {"model": "ici"}


def test_parts_of_loops_may_be_a_list_as_in_python(tmp_path: Path) -> None:
    assert load_config(written(tmp_path, MLP + "loop_parts: [4, 2]\n")).settings.loop_parts == [4, 2]


def test_a_pin_knows_its_place_in_the_file(mlp: Config) -> None:
    assert [pin.source.rsplit("/", 1)[-1] for pin in mlp.pins] == ["c.yaml:7:3", "c.yaml:8:3"]
    assert str(mlp.pins[0].sharding) == '[{"data"}, {}]'


def test_pins_may_be_a_list(tmp_path: Path) -> None:
    text = MLP.split("pins:")[0] + "pins:\n  - {pattern: batch/x, sharding: '[{data}, {}]'}\n"
    assert [(p.pattern, p.source[-4:]) for p in load_config(written(tmp_path, text)).pins] == [("batch/x", ":7:5")]


def test_a_config_survives_the_way_through_a_plan(mlp: Config) -> None:
    again = Config.from_dict(mlp.to_dict())
    assert again.settings == mlp.settings
    assert again.to_dict() == mlp.to_dict()


def test_a_damaged_config_in_a_plan_is_refused(mlp: Config) -> None:
    data = mlp.to_dict()
    data["settings"] = {**data["settings"], "mesh": {"data": -1}}
    with pytest.raises(ConfigError, match=r"mesh\.data\.size"):
        Config.from_dict(data)


def test_every_fault_is_reported_at_once(tmp_path: Path) -> None:
    text = "model: mlp\nmesh: {data: 0}\nhardware: tpu_v5e\nstrict: 3\nrunn: 1\n"
    with pytest.raises(ConfigError) as caught:
        load_config(written(tmp_path, text))
    assert [line.split(": ")[1] for line in str(caught.value).splitlines()] == ["mesh.data.size", "strict", "runn"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (1024, 1024),
        ("14GiB", 14 * 2**30),
        ("14 GB", 14 * 10**9),
        ("1.5MiB", 3 * 2**19),
        ("50%", 500),
        (0.25, 250),
        (2e9, 2 * 10**9),
    ],
)
def test_amounts_of_memory(given: object, expected: int) -> None:
    assert memory_amount(given).of(hbm_bytes=1000) == expected


@pytest.mark.parametrize(
    "given",
    [True, None, -1, 0, 1.5, float("nan"), float("inf"), 1e50, 2**63, pytest.param(-(10**5000), id="many digits")]
    + ["", "GiB", "-3GiB", "0%", "101%", "1e30TiB", [1]],
)
def test_impossible_amounts_of_memory_are_refused(given: object) -> None:
    with pytest.raises(InputError):
        memory_amount(given)


@given(st.integers(1, 2**70), st.booleans())
def test_bytes_are_taken_as_written_or_refused_whatever_form_they_have(count: int, is_text: bool) -> None:
    given_amount = f"{count} B" if is_text and count < 2**53 else count
    if count < 2**63:
        assert memory_amount(given_amount).bytes == count
    else:
        with pytest.raises(InputError, match="below 2\\^63 bytes"):
            memory_amount(given_amount)


@pytest.mark.parametrize(
    ("given", "expected"), [(60, 60.0), (0.5, 0.5), ("90s", 90.0), ("10 min", 600.0), ("250ms", 0.25)]
)
def test_times(given: object, expected: float) -> None:
    assert seconds(given) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("1e9", 1e9),
        ("1_000", 1000),
        ("0x10", 16),
        ("1:30", "1:30"),
        ("'3'", "3"),
        ("~", None),
        ("010", 10),
        ("0x" + "f" * 6000, float("inf")),
        ("9" * 6000, float("inf")),
    ],
)
def test_scalars_mean_what_yaml_1_2_says(text: str, expected: object) -> None:
    assert load_yaml(f"a: {text}", "f.yaml").data == {"a": expected}


def test_aliases_may_repeat_a_part(tmp_path: Path) -> None:
    assert load_yaml("a: &x [1, 2]\nb: *x", "f.yaml").data == {"a": [1, 2], "b": [1, 2]}


def test_a_function_is_found_beside_its_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "beside_config.py").write_text(
        "class Steps:\n    @staticmethod\n    def step(state, x): return x * state['w']\n"
    )
    text = """\
function: "beside_config:Steps.step"
args:
  state: {w: "bfloat16[4]", shape: {shape: [], dtype: int32}}
  x: {shape: [8, 4]}
donate: [state]
mesh: {data: 2}
hardware: tpu_v5e
"""
    problem = build_problem(load_config(written(tmp_path, text)))
    assert problem.argnames == ("state", "x")
    assert problem.donate_argnums == (0,)
    state, x = problem.specs
    assert {k: (v.shape, str(v.dtype)) for k, v in state.items()} == {"w": ((4,), "bfloat16"), "shape": ((), "int32")}
    assert (x.shape, str(x.dtype)) == ((8, 4), "float32")
    sys.modules.pop("beside_config")


@pytest.mark.parametrize("returned", ["(state, x)", "[state, x]", "{'x': x, 'state': state}"])
def test_a_function_returns_the_arguments_by_position_or_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, returned: str
) -> None:
    import sys

    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "with_specs.py").write_text(
        "import jax\ndef step(state, x): return x * state\n"
        "state, x = (jax.ShapeDtypeStruct(s, 'float32') for s in ((8,), (4, 8)))\n"
        f"def specs(): return {returned}\n"
    )
    text = "function: with_specs:step\nspecs: with_specs:specs\nmesh: {data: 2}\nhardware: tpu_v5e\n"
    problem = build_problem(load_config(written(tmp_path, text)))
    assert [x.shape for x in problem.specs] == [(8,), (4, 8)]
    sys.modules.pop("with_specs")


def test_shapes_in_the_place_of_the_function_that_returns_them_belong_elsewhere(tmp_path: Path) -> None:
    text = "function: with_specs:step\nspecs: ['float32[8]']\nmesh: {data: 2}\nhardware: tpu_v5e\n"
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=r":2:8: specs: .* write their shapes and types under 'args'"):
        load_config(path)


def test_a_hardware_file_is_found_beside_its_config(tmp_path: Path) -> None:
    written(tmp_path, "base: tpu_v5e\nname: ours\n", "ours.yaml")
    config = load_config(written(tmp_path, MLP.replace("hardware: tpu_v5e", "hardware: ours.yaml")))
    assert config.hardware == str(tmp_path / "ours.yaml")


@pytest.mark.parametrize("name", ["quickstart", "llama3_8b", "llama3_70b", "llama3_405b", "mixtral_8x7b", "resnet50"])
def test_the_configs_that_come_with_autoshard_are_right(name: str, repository: Path) -> None:
    assert load_config(repository / "configs" / f"{name}.yaml").mesh.size >= 8


# ------------------------------------------------------------------ files


def test_a_file_that_is_not_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_bytes(b"model: mlp\nmesh: \xff\n")
    with pytest.raises(InputError, match=r"c\.yaml:2: the config is not UTF-8 text \(byte 0xff"):
        load_config(tmp_path / "c.yaml")


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory; give the path of a config"):
        load_config(tmp_path)


def test_a_missing_file_names_a_similar_one(tmp_path: Path) -> None:
    written(tmp_path, "", "quickstart.yaml")
    with pytest.raises(InputError, match=r"does not exist; did you mean .*quickstart\.yaml"):
        load_config(tmp_path / "quickstrat.yaml")


def test_an_endless_file_is_refused() -> None:
    with pytest.raises(InputError, match="larger than 10 bytes"):
        read_text("/dev/zero", max_bytes=10)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_bytes(b"\xef\xbb\xbf" + MLP.encode())
    assert load_config(tmp_path / "c.yaml").mesh.size == 8


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(tmp_path / "plan.json", "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(InputError, match="No space left on device"):
        write_text(tmp_path / "plan.json", "new")
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]
    assert (tmp_path / "plan.json").read_text() == "old"


def test_writing_makes_the_directories_it_needs(tmp_path: Path) -> None:
    write_json(tmp_path / "a" / "b.json", {"x": [1]})
    assert read_json(tmp_path / "a" / "b.json") == {"x": [1]}


def test_malformed_json_is_refused_with_its_place(tmp_path: Path) -> None:
    written(tmp_path, '{"a": 1,\n "b": }', "plan.json")
    with pytest.raises(InputError, match=r"plan\.json:2:7: the plan is not valid JSON"):
        read_json(tmp_path / "plan.json", what="plan")


# ------------------------------------------------------------------ simulated devices


def test_devices_are_simulated_up_to_a_limit() -> None:
    environment = {"XLA_FLAGS": "--xla_cpu_x=1"}
    assert simulate_devices(8, environment) is True
    assert environment == {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_cpu_x=1 --xla_force_host_platform_device_count=8",
    }
    assert simulate_devices(256, environment) is False


def test_too_small_a_number_of_devices_is_raised() -> None:
    environment = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2 --y"}
    simulate_devices(8, environment)
    assert environment["XLA_FLAGS"] == "--xla_force_host_platform_device_count=8 --y"


@pytest.mark.parametrize(("line", "donated"), [("", {0}), ("donate: []\n", set()), ("donate: [x]\n", {1})], ids=repr)
def test_what_a_jit_around_the_function_donates_is_donated_unless_the_config_says_otherwise(
    line: str, donated: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "donating.py").write_text("import jax\nstep = jax.jit(lambda w, x: w + x, donate_argnums=0)\n")
    text = 'function: "donating:step"\nargs: {w: "float32[4]", x: "float32[4]"}\nmesh: {data: 2}\nhardware: tpu_v5e\n'
    problem = build_problem(load_config(written(tmp_path, text + line)))
    assert trace(problem.function, *problem.specs, donate_argnums=problem.donate_argnums).program.donated == donated


SEARCHED = "model: mlp\nhardware: tpu_v5e\nmesh: {devices: 8, axes: [data, model]}\n"


@pytest.mark.parametrize("line", ["pins: {batch/x: '[{?}, {\"model\":(1)2, ?}]'}", 'no_collective: ["model:(1)2"]'])
def test_a_part_of_an_axis_of_open_size_need_only_fit_some_of_the_meshes(tmp_path: Path, line: str) -> None:
    assert load_config(written(tmp_path, SEARCHED + line + "\n")).mesh_search is not None


def test_a_part_that_fits_none_of_the_meshes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"c\.yaml:4:17: .*none of the 4 meshes that are searched fits"):
        load_config(written(tmp_path, SEARCHED + 'no_collective: ["model:(1)3"]\n'))


def test_what_no_size_can_mend_is_told_as_for_one_mesh(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the mesh has no axis 'tensor'; Choices: data, model$"):
        load_config(written(tmp_path, SEARCHED + "no_collective: [tensor]\n"))
