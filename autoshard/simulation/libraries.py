"""Work of library calls in XLA's programs for GPUs: matmuls by cuBLAS, convolutions by cuDNN.

A call names the routine in ``custom_call_target``; its first result is the product, the others are scratch space.
"""

import re
from math import prod
from typing import Final

from autoshard.simulation.convolutions import DTYPES, convolution_flop
from autoshard.simulation.scheduled import Array, Computation, Instruction

_MATMULS: Final = ("__cublas$", "__triton_gemm")
_CONVOLUTIONS: Final = "__cudnn$conv"
_FREE: Final = (
    "Sharding",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "annotate_device_placement",
    "AllocateBuffer",
)


def target_of(instruction: Instruction) -> str:
    """The routine that a custom call names; empty for other instructions."""
    if instruction.opcode != "custom-call":
        return ""
    return (instruction.attribute("custom_call_target") or "").strip('"')


def library_flop(instruction: Instruction, within: Computation) -> tuple[str, float]:
    """(element type of the operands, FLOP) of a call of cuBLAS or cuDNN; no FLOP for calls of anything else."""
    target = target_of(instruction)
    operands = [within.instructions[o].arrays[0] for o in instruction.operands if o in within.instructions]
    if len(operands) < 2 or not instruction.arrays:
        return "bfloat16", 0.0
    lhs, rhs, out = operands[0], operands[1], instruction.arrays[0]
    dtype = DTYPES.get(lhs.dtype, "float32")
    if target.startswith(_MATMULS):
        told = re.search(r'"lhs_contracting_dimensions":\[([^\]]*)\]', instruction.rest)
        contracted = [int(n) for n in re.findall(r"\d+", told[1])] if told else []
        return dtype, 2.0 * out.elements * prod(lhs.shape[d] for d in contracted)
    if target.startswith(_CONVOLUTIONS):
        tensors = lhs, rhs, out  # input, kernel, result, as the labels name them
        if "BackwardInput" in target:
            tensors = out, rhs, lhs
        elif "BackwardFilter" in target:
            tensors = lhs, out, rhs
        return dtype, convolution_flop(*tensors, instruction)
    return dtype, 0.0


def results_of(instruction: Instruction) -> tuple[Array, ...]:
    """The arrays that an instruction writes: of a library call the first alone, the others are scratch space."""
    if target_of(instruction).startswith((*_MATMULS, "__cudnn$")):
        return instruction.arrays[:1]
    return instruction.arrays


def unknown_call(instruction: Instruction) -> str:
    """The routine of a custom call whose FLOP nothing here knows; empty where there is none."""
    target = target_of(instruction)
    known = target.startswith((*_MATMULS, _CONVOLUTIONS)) or target in _FREE
    return "" if known else target
