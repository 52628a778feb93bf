# ruff: noqa: E501  (one wrong config a line, so that the table can be read)
"""Every wrong config gets a message with its place, exit code 2 and no traceback (issue: malformed input)."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoshard.cli import main
from autoshard.config.load import ConfigError, load_config

GOOD = """\
model: {name: mlp, batch: 8}
mesh: {data: 2, model: 4}
hardware: tpu_v5e
"""
FUNCTION = """\
function: "user_step:step"
args: {x: "float32[8,16]"}
mesh: {data: 8}
hardware: tpu_v5e
"""
USER_CODE = """\
NUMBER = 3
class Namespace: pass
def step(x): return x * 2.0
def specs(): return 5
def named_specs(): return {"y": 1}
def failing_specs(): raise RuntimeError("no disk")
"""

# name: (the file's text, a regular expression that the message must contain)
WRONG: dict[str, tuple[str, str]] = {
    # YAML itself
    "empty file": ("", r"c\.yaml: the file is empty"),
    "only a comment": ("# nothing\n", r"c\.yaml: the file is empty"),
    "unclosed list": ("mesh: {data: 2\nhardware: x", r"c\.yaml:2:\d+: this is not YAML: .*while parsing a flow mapping"),
    "tab for indentation": ("mesh:\n\tdata: 2\n", r"c\.yaml:2:1: this is not YAML: found character '\\t'"),
    "two documents": (GOOD + "---\n" + GOOD, r"c\.yaml:4:1: this is not YAML: .*another document"),
    "undefined alias": (GOOD + "output: *here\n", r"c\.yaml:4:9: this is not YAML: found undefined alias"),
    "control character": (GOOD + "output: a\x01b\n", r"c\.yaml:4:10: this is not YAML: character U\+0001"),
    "python object tag": (GOOD + "output: !!python/name:os.system x\n", r"c\.yaml:4:9: the tag .*python.* not allowed"),
    "duplicate key": (GOOD + "hardware: h100\n", r"c\.yaml:4:1: key 'hardware' occurs twice; it stands first in line 3"),
    "axis with a line break": (
        'model: mlp\nmesh: {"data\\n": 8}\nhardware: tpu_v5e\n', r"c\.yaml:2:7: mesh: axis name 'data\\n': use letters"
    ),
    "size of thousands of digits": (
        f"function: m:f\nargs: {{x: 'float32[{'9' * 6000}]'}}\nmesh: {{data: 8}}\nhardware: tpu_v5e\n",
        r"c\.yaml:2:11: args\.x: sizes are positive whole numbers, found '999",
    ),
    "duplicate axis": ("mesh:\n  data: 2\n  data: 4\n", r"c\.yaml:3:3: key 'data' occurs twice"),
    "key that is a number": (GOOD + "1: 2\n", r"c\.yaml:4:1: keys are text, found 1"),
    "alias bomb": (
        "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
        + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 10)}]\n" for i in range(8)),
        r"more than 100000 keys and values after expanding aliases",
    ),
    "alias inside of itself": ("mesh: &m {data: *m}\n", r"nested deeper than 64 levels, or an alias inside of itself"),
    "endless nesting": ("[" * 3000, r"nested deeper than 64 levels"),
    "a list": ("- model\n- mesh\n", r"c\.yaml:1:1: a config is a mapping with keys such as model.*found a list"),
    "only text": ("hello\n", r"c\.yaml:1:1: a config is a mapping .*found 'hello'"),
    # keys and types
    "unknown key": (GOOD + "hardwar: h100\n", r"c\.yaml:4:1: hardwar: unknown key 'hardwar'; did you mean 'hardware'\?"),
    "a field that is no key": (GOOD + "model_file: m.onnx\n", r"c\.yaml:4:1: model_file: unknown key 'model_file'; .*'model'"),
    "a field that is no key, alone": ("model_file: m.onnx\nmesh: {data: 8}\nhardware: tpu_v5e\n", r"c\.yaml:1:1: model_file: unknown key"),
    "unknown key of a section": (
        GOOD + "solver: {efort: 2}\n",
        r"c\.yaml:4:10: solver\.efort: unknown key 'efort'; did you mean 'effort'\? Choices: effort, seed",
    ),
    "mesh missing": ("model: mlp\nhardware: tpu_v5e\n", r"c\.yaml:1:1: key 'mesh' is missing|mesh: key 'mesh' is missing"),
    "hardware missing": ("model: mlp\nmesh: {data: 2}\n", r"c\.yaml:1:1: .*key 'hardware' is missing"),
    "text for a switch": (GOOD + "strict: maybe\n", r"c\.yaml:4:9: strict: expected true or false, found 'maybe'"),
    "no form of several": (
        GOOD + "loop_parts: x\n",
        r"c\.yaml:4:13: loop_parts: expected a whole number, a list or 'auto', found 'x'",
    ),
    "wrong element of a form": (
        GOOD + "loop_parts: [2, 0]\n",
        r"^error: c\.yaml:4:17: loop_parts\[1\]: should be greater than or equal to 1, found 0\n*\Z",
    ),
    "text for a number": (GOOD + "solver: {seed: one}\n", r"c\.yaml:4:16: solver\.seed: expected a whole number"),
    "fraction for a count": (GOOD + "run: {steps: 2.5}\n", r"c\.yaml:4:14: run\.steps: expected a whole number, found 2\.5"),
    "no steps": (GOOD + "run: {steps: 0}\n", r"c\.yaml:4:14: run\.steps: .*greater than or equal to 1, found 0"),
    "effort not positive": (GOOD + "solver: {effort: 0}\n", r"solver\.effort: .*greater than 0, found 0"),
    "effort not a number": (GOOD + "solver: {effort: .nan}\n", r"solver\.effort: .*finite"),
    "nothing for a mapping": (GOOD + "solver:\n", r"c\.yaml:4:8: solver: expected a mapping, found nothing"),
    "unknown choice": (GOOD + "devices: virtual\n", r"c\.yaml:4:10: devices: expected 'simulated' or 'real', found 'virtual'"),
    # model
    "unknown key of a limit": (
        GOOD + "memory_limit: {devic: 3GiB}\n",
        r"memory_limit\.devic: unknown key 'devic'; did you mean 'device'\? Choices: device, pinned_host",
    ),
    "no pattern for a memory kind": (
        GOOD + "memory_kinds: [{pattern: ' '}]\n",
        r"c\.yaml:4:16: memory_kinds\[0\]: expected a pattern such as params/\*\*, found an empty text",
    ),
    "a group of nothing": (GOOD + "same_sharding: [['']]\n", r"c\.yaml:4:17: same_sharding\[0\]: a sharding group needs a list"),
    "unknown key of a memory kind": (
        GOOD + "memory_kinds: [{patern: x, kind: pinned_host}]\n",
        r"unknown key 'patern'; did you mean 'pattern'\?",
    ),
    "unknown model": (GOOD.replace("mlp", "mpl"), r"c\.yaml:1:\d+: model\.name: no model 'mpl'; did you mean 'mlp'\?"),
    "unknown dims": (
        GOOD.replace("name: mlp", "name: transformer, dims: llama3_80b"),
        r"c\.yaml:1:\d+: model\.dims: no dims 'llama3_80b'; did you mean 'llama3_",
    ),
    "dims of another model": (
        GOOD.replace("name: mlp", "name: mlp, dims: llama3_8b"),
        r"model\.dims: dims 'llama3_8b' belongs to model 'transformer'",
    ),
    "unknown model option": (
        GOOD.replace("batch", "bacth"),
        r"c\.yaml:1:27: model\.bacth: .*no option 'bacth'; did you mean 'batch'",
    ),
    "negative model size": (GOOD.replace("batch: 8", "batch: -8"), r"model\.batch: option batch must be a whole number"),
    "options that disagree": (
        GOOD.replace("name: mlp", "name: transformer, heads: 6, kv_heads: 4"),
        r"model\.heads: heads=6 is not a multiple of kv_heads=4",
    ),
    "no program": ("mesh: {data: 2}\nhardware: tpu_v5e\n", r"c\.yaml:1:1: name what to plan: either model"),
    "model and function": (GOOD + 'function: "a:b"\n', r"c\.yaml:4:11: function: key 'function' does not go with 'model'"),
    # function
    "function without colon": (FUNCTION.replace("user_step:step", "user_step.step"), r"c\.yaml:1:11: function: write module:function"),
    "function that is code": (FUNCTION.replace("user_step:step", "os:system('ls')"), r"function: write module:function"),
    "no such module": (FUNCTION.replace("user_step", "user_stepp"), r"c\.yaml:1:11: function: there is no module 'user_stepp'"),
    "a file for a module": (FUNCTION.replace("user_step:", "user_step.py:"), r"as in an import, user_step:"),
    "no such submodule": (FUNCTION.replace("user_step:", "json.nothing:"), r"function: there is no module 'json\.nothing'"),
    "no such function": (
        FUNCTION.replace(":step", ":stepp"),
        r"c\.yaml:1:11: function: module 'user_step' has no 'stepp'; did you mean 'step'\?",
    ),
    "not a function": (FUNCTION.replace(":step", ":NUMBER"), r"function: user_step:NUMBER is a int, not a function"),
    "module that fails": (FUNCTION.replace("user_step", "broken_step"), r"'broken_step' cannot be imported: ZeroDivisionError"),
    "module that needs another": (FUNCTION.replace("user_step", "needy_step"), r"it needs 'not_installed_at_all', which is missing"),
    "no arguments": (FUNCTION.replace("args:", "output:").replace('{x: "float32[8,16]"}', "o"), r"by either 'args' or 'specs', found none"),
    "args and specs": (FUNCTION + "specs: user_step:specs\n", r"by either 'args' or 'specs', found both"),
    "specs of wrong type": (
        FUNCTION.replace('args: {x: "float32[8,16]"}', "specs: user_step:specs"),
        r"c\.yaml:2:8: specs: user_step:specs\(\) must return a tuple .*found a int",
    ),
    "specs by another name": (
        FUNCTION.replace('args: {x: "float32[8,16]"}', "specs: user_step:named_specs"),
        r"c\.yaml:2:8: specs: user_step:named_specs\(\): 'y' is no parameter of the function",
    ),
    "specs that have names already": (
        FUNCTION.replace('args: {x: "float32[8,16]"}', "specs: user_step:named_specs\nargnames: [x]"),
        r"c\.yaml:3:11: argnames: user_step:named_specs\(\) names its arguments itself",
    ),
    "specs that fail": (
        FUNCTION.replace('args: {x: "float32[8,16]"}', "specs: user_step:failing_specs"),
        r"calling user_step:failing_specs\(\) failed: RuntimeError: no disk",
    ),
    "unknown dtype": (FUNCTION.replace("float32", "flaot32"), r"c\.yaml:2:11: args\.x: unknown dtype 'flaot32'; did you mean 'float32'"),
    "negative size": (FUNCTION.replace("[8,16]", "[8,-16]"), r"args\.x: sizes are positive whole numbers, found -16"),
    "size that is text": (FUNCTION.replace('"float32[8,16]"', "{shape: [8, b]}"), r"c\.yaml:2:19: args\.x\.shape: .*found 'b'"),
    "shape that is a number": (FUNCTION.replace('"float32[8,16]"', "{shape: 8}"), r"args\.x\.shape: a shape is a list of sizes"),
    "unreadable spec": (FUNCTION.replace("float32[8,16]", "float32(8,16)"), r"args\.x: cannot read 'float32\(8,16\)'; write it like"),
    "donating nobody": (FUNCTION + "donate: [y]\n", r"c\.yaml:5:10: donate\[0\]: no argument 'y' to donate"),
    "donating too far": (FUNCTION + "donate: [1]\n", r"donate\[0\]: there is no argument number 1; they are 0 to 0"),
    "names for nobody": (FUNCTION + "argnames: [a, b]\n", r"argnames: 'args' is a mapping and names the arguments already"),
    # mesh and machine
    "no axes": (GOOD.replace("{data: 2, model: 4}", "{}"), r"c\.yaml:2:7: mesh: a mesh has at least one axis"),
    "axis of size zero": (GOOD.replace("data: 2", "data: 0"), r"c\.yaml:2:14: mesh\.data\.size: .*greater than or equal to 1"),
    "negative axis": (GOOD.replace("data: 2", "data: -2"), r"mesh\.data\.size: .*greater than or equal to 1, found -2"),
    "axis size as text": (GOOD.replace("data: 2", "data: two"), r"mesh\.data\.size: expected a whole number, found 'two'"),
    "axis with a strange name": (GOOD.replace("data:", '"a:b":'), r"mesh: axis name 'a:b'"),
    "mesh as a list": (GOOD.replace("{data: 2, model: 4}", "[2, 4]"), r"c\.yaml:2:7: mesh: expected a mapping, found a list"),
    "absurd mesh": (GOOD.replace("data: 2", "data: 1000000000"), r"mesh: the mesh has 4000000000 devices; at most"),
    "unknown link": (
        GOOD.replace("data: 2", "data: {size: 2, link: nvlink}"),
        r"c\.yaml:2:30: mesh\.data\.link: .*nvlink",
    ),
    "mesh that does not fit the links": (
        GOOD.replace("data: 2", "data: {size: 2, link: ici=3}"),
        r"c\.yaml:2:30: mesh\.data\.link: ",
    ),
    "unknown hardware": (GOOD.replace("tpu_v5e", "tpu_v5"), r"c\.yaml:3:11: hardware: no hardware profile 'tpu_v5'; did you mean"),
    "no such profile file": (GOOD.replace("tpu_v5e", "./mine.yaml"), r"c\.yaml:3:11: hardware: cannot read hardware profile"),
    "running on too many": (
        GOOD.replace("data: 2", "data: 32") + "run: {steps: 3}\n",
        r"c\.yaml:4:6: run: a mesh of 128 devices cannot be run here: at most 64",
    ),
    # statements
    "pin on unknown axis": (GOOD + "pins:\n  batch/x: '[{date}, {}]'\n", r"c\.yaml:5:12: pins.*has no axis|c\.yaml:5:12: pins.*date"),
    "pin that cannot be read": (GOOD + "pins:\n  batch/x: '[{data}'\n", r"c\.yaml:5:12: pins.*cannot read sharding"),
    "pin with an axis twice": (GOOD + "pins:\n  batch/x: '[{data}, {data}]'\n", r"c\.yaml:5:12: pins.*data"),
    "pin without pattern": (GOOD + "pins:\n  - sharding: '[{data}]'\n", r"c\.yaml:5:5: pins\[0\]: key 'pattern' is missing"),
    "unknown baseline": (GOOD + "baselines: [data, fdsp]\n", r"c\.yaml:4:19: baselines\[1\]: .*'fdsp'"),
    "baselines of a function without names": (FUNCTION + "baselines: [data]\n", r"c\.yaml:5:12: baselines: .*need 'logical_axes'"),
    "bad memory unit": (GOOD + "memory_limit: 14 GiG\n", r"c\.yaml:4:15: memory_limit: unknown unit 'GiG'"),
    "memory unit in lower case": (GOOD + "memory_limit: 14gib\n", r"memory_limit: unknown unit 'gib'.*did you mean GiB\?"),
    "negative memory": (GOOD + "memory_limit: -3\n", r"memory_limit: an amount of memory is positive, found -3"),
    "too large a share": (GOOD + "memory_limit: 150%\n", r"memory_limit: a share of the device's memory .*found 150%"),
    "time limit of nothing": (GOOD + "time_limit: 0\n", r"c\.yaml:4:13: time_limit: a time limit is a positive number"),
    "time limit in days": (GOOD + "time_limit: 2 days\n", r"time_limit: unknown unit 'days'"),
}  # fmt: skip


@pytest.fixture
def user_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "user_step.py").write_text(USER_CODE)
    (tmp_path / "broken_step.py").write_text("1 / 0\n")
    (tmp_path / "needy_step.py").write_text("import not_installed_at_all\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("user_step", "broken_step", "needy_step"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_config_is_refused_with_its_place(
    text: str, message: str, user_code: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (user_code / "c.yaml").write_text(text, encoding="utf-8")
    code = main(["solve", "c.yaml"])
    out, err = capsys.readouterr()
    assert re.search(message, err), err
    assert (code, out) == (2, "")
    assert re.search(r"^error: c\.yaml", err, re.MULTILINE)
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{axes: y, in_shardings: [], out_shardings: []}", "key 'region' is missing"),
        ("{region: tanh, axes: z, in_shardings: [], out_shardings: []}", "no axis 'z'"),
        ("{region: tanh, axes: [], in_shardings: [], out_shardings: []}", "axes"),
        ("{region: tanh, axes: y, in_shardings: ['[{'], out_shardings: []}", "in_shardings"),
        ("{region: tanh, axes: y, in_shardings: {x: '[{\"q\"}]'}, out_shardings: []}", "q"),
        (
            "{region: tanh, axes: y, in_shardings: 3, out_shardings: []}",
            "in_shardings: expected a list of shardings, or a mapping",
        ),
        ("{region: tanh, axes: y, in_shardings: [], out_shardings: [], where: 3}", "unknown key 'where'"),
    ],
)
def test_faults_of_manual_computations_are_told_with_their_place(tmp_path: Path, entry: str, said: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"model: mlp\nmesh: {{x: 2, y: 4}}\nhardware: tpu_v5e\nmanual_computations:\n  - {entry}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert said in str(caught.value) and f"{file}:5:" in str(caught.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("baselines: [{name: a}]", "c.yaml:4:13: baselines[0]: key 'rules' is missing"),
        ("baselines: [{name: a, rules: 3}]", "c.yaml:4:30: baselines[0].rules: expected a mapping, found 3"),
        ("share_repeats: maybe", "share_repeats: expected true or false or 'price', found 'maybe'"),
        ("shapes: {batch: 9223372036854775808}", "c.yaml:4:17: shapes.batch: should be less than or equal to"),
    ],
)
def test_faults_of_keys_with_several_forms_are_told_in_the_files_own_words(
    tmp_path: Path, line: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text(GOOD + line + "\n")
    with pytest.raises(ConfigError) as caught:
        load_config("c.yaml")
    assert said in str(caught.value) and "Section" not in str(caught.value) and "literal" not in str(caught.value)


def test_an_unknown_machine_is_told_beside_faults_of_other_keys(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("model: mlp\nmesh: {x: 2, y: 4}\nhardware: tpu_v5\nsolver: {effort: -1}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert f"{file}:4:18: solver.effort" in str(caught.value)
    assert f"{file}:3:11: hardware: no hardware profile 'tpu_v5'; did you mean" in str(caught.value)


def test_of_very_many_faults_the_first_are_told_and_long_values_are_cut(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(GOOD + f"pins: [{', '.join(['x'] * 500)}]\n")
    with pytest.raises(ConfigError, match=r"and 480 more faults$") as caught:
        load_config(file)
    assert str(caught.value).count("\n") == 20
    file.write_text(GOOD + f"memory_limit: {'x' * 9000}\n")
    with pytest.raises(ConfigError, match=r"expected an amount of memory .*\.\.\.$") as caught:
        load_config(file)
    assert len(str(caught.value)) <= 600
