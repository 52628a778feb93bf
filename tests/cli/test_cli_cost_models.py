"""`autoshard cost --model` and `critical-batch`: figures of the books, JSON, and wrong questions."""

import json

import pytest

from autoshard.cli import main

STEP = ["cost", "--model", "llama3_70b", "--strategy", "fsdp+tensor", "--mesh", "fsdp=64,tensor=8"]
STEP += ["--batch-tokens", "4e6", "--hardware", "tpu_v5p"]
CRITICAL = ["cost", "critical-batch", "--model", "llama3_70b", "--strategy", "fsdp+tensor"]
CRITICAL += ["--mesh", "fsdp=64,tensor=8", "--hardware", "tpu_v5p"]


def answer(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_step_has_bounds_an_estimate_and_its_collectives(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(STEP, capsys)
    assert found["seconds"] <= found["estimate_seconds"] <= found["upper_seconds"]
    # 6 N D and attention (12 layers * d * seq a token) at 459 TFLOP/s on 512 chips
    flop = 4e6 * (6 * (found["params"] - 128256 * 8192) + 12 * 80 * 8192 * 8192)
    assert found["cost"]["compute_s"] == pytest.approx(flop / 512 / 459e12, rel=0.01)
    assert {term["part"] for term in found["cost"]["terms"]} == {"fsdp", "tensor"}
    assert {term["verdict"] for term in found["cost"]["terms"]} == {"compute"}


def test_a_step_for_people_has_mfu_and_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(STEP) == 0
    text = capsys.readouterr().out
    for part in ("4e+06 tokens a step", "MFU", "compute bound", "fsdp: all_gather over fsdp", "C / W"):
        assert part in text, part


def test_what_bounds_the_step_is_told_from_what_bounds_a_collective(capsys: pytest.CaptureFixture[str]) -> None:
    # 600 tokens a device: below the 850 of two gathers and a scatter, above the 567 of the gathers by themselves
    fsdp = ["cost", "--model", "llama3_8b", "--strategy", "fsdp", "--mesh", "fsdp=512", "--hardware", "tpu_v5p"]
    assert main([*fsdp, "--batch-tokens", "307200", "--seq", "1024"]) == 0
    text = capsys.readouterr().out
    step, bound, *rest = text.splitlines()[2:]
    assert step.endswith("bound by communication")
    work, links = (float(bound.split(word)[1].split(" ms")[0]) for word in ("takes ", "together "))
    assert work < links
    assert "collectives, each by itself beside all work:" in rest
    assert [line.split(": ")[-1] for line in rest if line.startswith("  fsdp: all_gather")] == [
        "by itself compute bound"
    ]
    assert "compute bound in each pass, forward and backward, where:" in rest


def test_a_step_without_collectives_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    one = ["cost", "--model", "llama3_8b", "--strategy", "fsdp", "--mesh", "fsdp=1", "--hardware", "tpu_v5p"]
    assert main([*one, "--batch-tokens", "8192"]) == 0
    assert "at least, and there are no collectives" in capsys.readouterr().out


def test_a_step_for_people_says_what_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(STEP) == 0
    assert (
        "activations 97.75 GiB, logits 3.733 GiB; at least 103 GiB of 95.74 GiB: DOES NOT FIT"
        in capsys.readouterr().out
    )
    assert main([*STEP, "--recompute", "1"]) == 0
    assert "of 95.74 GiB: fits" in capsys.readouterr().out
    assert main([*STEP, "--seq", "131072"]) == 0
    assert "note: 30.5176 sequences go to 64 rows of devices: 52% of them idle" in capsys.readouterr().out


def test_weights_in_pieces_are_gathered_as_often(capsys: pytest.CaptureFixture[str]) -> None:
    one, four = (answer([*STEP, "--pieces", pieces], capsys)["cost"]["terms"][0]["times"] for pieces in ("1", "4"))
    assert four == 4 * one


def test_transfers_that_are_no_collective(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = ["--bytes", "1e9", "--mesh", "data=2,tensor=8", "--axes", "data", "--hardware", "h100"]
    assert answer(["cost", "point-to-point", *nodes], capsys)["seconds"] == pytest.approx(0.02)
    experts = ["--bytes", "1e9", "--mesh", "expert=8", "--axes", "expert", "--hardware", "h100", "--top-k", "2"]
    assert answer(["cost", "ragged-all-to-all", *experts], capsys)["bytes_sent"] == pytest.approx(205.078e6, rel=1e-3)
    assert answer(["cost", "host-copy", "--bytes", "64e9", "--hardware", "h100"], capsys)["seconds"] == 1.0


def test_whole_domains(capsys: pytest.CaptureFixture[str]) -> None:
    (node,) = answer(["cost", "domains", "--hardware", "h100"], capsys)["domains"]
    assert (node["devices"], node["links_bytes_per_s"]) == (8, 3.6e12)


def test_efficiency_and_recomputation_lengthen_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    plain = answer(STEP, capsys)["cost"]["compute_s"]
    slower = answer([*STEP, "--efficiency", "0.5", "--recompute", "1"], capsys)["cost"]["compute_s"]
    assert slower == pytest.approx(plain * 2 * 4 / 3)


def test_critical_batches_are_rows(capsys: pytest.CaptureFixture[str]) -> None:
    rows = answer(CRITICAL, capsys)["critical"]
    assert [r["strategy"] for r in rows] == ["fsdp", "tensor", "fsdp+tensor", "fsdp+tensor"]
    # C / W: 459e12 over three or fewer dimensions of 2 x 90e9; at most F / alpha devices for tensor
    assert rows[1]["at_most"] == pytest.approx(28672 / (459e12 / 180e9))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("llama3_70b", "llama3_71b"), "llama3_71b"),
        (("fsdp+tensor", "fsdp+tensr"), "unknown strategy 'tensr'"),
        (("fsdp=64,tensor=8", "fsdp=64,model"), "--mesh: cannot read 'model'"),
        (("fsdp=64,tensor=8", "fsdp=64"), "tensor needs a mesh axis of its own"),
        (("4e6", "many"), "--batch-tokens: expected a positive number such as 4e6, found 'many'"),
        (("4e6", "0"), "--batch-tokens: expected a positive number"),
        (("tpu_v5p", "tpu_v55"), "no hardware profile named 'tpu_v55'"),
    ],
)
def test_wrong_questions_exit_2(change: tuple[str, str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([change[1] if a == change[0] else a for a in STEP]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["--strategy", "--mesh", "--batch-tokens", "--hardware"])
def test_what_is_missing_is_named(missing: str, capsys: pytest.CaptureFixture[str]) -> None:
    at = STEP.index(missing)
    assert main(STEP[:at] + STEP[at + 2 :]) == 2
    assert f"autoshard cost needs {missing} for a strategy on a model" in capsys.readouterr().err


def test_where_the_model_question_lacks_something_every_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "--model", "llama3_70b"]) == 2
    named = capsys.readouterr().err.strip().rpartition("or a command: ")[2].split(", ")
    assert main(["cost", "--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:")[2].splitlines()
    assert sorted(named) == sorted(line.split()[0] for line in listed if line[:3].strip(" ") and line.startswith("  "))


def test_options_of_the_model_question_before_a_command_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "--model", "llama3_70b", *CRITICAL[1:]]) == 2
    assert "--model before 'critical-batch'" in capsys.readouterr().err


@pytest.mark.parametrize("share", ["--efficiency", "--recompute"])
def test_shares_lie_between_0_and_1(share: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*STEP, share, "1.5"]) == 2
    assert "shares between 0 and 1" in capsys.readouterr().err


def test_a_models_counts_and_caches(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(["cost", "model", "llama3_70b", "--kv-dtype", "int8"], capsys)
    assert (found["params"], found["kv_bytes_per_token"]) == (70552387584, 163840)


def test_a_step_of_generation(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["cost", "inference", "--model", "llama3_70b", "--devices", "8", "--hardware", "tpu_v5e", "--batch", "32"]
    found = answer([*asked, "--context", "8192", "--weight-dtype", "int8", "--kv-dtype", "int8"], capsys)
    assert found["book_seconds"] == pytest.approx(17.5e-3, rel=0.01)
    assert found["book_bound"] == "memory" and found["fits"] is True


def test_the_best_split_of_a_batch(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["cost", "critical-batch", "--model", "llama3_70b", "--strategy", "fsdp+tensor", "--hardware", "tpu_v5p"]
    asked += ["--mesh", "fsdp=2240,tensor=4", "--batch-tokens", "4.19e6", "--slice-shape", "16x20x28"]
    rows = answer(asked, capsys)["critical"]
    assert rows[-1]["at_least"] == pytest.approx(1618, rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model", "llama9"], "no model named 'llama9'"),
        (["model", "llama3_8b", "--seq", "0"], "seq is 0"),
        (["inference", "--model", "llama3_8b", "--devices", "0", "--hardware", "h100"], "devices is 0"),
        (["inference", "--model", "llama3_8b", "--devices", "8", "--hardware", "h9"], "no hardware profile named 'h9'"),
        (
            ["inference", "--model", "llama3_8b", "--devices", "8", "--tensor", "3", "--hardware", "h100"],
            "tensor=3 does not divide the 8 devices",
        ),
        (
            ["host-copy", "--bytes", "1e9", "--hardware", "tpu_v7x"],
            "profile tpu_v7x does not say how fast the link to the host is",
        ),
        (
            ["point-to-point", "--bytes", "1", "--mesh", "x=4", "--axes", "", "--hardware", "h100"],
            "name the axes between whose devices bytes are sent",
        ),
        (
            ["collective", "--kind", "psum", "--bytes", "1", "--mesh", "x=4", "--axes", ",", "--hardware", "h100"],
            "name the axes that the psum runs over",
        ),
        (
            ["collective", "--kind", "psum", "--bytes", "1", "--mesh", "x=4", "--axes", "x", "--hardware", "tpu_v5e"]
            + ["--slice-shape", "2by2"],
            "--slice-shape: cannot read '2by2'; write 4x4 or 16x20x28",
        ),
        (
            ["collective", "--kind", "psum", "--bytes", "1", "--mesh", "x=4", "--axes", "x", "--hardware", "tpu_v5e"]
            + ["--slice-shape", "4x" + "9" * 5000],
            "--slice-shape: cannot read '4x999",
        ),
        (
            ["matmul", "B D @ D F -> B F", "--dim", "B=8,D=8,F=8,Z=8", "--mesh", "x=4", "--hardware", "h100"],
            "matmul 'B D @ D F -> B F' has no dimension Z",
        ),
        (
            ["matmul", "B D @ D F -> B F", "--dim", "B=8,D=8,F=8", "--mesh", "x=4", "--hardware", "h100"]
            + ["--storage", "int8"],
            "storage gives 1 types; give three",
        ),
        (
            [
                "matmul",
                "B D @ D F -> B F",
                "--dim",
                "B=8,D=8,F=8",
                "--dim",
                "F=9",
                "--mesh",
                "x=4",
                "--hardware",
                "h100",
            ],
            "--dim: F is given twice",
        ),
        (
            ["collective", "--kind", "psum", "--bytes", "1", "--mesh", "x=4", "--axes", "x", "--hardware", "tpu_v5e"]
            + ["--link", "x=ici", "--link", "x=dcn"],
            "--link: axis 'x' is given twice",
        ),
    ],
)
def test_other_wrong_questions_exit_2(arguments, message, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


def test_tokens_may_be_in_millions(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["cost", "--model", "llama3_8b", "--strategy", "fsdp", "--mesh", "data=8", "--hardware", "h100"]
    assert answer([*asked, "--batch-tokens", "4M"], capsys) == answer([*asked, "--batch-tokens", "4e6"], capsys)
    assert main([*asked, "--batch-tokens", "4 million"]) == 2
    assert "expected a positive number such as 4e6, found '4 million'" in capsys.readouterr().err
