"""``autoshard init``: an example or a frame is written, never over a file that is there."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoshard.cli import main
from autoshard.cli.init import examples
from autoshard.config import load_config
from autoshard.config.schema import schema


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_a_name_it_is_the_quickstart(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init"]) == 0
    assert Path("quickstart.yaml").read_text() == (repository / "configs" / "quickstart.yaml").read_text()
    assert capsys.readouterr().out == "wrote quickstart.yaml\nnext: autoshard solve quickstart.yaml\n"


def test_a_file_that_is_there_stays(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.yaml").write_text("mine")
    assert main(["init", "llama3_8b", "-o", "mine.yaml"]) == 2
    assert Path("mine.yaml").read_text() == "mine"
    assert "--force replaces it" in capsys.readouterr().err
    assert main(["init", "llama3_8b", "-o", "mine.yaml", "--force"]) == 0
    assert load_config("mine.yaml").mesh.size == 256


def test_all_examples_are_listed_with_what_they_are(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--list"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in told] == sorted(p.stem for p in (repository / "configs").glob("*.yaml"))
    assert all(len(line.split()) > 3 and line.endswith(".") for line in told)
    assert list(examples()) == [line.split()[0] for line in told]


def test_a_frame_for_a_function_is_a_config_that_can_be_solved(capsys: pytest.CaptureFixture[str]) -> None:
    Path("init_train.py").write_text("import jax.numpy as jnp\ndef step(x):\n    return jnp.tanh(x).sum(1)\n")
    assert main(["init", "--function", "init_train:step", "--hardware", "h100"]) == 0
    text = Path("step.yaml").read_text()
    Path("step.yaml").write_text(re.sub(r"verify: true", "verify: false", text))
    assert main(["solve", "step.yaml"]) == 0
    assert "step on h100, mesh data=2 x model=4" in capsys.readouterr().out


def framed(source: str, name: str = "step") -> dict[str, Any]:
    """The config that is written for a function of a module with this text."""
    Path("framed.py").write_text(source)
    assert main(["init", "--function", f"framed:{name}", "-o", "frame.yaml"]) == 0
    return yaml.safe_load(Path("frame.yaml").read_text())


def test_a_frame_names_the_parameters_of_the_function_in_their_order() -> None:
    read = framed("def step(params, tokens, *, key, rate: float): ...")
    assert read["args"] == {
        "params": {"w": "float32[512, 512]"}, "tokens": "int32[128]", "key": "uint32[2]", "rate": "float32[]",
    }  # fmt: skip
    assert "# donate: [params]" in Path("frame.yaml").read_text()


def test_a_rate_of_learning_is_a_number() -> None:
    assert framed("def step(params, lr, weight_decay): ...")["args"]["lr"] == "float32[]"


def test_parameters_with_defaults_are_proposed_as_comments() -> None:
    assert list(framed("def step(x, scale=1.0): ...")["args"]) == ["x"]
    assert '# scale: "float32' in Path("frame.yaml").read_text()


def test_a_function_that_another_makes_has_the_parameters_of_that() -> None:
    assert list(framed("import jax\ndef train(w, x): ...\nstep = jax.jit(train)")["args"]) == ["w", "x"]


def test_the_module_of_a_frame_is_read_and_not_run(tmp_path: Path) -> None:
    framed("from pathlib import Path\nPath('ran').touch()\ndef step(x): ...")
    assert not (tmp_path / "ran").exists()


def test_a_function_that_cannot_be_read_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(framed("x = 1")["args"]) == ["x"]
    assert "framed has no function step that could be read" in capsys.readouterr().out


def test_a_frame_with_a_tree_and_an_array_can_be_solved() -> None:
    framed("import jax.numpy as jnp\ndef step(params, x): return jnp.tanh(x @ params['w']).sum()")
    assert main(["solve", "frame.yaml"]) == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["quickstat"], "did you mean 'quickstart'?"),
        (["--function", "train"], "write module:name"),
        (["quickstart", "--function", "train:step"], "give either an example"),
    ],
)
def test_what_cannot_be_written_is_told(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_the_keys_that_a_frame_proposes_are_keys_of_configs() -> None:
    assert main(["init", "--function", "train:step", "-o", "frame.yaml"]) == 0
    proposed = re.findall(r"^# (\w+):", Path("frame.yaml").read_text(), re.MULTILINE)
    assert {"donate", "memory_limit", "pins"} <= set(proposed) <= set(schema().model_fields)
