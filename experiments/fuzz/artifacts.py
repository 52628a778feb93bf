"""Cases about files that autoshard writes, or that come from other tools: plans, modules, ONNX models, networks."""

import gzip
import random
from pathlib import Path

from damage import beside, bytes_of, certificate_damaged, damaged, output
from judge import Case
from mutate import bytes_changed, words_changed


def plan(rng: random.Random, corpus: Path) -> Case:
    """A changed plan.json, under every command that reads one."""
    name = rng.choice(("mlp", "mlp", "step", "searched", "small", "onnx", "quickstart"))
    good = corpus / "plans" / name / "plan.json"
    files = {"plan.json": damaged(rng, good, by_tree=0.85), "good.json": bytes_of(good), **beside(corpus)}
    if rng.random() < 0.3:
        files["run.json"] = damaged(rng, good.parent / "run.json", by_tree=0.7)
    case = Case([], files)
    way = rng.randrange(22)
    json_too = rng.choice(([], ["--json"]))
    if way <= 3:
        case.args = [
            "show",
            "plan.json",
            *rng.sample(("inputs", "collectives", "step", "memory", "baselines", "meshes", "notes"), rng.randrange(3)),
        ]
    elif way <= 8:
        case.args = ["verify", "plan.json", *json_too]
    elif way <= 10:
        pattern = rng.choice(("x", "w", "**", "*", "dot_general:1", "@x", "state/params/**", "out/0", "[", "params/w"))
        case.args = ["explain", "plan.json", pattern, *json_too]
        if rng.random() < 0.3:
            case.args += ["--instead", words_changed(rng, '[{"data"}, {"model", ?}]'), "--time-limit", "1"]
        elif rng.random() < 0.2:
            case.args += ["--break-even", rng.choice(("memory", "bandwidth", "batch", "x")), "--time-limit", "1"]
    elif way <= 12:
        rules = rng.choice(([], ["--rules", "maxtext"], ["--rules", "flax"], ["--rules", "x"]))
        return (
            output(
                rng,
                Case(
                    [
                        "specs",
                        "plan.json",
                        "-o",
                        "out.py" if "--json" not in json_too else "out.json",
                        *rules,
                        *json_too,
                    ],
                    files,
                ),
                "out.py" if "--json" not in json_too else "out.json",
            )
            if not rules
            else Case(["specs", "plan.json", *rules, *json_too], files)
        )
    elif way <= 15:
        form, out = rng.choice(
            (("html", "out.html"), ("perfetto", "out.json"), ("model-explorer", "out.json"), ("csv", "out"))
        )
        case.args = ["report", "plan.json", "--format", form, "-o", out]
        case.args[2:2] = ["good.json"] * (rng.random() < 0.2)
        return output(rng, case, out, folder=form == "csv")
    elif way <= 17:
        case.args = [
            "diff",
            *rng.choice((("plan.json", "good.json"), ("good.json", "plan.json"), ("plan.json", "plan.json"))),
            *json_too,
        ]
    elif way == 18:
        target = rng.choice(("explicit", "constraints", "shardings", "mlir", "onnx", "x"))
        case.args = ["lower", "plan.json", "--target", target, "--no-report", "--output", "out.txt"]
        case.outputs = ("out.txt",)
    elif way == 19:
        case.args = ["run", "plan.json", "--steps", "1", *json_too]
    else:
        case.args = ["simulate", "plan.json", "--compiler", "own", "--trace", "out.json", *json_too]
        return output(rng, case, "out.json")
    return case


def mlir(rng: random.Random, corpus: Path) -> Case:
    """A changed module under propagate, check and explain."""
    path = rng.choice(sorted(corpus.glob("*.mlir")))
    text = bytes_of(path).decode()
    data = (
        words_changed(rng, text).encode("utf-8", "surrogatepass")
        if rng.random() < 0.75
        else bytes_changed(rng, text.encode())
    )
    case = Case([], {"m.mlir": data})
    strategy = rng.choice(
        ([], [], ["--strategy", "basic"], ["--strategy", "user-priority"], ["--conservative"], ["--strategy", "x"])
    )
    way = rng.randrange(4)
    if way == 0:
        case.args = ["check", "m.mlir", *rng.choice(([], ["--strict"], ["--json"]))]
    elif way == 1:
        case.args = ["explain", "m.mlir", rng.choice(("%0", "%a", "%1", "%w#0", "x", "%", "", "%999")), *strategy]
    elif way == 2:
        case.args, case.stdin = ["propagate", "-", *strategy], data
    else:
        case.args = ["propagate", "m.mlir", "--output", "out.mlir", *strategy]
        return output(rng, case, "out.mlir")
    return case


def onnx(rng: random.Random, corpus: Path) -> Case:
    """A changed ONNX model, binary or text, under check, propagate and solve."""
    name = rng.choice(
        ("plain.onnx", "mlp.onnx", "mlp.onnx", "mlp.textproto", "mlp_model.json", "plain.textproto", "plain_model.json")
    )
    path = corpus / name
    data = (
        damaged(rng, path, by_tree=0.7)
        if path.suffix == ".json"
        else damaged(rng, path, by_tree=0.0)
        if path.suffix == ".textproto"
        else bytes_changed(rng, bytes_of(path))
    )
    file = f"m{path.suffix}"
    shape = [
        "--shape",
        rng.choice(("batch=32", "batch=32", "batch=32", "batch=0", "batch", "x=1", "batch=99999999999999999999", "=3")),
    ]
    case = Case([], {file: data})
    way = rng.randrange(5)
    if way <= 1:
        case.args = ["check", file, *shape, *rng.choice(([], ["--strict"], ["--json"]))]
    elif way <= 3:
        case.args = [
            "propagate",
            file,
            *shape,
            "--output",
            f"out{path.suffix}",
            *rng.choice(([], ["--spread"], ["--implied"])),
        ]
        return output(rng, case, f"out{path.suffix}") if path.suffix != ".json" else case
    else:
        more = rng.choice(("annotations: pins\n", "annotations: hints\n", ""))
        text = f"model: {file}\nshapes: {{batch: 32}}\nmesh: {{a: 2, b: 2}}\nhardware: tpu_v5e\n{more}"
        case.files["c.yaml"] = text.encode()
        case.args = ["solve", "c.yaml", "-o", "out", "-q", "--time-limit", "2"]
        case.outputs = ("out",)
    return case


def network(rng: random.Random, corpus: Path) -> Case:
    """A changed contest file, solution or certificate."""
    base = corpus / "networks" / rng.choice(("example", "seven"))
    files = {
        "p.json": bytes_of(base.with_suffix(".json")),
        "s.json": bytes_of(base.parent / f"{base.name}.sol.json"),
        "c.json": bytes_of(base.parent / f"{base.name}.cert.json"),
    }
    way = rng.randrange(6)
    hurt = (
        "p.json"
        if way <= 2
        else rng.choice(("s.json", "p.json"))
        if way == 3
        else rng.choice(("c.json", "c.json", "s.json", "p.json"))
    )
    source = {
        "p.json": base.with_suffix(".json"),
        "s.json": base.parent / f"{base.name}.sol.json",
        "c.json": base.parent / f"{base.name}.cert.json",
    }
    files[hurt] = (
        certificate_damaged(rng, source[hurt]) if hurt == "c.json" else damaged(rng, source[hurt], by_tree=0.75)
    )
    json_too = rng.choice(([], ["--json"]))
    if way <= 2:
        file = "p.json"
        if rng.random() < 0.2:
            file = "p.json.gz"
            packed = gzip.compress(files["p.json"], mtime=0)
            files[file] = bytes_changed(rng, packed) if rng.random() < 0.6 else packed
        case = Case(
            [
                "network",
                "solve",
                file,
                "--effort",
                "0.05",
                "--output",
                "out.json",
                "--certificate",
                "proof.cert",
                *json_too,
            ],
            files,
        )
        if rng.random() < 0.1:
            case.args += ["--time-limit", "1", "--workers", "2"]
        case = output(rng, case, "out.json")
        case.outputs = ("out.json", "proof.cert")
        return case
    if way == 3:
        return Case(["network", "score", "p.json", "s.json", *json_too], files)
    return Case(
        ["network", "check", "p.json", *rng.choice(([], ["s.json"])), "--certificate", "c.json", *json_too], files
    )
