# ruff: noqa: E501 (lines of MLIR are kept whole)
"""propagate and check on MLIR files: where results go, how findings read, exit codes that scripts can rely on."""

import io
import json
from pathlib import Path

import pytest

import autoshard
from autoshard.cli import main
from autoshard.frontends.mlir.context import parse_module

GOOD = """sdy.mesh @mesh = <["x"=2, "y"=2]>
func.func @main(%a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}, {?}]>}, %b: tensor<16x4xf32>)
    -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}, {"y", ?}]>}) {
  %d = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
  %t = stablehlo.tanh %d : tensor<8x4xf32>
  return %t : tensor<8x4xf32>
}
"""
UNKNOWN_AXIS = GOOD.replace('{"x", ?}', '{"w", ?}')
CANNOT_COEXIST = GOOD.replace('"x"=2', '"x"=6').replace('[{"x", ?}, {?}]', '[{"x":(1)2}, {"x":(3)2}]')
WASTED = GOOD.replace('"x"=2, "y"=2', '"x"=2, "y"=8').replace("8x4xf32", "8x1xf32").replace("16x4", "16x1")
SYNTAX = GOOD.replace("stablehlo.tanh %d", "stablehlo.tanh %nothing")


@pytest.fixture
def module(tmp_path: Path) -> Path:
    file = tmp_path / "a.mlir"
    file.write_text(GOOD)
    return file


# -- propagate -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"strategy": "basic"}, {"strategy": "user-priority", "conservative": True}])
def test_propagate_prints_what_the_library_returns(
    options: dict, module: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--strategy", options["strategy"]] if "strategy" in options else []
    flags += ["--conservative"] if "conservative" in options else []
    assert main(["propagate", str(module), *flags]) == 0
    assert capsys.readouterr().out == autoshard.propagate_mlir(GOOD, **options)


def test_propagate_writes_one_file(module: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = module.parent / "new" / "b.mlir"
    assert main(["propagate", str(module), "--output", str(target)]) == 0
    assert target.read_text() == autoshard.propagate_mlir(GOOD)
    assert capsys.readouterr().out == ""


def test_propagate_reads_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode())))
    assert main(["propagate", "-"]) == 0
    assert capsys.readouterr().out == autoshard.propagate_mlir(GOOD)


def test_a_bad_file_among_several_does_not_stop_the_others(module: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = module.with_name("bad.mlir")
    bad.write_text(UNKNOWN_AXIS)
    other = module.with_name("c.mlir")
    other.write_text(GOOD)
    out = module.parent / "out"
    assert main(["propagate", str(module), str(bad), str(other), "--output", str(out)]) == 2
    assert sorted(p.name for p in out.iterdir()) == ["a.mlir", "c.mlir"]
    err = capsys.readouterr().err
    assert err.startswith(f"error: {bad}: cannot read the MLIR module: line 2")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["propagate", "{tmp}/a.mlir", "{tmp}/a.mlir"], "2 files need --output DIR"),
        (["propagate", "{tmp}/a.mlir", "{tmp}/a.mlir", "--output", "{tmp}/out"], "several of the files are called a.mlir"),
        (["propagate", "{tmp}/a.mlir", "{tmp}/b.mlir", "--output", "{tmp}/a.mlir"], "is a file; the results of 2 files"),
        (["propagate", "-", "-", "--output", "{tmp}/out"], "standard input (-) can be read once only"),
        (["propagate", "{tmp}/a.mlir", "--strategy", "bold"], "the strategies are: basic, aggressive"),
        (["propagate", "{tmp}/none.mlir"], "MLIR module {tmp}/none.mlir does not exist"),
        (["check", "{tmp}"], "{tmp} is a directory; give the path of an MLIR module"),
        (["explain", "{tmp}/a.mlir", "%q"], "{tmp}/a.mlir: no value %q is defined"),
        (["explain", "{tmp}/p.json", "x", "--conservative"], "are for MLIR modules; a plan is decided already"),
        (["explain", "{tmp}/p.json", "x"], "{tmp}/p.json is not a plan of autoshard"),
    ],
)  # fmt: skip
def test_wrong_input_exits_2_with_a_message(
    arguments: list[str], message: str, module: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module.with_name("p.json").write_text("{}")
    assert main([a.format(tmp=module.parent) for a in arguments]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert message.format(tmp=module.parent) in err
    assert "Traceback" not in err


def test_bytecode_is_read_and_damaged_bytecode_does_not_end_the_process(
    module: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    buffer = io.BytesIO()
    parse_module(GOOD).operation.write_bytecode(buffer)
    good, bad = module.with_name("good.mlirbc"), module.with_name("bad.mlirbc")
    good.write_bytes(buffer.getvalue())
    bad.write_bytes(buffer.getvalue()[: len(buffer.getvalue()) // 2])
    assert main(["propagate", str(good)]) == 0
    assert capsys.readouterr().out == autoshard.propagate_mlir(GOOD)
    assert main(["check", str(bad), str(good)]) == 2
    assert "2 files: 1 error" in capsys.readouterr().out


# -- check ---------------------------------------------------------------------------------------------------------


def test_check_of_a_good_module_exits_0(module: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(module)]) == 0
    assert capsys.readouterr().out == "1 file: 0 errors, 0 warnings\n"


@pytest.mark.parametrize(
    ("text", "line", "what", "advice"),
    [
        (UNKNOWN_AXIS, 2, 'unknown axis name: "w"', "use an axis of the mesh"),
        (CANNOT_COEXIST, 2, "cannot coexist", "choose sub-axes"),
        (SYNTAX, 5, "undeclared SSA value", "define the value"),
    ],
    ids=["axis", "sub-axes", "syntax"],
)
def test_a_finding_has_file_line_column_what_is_wrong_and_what_to_try(
    text: str, line: int, what: str, advice: str, module: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module.write_text(text)
    assert main(["check", str(module)]) == 2
    finding, summary = capsys.readouterr().out.splitlines()
    assert finding.startswith(f"{module}:{line}:")
    told, tried = finding.split(": ", 1)[1].rsplit("; ", 1)
    assert what in told
    assert advice in tried
    assert summary == "1 file: 1 error, 0 warnings"


def test_warnings_fail_only_with_strict(module: Path, capsys: pytest.CaptureFixture[str]) -> None:  # S0.54
    module.write_text(WASTED)
    assert main(["check", str(module)]) == 0
    assert ": warning: " in capsys.readouterr().out
    assert main(["check", "--strict", str(module)]) == 2


def test_many_files_are_checked_in_one_call_and_missing_ones_are_told(
    module: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = module.with_name("bad.mlir")
    bad.write_text(UNKNOWN_AXIS)
    assert main(["check", str(module), str(module.with_name("none.mlir")), str(bad)]) == 2
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "3 files: 2 errors, 0 warnings"
    assert "none.mlir does not exist" in err


def test_check_as_json_has_one_entry_for_each_file(module: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = module.with_name("bad.mlir")
    bad.write_text(UNKNOWN_AXIS)
    assert main(["check", "--json", str(module), str(bad)]) == 2
    first, second = json.loads(capsys.readouterr().out)
    assert (first["ok"], first["findings"]) == (True, [])
    (found,) = second["findings"]
    assert (second["file"], second["ok"], found["line"], found["severity"]) == (str(bad), False, 2, "error")


# -- explain -------------------------------------------------------------------------------------------------------


def test_explain_tells_source_and_way_of_each_axis(module: Path, capsys: pytest.CaptureFixture[str]) -> None:  # S2.52
    assert main(["explain", str(module), "%d"]) == 0
    assert capsys.readouterr().out == f"{autoshard.explain_mlir(GOOD, '%d')}\n"
    assert main(["explain", str(module), "%d", "--json", "--strategy", "basic"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [o["axis"] for o in found["origins"]] == ['"x"', '"y"']


# -- shardings that nothing reads --------------------------------------------------------------------------------------

OLDER = {
    "on an argument": 'func.func @main(%a: tensor<8x8xf32> {mhlo.sharding = "{devices=[2,1]<=[2]}"}) -> tensor<8x8xf32> { return %a : tensor<8x8xf32> }',
    "on a custom call": 'func.func @main(%a: tensor<8x8xf32>) -> tensor<8x8xf32> { %0 = stablehlo.custom_call @Sharding(%a) {mhlo.sharding = "{devices=[2,1]<=[2]}"} : (tensor<8x8xf32>) -> tensor<8x8xf32>\n return %0 : tensor<8x8xf32> }',
    "carried in HLO": """func.func @main(%a: tensor<8x8xf32> {mhlo.frontend_attributes = {xla.sdy.sharding = "#sdy.sharding<@mesh, [{}, {}]>"}}) -> tensor<8x8xf32> { return %a : tensor<8x8xf32> }""",
}


@pytest.mark.parametrize("where", OLDER)
def test_shardings_in_older_forms_are_told_as_nothing_reads_them(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.mlir"
    file.write_text(OLDER[where])
    assert main(["check", str(file)]) == 0
    assert "in the form of GSPMD (mhlo.sharding) or of HLO (xla.sdy), which are not read" in capsys.readouterr().out
    assert main(["propagate", str(file)]) == 0
    assert "some shardings are not read; autoshard check says which" in capsys.readouterr().err
