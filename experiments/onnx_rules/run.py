"""Rules of operators against their JAX functions: which axes of the outputs are cut where one axis of an input is.

python experiments/onnx_rules/run.py [--only TEXT] [--show]

Every case of ONNX's own suite with one node: by the rule of the formalism (`autoshard.onnx.rules`), and by propagation
through the traced function of the same node.
"""

import argparse
import os
import sys
import warnings
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(Path(__file__).parents[1] / "onnx_suite"))

from cases import _data, cases, has_other_types, imported

Axis = tuple[str, int]


def by_rule(rule: Any, node: Any, names: list[str]) -> dict[Axis, tuple[str, frozenset[Axis]]]:
    """Per axis of an input: ``passes``, ``reduced`` or ``whole``, and the axes of outputs that are cut with it."""
    found: dict[Axis, tuple[str, frozenset[Axis]]] = {}
    for name, factors in zip(node.input, rule.inputs):
        for axis, parts in enumerate(factors or ()):
            if name not in names or not parts or list(node.input).count(name) > 1:
                continue
            first = parts[0]
            kind = "whole" if first in rule.whole else "reduced" if first in rule.reduced else "passes"
            outs = {
                (out, k)
                for out, of in zip(node.output, rule.outputs)
                for k, its in enumerate(of or ())
                if its and its[0] == first and out
            }
            found[name, axis] = kind, frozenset(outs if kind == "passes" else ())
    return found


def by_function(traced: Any, name: str, axis: int, size: int) -> frozenset[Axis]:
    """The axes of outputs that propagation cuts along with this one of an input."""
    from autoshard.propagation import propagate
    from autoshard.sharding.mesh import Mesh
    from autoshard.sharding.tensor_sharding import TensorSharding

    program, mesh = traced.program, Mesh.from_dict({"cut": size})
    value = program.body.args[program.input_names.index(f"inputs/{name}")]
    rank = len(program.type_of(value).shape)
    text = ", ".join('{"cut"}' if k == axis else "{}" for k in range(rank))
    spread = propagate(program, mesh, {value: TensorSharding.from_text(f"[{text}]")})
    out: set[Axis] = set()
    for path, result in zip(program.output_names, program.body.results):
        sharding = spread.values.get(result)
        for k, dim in enumerate(sharding.dims if sharding is not None else ()):
            if dim.axes:
                out.add((path.removeprefix("out/"), k))
    return frozenset(out)


def compared(case: Any) -> list[tuple[str, str]]:
    """(outcome, detail) for every axis of the inputs that can be cut."""
    from autoshard.frontends.jax.function import trace
    from autoshard.onnx.calls import Constants, call_of
    from autoshard.onnx.graph import value_types
    from autoshard.onnx.rules import rule_of

    graph = case.model.graph
    node = graph.node[0]
    inputs = {i.name: _data(x) for i, x in zip(graph.input, case.data_sets[0][0])}
    made, known = imported(case.model, inputs)
    if not made.inputs:
        return []
    constants = Constants()
    from onnx import numpy_helper

    constants.add_tensors([numpy_helper.from_array(inputs[n], n) for n in known])
    call = call_of(node, value_types(graph), constants, {o.domain: o.version for o in case.model.opset_import})
    rule = rule_of(call, node.domain)
    if rule is None:
        return [("no rule", node.op_type)]
    traced = trace(made.__call__, *made.args, argnames=("weights", "inputs"))
    out = []
    for (name, axis), (kind, said) in by_rule(rule, node, list(made.inputs)).items():
        size = inputs[name].shape[axis]
        if size < 2 or f"inputs/{name}" not in traced.program.input_names:
            continue
        size = next(p for p in range(2, size + 1) if size % p == 0)
        found = by_function(traced, name, axis, size)
        if (kind == "passes" and said == found) or (kind != "passes" and not found):
            out.append(("same", node.op_type))
        else:
            words = f"{name}[{axis}] {kind} to {sorted(said)}, by the function to {sorted(found)}"
            way = "the rule says more" if said - found else "the function says more"
            if kind == "whole":
                way = "whole by the rule, cut by the function, which communicates inside of the op"
            out.append((way, f"{node.op_type}: {case.name}: {words}: {rule.text()}"))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose names hold this text")
    parser.add_argument("--show", action="store_true", help="every axis on which the two disagree")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    from autoshard.errors import AutoshardError
    from autoshard.onnx.rules import RankUnknown, ShapesDisagree

    counts: Counter[str] = Counter()
    ops: dict[str, Counter[str]] = defaultdict(Counter)
    for name, case in cases().items():
        if options.only not in name or len(case.model.graph.node) != 1 or has_other_types(case):
            continue
        try:
            found = compared(case)
        except (AutoshardError, RankUnknown, ShapesDisagree) as error:
            found = [(f"not compared: {type(error).__name__}", case.model.graph.node[0].op_type)]
        for outcome, text in found:
            counts[outcome] += 1
            ops[outcome][text.split(":")[0]] += 1
            if options.show and "says more" in outcome:
                print(f"{outcome}: {text}", flush=True)
    for outcome, count in counts.most_common():
        print(f"{count} {outcome}: {', '.join(f'{op} ({n})' for op, n in sorted(ops[outcome].items()))}")


if __name__ == "__main__":
    main()
