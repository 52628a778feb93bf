"""Changes to a config from the command line: what is put in, where messages place it, and what is refused."""

from pathlib import Path

import pytest

from autoshard.config import ConfigError, load_config
from autoshard.config.load import load_config_text
from autoshard.errors import InputError

TEXT = """\
model: {name: mlp, batch: 8}
mesh: {data: 2, model: 4}
hardware: tpu_v5e
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "c.yaml").write_text(TEXT)
    return tmp_path / "c.yaml"


def test_a_change_leads_through_mappings_and_its_value_is_yaml(file: Path) -> None:
    config = load_config(file, ["mesh.data=4", "baselines=[fsdp]", "memory_limit=50%"])
    assert (config.mesh.size, config.baselines) == (16, ("fsdp",))
    assert config.memory_limit is not None and config.raw["memory_limit"] == "50%"


def test_what_the_plan_keeps_is_the_changed_config(file: Path) -> None:
    assert load_config(file, ["hardware=h100"]).to_dict()["settings"]["hardware"] == "h100"


def test_the_last_of_two_changes_wins(file: Path) -> None:
    assert load_config(file, ["mesh={x: 2}", "mesh.x=8"]).mesh.size == 8


def test_messages_cite_the_change(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"^'mesh\.data=many': "):
        load_config(file, ["mesh.data=many"])
    with pytest.raises(ConfigError, match=r"'memory_limt=1GiB': .*memory_limit"):
        load_config(file, ["memory_limt=1GiB"])


@pytest.mark.parametrize("change", ["hardware", "=h100", "mesh..data=2", "hardware.name=h100", "mesh={"])
def test_what_is_no_change_is_refused(file: Path, change: str) -> None:
    with pytest.raises(InputError, match=r"write KEY=VALUE|no mapping|not YAML"):
        load_config(file, [change])


def test_a_config_of_standard_input_looks_for_paths_in_the_working_directory() -> None:
    config = load_config_text(TEXT, "stdin")
    assert (config.name, config.directory) == ("stdin", Path.cwd())
