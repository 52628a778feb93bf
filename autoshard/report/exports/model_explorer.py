"""The program of plans as a graph collection of Google's Model Explorer, with shardings and times on every node.

Model Explorer's own form (``graph_builder.py`` there): a collection has a ``label`` and ``graphs``, a graph nodes with
``namespace`` (layers, as a path), ``attrs``, ``incomingEdges`` and ``outputsMetadata``.
"""

from collections.abc import Sequence
from typing import Any

from autoshard.plan_record import PlanRecord
from autoshard.program.program import Op, Origin
from autoshard.program.schedule import PROGRAM, Use
from autoshard.report.amounts import bytes_text, seconds_text
from autoshard.report.view.outline import outline

COLOURS = ("#a9c6f5", "#f3c9a0", "#a5dcc6", "#deb9e6", "#f1b3bf", "#a3d9e6", "#d9d08c", "#c3c5f0")
"""Colours of nodes whose result is cut, by the first mesh axis that cuts it."""


def model_explorer_graphs(plans: Sequence[PlanRecord], names: Sequence[str]) -> dict[str, Any]:
    """The graph collection of several plans: each plan is a graph named with one of `names` and its number."""
    graphs = [
        _Graph(plan).made(f"{name} #{k}") for k, (plan, name) in enumerate(zip(plans, names, strict=True), start=1)
    ]
    return {"label": "autoshard", "graphs": graphs}


class _Graph:
    """The graph of one plan. source: value -> (node, number of that node's output) that it comes from."""

    def __init__(self, plan: PlanRecord) -> None:
        self.plan, self.program, self.mesh = plan, plan.program, plan.schedule.mesh
        self.axes = {axis: k for k, axis in enumerate(self.mesh.mesh.axis_names)}
        self.source: dict[int, tuple[str, str]] = {}
        self.around: dict[int, list[int]] = {}
        for index, row in enumerate(plan.cost.rows):
            self.around.setdefault(row.op, []).append(index)

    def made(self, name: str) -> dict[str, Any]:
        """The graph as Model Explorer reads it."""
        program, nodes = self.program, []
        for k, value in enumerate(program.body.args):
            nodes.append(self._node(f"in{k}", program.values[value].name, "inputs", [], (value,)))
        spaces = self._namespaces()
        for op, _ in program.walk():
            self.source.update({value: (str(op.id), str(k)) for k, value in enumerate(op.results)})
            for number, region in enumerate(op.regions):
                self.source.update({value: (f"{op.id}.{number}", str(k)) for k, value in enumerate(region.args)})
        for op, outer in program.walk():
            if any(o.kind == "shard_map" for o in outer):
                continue
            nodes += self._op(op, spaces[op.id])
        for slot, value in enumerate(program.body.results):
            reshard = self.plan.schedule.uses.get(Use(PROGRAM, slot))
            attrs = [] if reshard is None else [_pair("sharding", reshard.target.text(self.mesh))]
            node = self._node(f"out{slot}", program.output_names[slot], "outputs", attrs, ())
            nodes.append({**node, "incomingEdges": self._edges([value])})
        return {"id": name, "nodes": nodes}

    def _namespaces(self) -> dict[int, str]:
        """op id -> the rows of the outline around it, as a path; rows of one name are told apart by a number."""
        path_of: dict[int, str] = {}
        path: list[str] = []
        seen: dict[str, int] = {}
        for row in outline(self.program):
            del path[row.depth :]
            if row.op >= 0:
                path_of[row.op] = "/".join(path)
            if row.label or row.op >= 0:
                label = (row.label or str(row.op)).replace("/", ".")
                parent = "/".join([*path, label])
                seen[parent] = seen.get(parent, 0) + 1
                path.append(label if seen[parent] == 1 else f"{label} ({seen[parent]})")
        return path_of

    def _op(self, op: Op, space: str) -> list[dict[str, Any]]:
        seconds = self.plan.cost.op_seconds.get(op.id, 0.0)
        attrs = [_pair("source", op.source), _pair("seconds a step", seconds_text(seconds))]
        attrs += [_pair("rule", op.rule.to_text())] if op.rule is not None else []
        for index in self.around.get(op.id, ()):
            row = self.plan.cost.rows[index]
            over = self.mesh.axes_text(row.atoms).replace('"', "")
            price = f"{row.where}: {bytes_text(row.bytes)}, {seconds_text(row.seconds * row.times)} a step"
            attrs.append(_pair(f"{row.kind} over {over}" if over else str(row.kind), price))
        own = self._node(str(op.id), op.kind, space, attrs, op.results)
        if not op.regions or op.kind == "shard_map":
            return [{**own, "incomingEdges": self._edges(op.operands)}]
        handed = [value for region in op.regions for value in region.results]
        out = [{**own, "incomingEdges": self._edges(handed)}]
        inside = "/".join(filter(None, (space, f"{op.kind} {op.id}")))
        for number, region in enumerate(op.regions):
            node = self._node(f"{op.id}.{number}", "arguments", inside, [], region.args)
            out.append({**node, "incomingEdges": self._edges(op.operands)})
        return out

    def _node(
        self, id_: str, label: str, space: str, attrs: Sequence[dict[str, str]], values: Sequence[int]
    ) -> dict[str, Any]:
        if id_.startswith("in"):
            self.source.update({value: (id_, str(k)) for k, value in enumerate(values)})
        node: dict[str, Any] = {
            "id": id_, "label": label, "namespace": space, "attrs": list(attrs), "incomingEdges": [],
            "outputsMetadata": [{"id": str(k), "attrs": self._value(value)} for k, value in enumerate(values)],
        }  # fmt: skip
        layouts = [self.plan.schedule.definitions[v] for v in values if v in self.plan.schedule.definitions]
        cut = next((a for layout in layouts for dim in layout.dims for a in dim), None)
        if cut is not None:
            colour = COLOURS[self.axes[self.mesh.atoms[cut].name] % len(COLOURS)]
            node["style"] = {"backgroundColor": colour}
        return node

    def _value(self, value: int) -> list[dict[str, str]]:
        type_ = self.program.type_of(value)
        attrs = [_pair("__tensor_tag", self.program.values[value].name), _pair("shape", str(type_))]
        layout = self.plan.schedule.definitions.get(value)
        if layout is not None:
            local = ",".join(map(str, layout.local_shape(type_.shape, self.mesh)))
            attrs += [_pair("sharding", layout.text(self.mesh)), _pair("on a device", f"[{local}]")]
        return attrs

    def _edges(self, values: Sequence[int]) -> list[dict[str, str]]:
        return [
            {"sourceNodeId": self.source[v][0], "sourceNodeOutputId": self.source[v][1], "targetNodeInputId": str(slot)}
            for slot, v in enumerate(values)
            if v in self.source and self.program.values[v].origin is not Origin.LITERAL
        ]


def _pair(key: str, value: str) -> dict[str, str]:
    return {"key": key, "value": value}
