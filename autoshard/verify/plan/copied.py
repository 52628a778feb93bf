"""What stays as it was and is copied before an update writes into it: the caller's inputs, and slices of a scan.

Found from the update upwards.
"""

from autoshard.verify.plan.placed import Placed
from autoshard.verify.plan.program import Graph, Node, element_bytes
from autoshard.verify.plan.work import block_elements, local_sizes


class Copies:
    """Of a program: where each argument of a region comes from."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._above = {
            arg: (op, number, place)
            for op in graph.nodes.values()
            if not op.is_manual
            for number, region in enumerate(op.regions)
            for place, arg in enumerate(region.args)
        }

    def bytes(self, op: Node, placed: Placed) -> float:
        """Bytes that cross memory for it with each execution of an op: all of its operand is read and written."""
        if not op.kind.startswith(("dynamic_update_slice", "scatter")):
            return 0.0
        value = op.operands[0]
        often = self._often(value)
        if not often:
            return 0.0
        block = block_elements(placed.rule.operands[0], local_sizes(placed.rule, placed))
        return 2 * often * block * element_bytes(self.graph.values[value].dtype)

    def _goes_back(self, scan: Node, value: int) -> bool:
        """Whether what is scanned over is a donated input in whose place the slices of all trips lie at last."""
        body = self.graph.body
        if value not in body.args or body.args.index(value) not in self.graph.donated:
            return False
        made = [v for v in scan.results[scan.attrs["num_carry"] :] if v in body.results]
        kinds = self.graph.values
        return any((kinds[v].shape, kinds[v].dtype) == (kinds[value].shape, kinds[value].dtype) for v in made)

    def _often(self, value: int) -> float:
        """Copies of a value with each execution of an op that writes into it."""
        often = 1.0
        while value in self._above:
            op, number, place = self._above[value]
            if op.kind == "scan":
                constants, carries = op.attrs["num_consts"], op.attrs["num_carry"]
                if place >= constants + carries:
                    return often * (2 if self._goes_back(op, op.operands[place]) else 1)
                if place >= constants:
                    often /= max(1, op.attrs["length"])
                value = op.operands[place]
            elif op.kind == "while":
                tested, used = op.attrs["cond_nconsts"], op.attrs["body_nconsts"]
                if number == 0:
                    if place >= tested:
                        return 0.0
                    value = op.operands[place]
                else:
                    if place >= used:
                        if not op.attrs.get("trips"):
                            return 0.0  # nobody knows how many share it
                        often /= op.attrs["trips"]
                    value = op.operands[tested + place]
            else:
                value = op.operands[place + (op.kind == "cond")]
        inputs = self.graph.body.args
        if value not in inputs:
            return 0.0
        number = inputs.index(value)
        return 0.0 if number in self.graph.donated or number in self.graph.host_inputs else often
