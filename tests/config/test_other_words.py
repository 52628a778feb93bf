"""Words of the Python API, JAX, Shardy and MaxText for what a config says: the key that is meant is told."""

from pathlib import Path

import pytest

from autoshard.config.load import ConfigError, load_config
from autoshard.config.other_words import _AT_TOP_BY_WORD, meant_by
from autoshard.config.schema import schema
from autoshard.config.schema_faults import check_key
from autoshard.errors import InputError

GOOD = "model: {name: mlp, batch: 8}\nmesh: {data: 2, model: 4}\nhardware: tpu_v5e\n"
WORDS = [
    ("constraints: []", "unknown key 'constraints'; write 'pins', such as pins: {"),
    ("in_shardings: {x: 1}", "unknown key 'in_shardings'; write 'pins'"),
    ("out_shardings: {x: 1}", "unknown key 'out_shardings'; write 'pins' on results"),
    ("sharding: '[{data}]'", "unknown key 'sharding'; write 'pins'"),
    ("ici_fsdp_parallelism: 4", "write 'mesh' with an axis of this size: mesh: {fsdp: 4}"),
    ("dcn_data_parallelism: 2", "mesh: {data: {size: 2, link: dcn}}"),
    ("ici_tensor_parallelism: -1", "mesh: {tensor: N}"),
    ("mesh_axes: [data, model]", "write 'mesh' with a size for each axis"),
    ("axes: [data, model]", "write 'mesh' with a size for each axis"),
    ("machine: tpu_v5e", "unknown key 'machine'; write 'hardware'"),
    ("donate_argnums: 0", "write 'donate'"),
    ("effort: 2", "write 'solver', such as solver: {effort: 2"),
    ("sharding_group: []", "write 'same_sharding'"),
    ("manual_axes: [data]", "write 'manual_computations'"),
    ("steps: 20", "write 'run', such as run: {steps: 20}"),
    ("memory: 8GiB", "write 'memory_limit'"),
    ("Memory-Budget: 8GiB", "write 'memory_limit'"),
    ("pins: [{name: x, sharding: '[{}]'}]", "pins[0].name: unknown key 'name'; write 'pattern'"),
    ("solver: {gap: 0.1}", "solver.gap: unknown key 'gap'; write 'accepted_gap'"),
]


def refused(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(folder)
    Path("c.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config("c.yaml")
    return str(caught.value)


@pytest.mark.parametrize(("line", "said"), WORDS, ids=[line.partition(":")[0] for line, _ in WORDS])
def test_a_word_of_others_is_refused_with_the_key_that_is_meant(
    line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = refused(GOOD + line + "\n", tmp_path, monkeypatch)
    assert said in message and message.startswith("c.yaml:4:")


def test_no_word_of_others_is_a_key() -> None:
    assert not set(_AT_TOP_BY_WORD) & set(schema().model_fields)


def test_every_key_that_is_meant_is_one() -> None:
    meant = {str(meant_by((word,), None, [])).split("'")[1].partition(":")[0] for word in _AT_TOP_BY_WORD}
    meant |= {str(meant_by(("dcn_x_parallelism",), 2, [])).split("'")[1]}
    assert meant <= set(schema().model_fields)


def test_a_misspelled_key_is_still_told_by_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "did you mean 'memory_limit'?" in refused(GOOD + "memory_limits: 8GiB\n", tmp_path, monkeypatch)


def test_a_number_of_devices_is_told_to_be_that_of_the_mesh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = refused(GOOD + "devices: 8\n", tmp_path, monkeypatch)
    assert "devices: expected 'simulated' or 'real', found 8; the number of devices is that of the mesh" in message


def test_a_mesh_as_a_list_is_told_to_name_its_axes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = refused(GOOD.replace("{data: 2, model: 4}", "[2, 4]"), tmp_path, monkeypatch)
    assert "found a list; write mesh: {data: 2, model: 4}" in message


def test_sizes_beside_a_list_of_axes_are_told_their_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = refused(GOOD.replace("data: 2, model: 4", "axes: [data, model], shape: [2, 4]"), tmp_path, monkeypatch)
    assert "found shape besides; where the sizes are known it is {data: 2, model: 4}" in message


def test_an_option_of_a_model_in_the_words_of_others_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = GOOD.replace("name: mlp, batch: 8", "name: transformer, num_key_value_heads: 8")
    assert "no option 'num_key_value_heads'; write 'kv_heads'" in refused(text, tmp_path, monkeypatch)


def test_a_key_of_a_sweep_in_the_words_of_others_is_told() -> None:
    with pytest.raises(InputError, match=r"machine: unknown key 'machine'; write 'hardware'"):
        check_key("machine")
    with pytest.raises(InputError, match=r"solver\.gap: unknown key 'gap'; write 'accepted_gap'"):
        check_key("solver.gap")
