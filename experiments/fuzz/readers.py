"""The readers of autoshard, each a family of cases: a random number makes a case."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from artifacts import mlir, network, onnx, plan
from damage import argument, beside, bytes_of, damaged, output, tree_of, yaml_of
from judge import Case
from mutate import JUNK, bytes_changed, tree_changed, words_changed
from pools import COMMANDS, CONFIGS, COST, KEYS, LARGE, LIMITS, MACHINES, MESHES, SANE, TEXTS, WORDS

Make = Callable[[random.Random, Path], Case]


def config(rng: random.Random, corpus: Path) -> Case:
    """A config, changed by tree, words or bytes, and solved (or compared, or swept)."""
    large = rng.random() < 0.15
    name = rng.choice(LARGE if large else CONFIGS)
    tree = dict(tree_of(corpus / f"{name}.yaml"))
    if large and rng.random() < 0.97:
        model = {"layers": 1, "batch": 256, **({} if name == "resnet50" else {"seq": 256})}
        if name == "resnet50":
            del model["layers"]
        tree["model"] = {**tree["model"], **model}
    if rng.random() < 0.95:
        tree.pop("verify", None)
        tree.pop("run", None)
    if rng.random() < 0.3:
        tree[rng.choice(KEYS).split(".")[0]] = rng.choice(JUNK)
    if rng.random() < 0.7:
        data = yaml_of(tree_changed(rng, tree, junk=(lambda: rng.choice(SANE)) if rng.random() < 0.6 else None))
    elif rng.random() < 0.5:
        data = words_changed(rng, yaml_of(tree).decode("utf-8", "replace")).encode("utf-8", "surrogatepass")
    else:
        data = bytes_changed(rng, yaml_of(tree))
    case = Case([], {"c.yaml": data, **beside(corpus)})
    way = rng.random()
    if way < 0.85:
        case.args = ["solve", "c.yaml", "-o", "out", "--time-limit", "2", *rng.choice((["--json"], ["-q"], ["-v"], []))]
        if rng.random() < 0.1:
            case.args[1], case.stdin = "-", data
    elif way < 0.95:
        case.args = ["compare", "c.yaml", "--strategies", "basic,greedy", "--time-limit", "2", "--csv", "out"]
    else:
        over = rng.choice(
            ("hardware=[tpu_v5e, h100]", f"{rng.choice(KEYS)}=[{rng.choice(JUNK)!r}]", "mesh.data=[1, 2]", "x", "=[]")
        )
        case.args = ["sweep", "c.yaml", "--over", argument(over), "-o", "out", "--time-limit", "1"]
    return output(rng, case, "out", folder=case.args[0] == "solve")


def overrides(rng: random.Random, corpus: Path) -> Case:
    """A good config under random changes of the command line."""
    name = rng.choice(("small", "mlp", "step", "onnx"))
    args = ["solve", "c.yaml", "-o", "out", "-q", "--time-limit", rng.choice(LIMITS) if rng.random() < 0.2 else "2"]
    for _ in range(rng.randrange(4)):
        junk = rng.choice(JUNK)
        value = (
            junk if isinstance(junk, str) else yaml.safe_dump(junk, default_flow_style=True, width=10**6).strip("\n. ")
        )
        change = f"{rng.choice(KEYS)}={value}"
        args.append(argument(words_changed(rng, change) if rng.random() < 0.3 else change))
    if rng.random() < 0.3:
        mesh = rng.choice(MESHES)
        args += ["--mesh", words_changed(rng, mesh) if rng.random() < 0.3 else mesh]
    if rng.random() < 0.2:
        args += ["--hardware", rng.choice(MACHINES)]
    return Case(args, {"c.yaml": bytes_of(corpus / f"{name}.yaml"), **beside(corpus)}, ("out",))


def machine(rng: random.Random, corpus: Path) -> Case:
    """A changed hardware profile or model card, under hardware, cost and solve."""
    import autoshard.costmodels

    room = Path(autoshard.costmodels.__file__).parent
    if rng.random() < 0.25:
        cards = tree_of(room / "model_cards.yaml")
        card = rng.choice(sorted(cards)) if isinstance(cards, dict) else None
        data = yaml_of(tree_changed(rng, cards.get(card) if rng.random() < 0.7 and card else cards))
        return Case(["cost", "model", "card.yaml", *rng.choice(([], ["--json"]))], {"card.yaml": data})
    path = rng.choice(sorted((room / "profiles").glob("*.yaml")))
    files = {"mine.yaml": damaged(rng, path, by_tree=0.75), "c.yaml": bytes_of(corpus / "small.yaml")}
    way = rng.randrange(4)
    if way == 0:
        return Case(["hardware", "mine.yaml", *rng.choice(([], ["--json"]))], files)
    if way == 1:
        return Case(
            ["solve", "c.yaml", "--hardware", "mine.yaml", "-o", "out", "-q", "--time-limit", "2"], files, ("out",)
        )
    words = rng.choice(COST)
    if "--hardware" not in words:
        words = COST[0]
    return Case(["cost", *["mine.yaml" if w in ("tpu_v5e", "tpu_v5p", "h100") else w for w in _split(words)]], files)


def _split(words: str) -> list[str]:
    parts = words.split("|")
    return words.split() if len(parts) == 1 else [parts[0], parts[1], *parts[2].split()]


def cost(rng: random.Random, corpus: Path) -> Case:
    """Questions to the cost models with a changed argument."""
    args = _split(rng.choice(COST))
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(args))
        way = rng.random()
        args[at] = argument(rng.choice(JUNK)) if way < 0.3 else words_changed(rng, args[at])
        if way > 0.9:
            del args[at]
    return Case(["cost", *args])


def arguments(rng: random.Random, corpus: Path) -> Case:
    """Random words behind a command."""
    args = [rng.choice(COMMANDS), *(rng.choice(WORDS) for _ in range(rng.randrange(6)))]
    files = {"quickstart.yaml": bytes_of(corpus / "small.yaml"), "plan.json": bytes_of(corpus / "plans/mlp/plan.json")}
    return Case(args, {**files, "mlp.yaml": bytes_of(corpus / "mlp.yaml"), **beside(corpus)}, ("",))


def texts(rng: random.Random, corpus: Path) -> Case:
    """Texts of shardings, meshes, rules, strategies and amounts, read by the functions that read them."""
    from autoshard.cli.common import limit_option, mesh_option
    from autoshard.config.yaml_text import load_yaml
    from autoshard.constraints import Pin
    from autoshard.costmodels.errors import ProfileError
    from autoshard.errors import AutoshardError
    from autoshard.interop.hlo_text import parse_hlo_sharding
    from autoshard.rules.custom import parse_tensors
    from autoshard.sharding.axis import AxisRef
    from autoshard.sharding.mesh import Mesh
    from autoshard.sharding.tensor_sharding import TensorSharding
    from autoshard.strategies.choice import StrategyName
    from autoshard.units import memory_amount, seconds

    mesh = Mesh.from_dict({"x": 2, "y": 4, "z": 2, "w": 2})
    readers: tuple[Callable[[str], Any], ...] = (
        TensorSharding.from_text, lambda t: TensorSharding.from_text(t, mesh), AxisRef.from_text, Mesh.from_text,
        lambda t: parse_tensors("mine", t), StrategyName.parse, memory_amount, seconds, mesh_option, limit_option,
        lambda t: load_yaml(t, "text"), lambda t: parse_hlo_sharding(t, 2, 8), lambda t: Pin(t, t),
        lambda t: Pin("x", t).parsed,
    )  # fmt: skip
    text = words_changed(rng, rng.choice(TEXTS))
    if rng.random() < 0.3:
        text = words_changed(rng, text)

    def read() -> int:
        for reader in readers:
            try:
                value = reader(text)
            except (AutoshardError, ProfileError):
                continue
            if type(value) in (TensorSharding, AxisRef, Mesh):
                assert type(value).from_text(str(value)) == value, f"{text!r} does not come back from {str(value)!r}"
        return 0

    return Case([text], call=read)


HEAVY: dict[str, tuple[Make, int]] = {
    "config": (config, 6), "overrides": (overrides, 4), "plan": (plan, 9), "onnx": (onnx, 4), "machine": (machine, 3),
    "arguments": (arguments, 3),
}  # fmt: skip


LIGHT: dict[str, tuple[Make, int]] = {
    "mlir": (mlir, 5),
    "network": (network, 5),
    "cost": (cost, 3),
    "texts": (texts, 3),
}
"""Families by name, with how often one is drawn. The light ones run in a process without JAX, where MLIR's passes run
in a copy of it."""


FAMILIES = {**HEAVY, **LIGHT}
