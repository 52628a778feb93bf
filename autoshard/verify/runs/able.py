"""What the backend that JAX has here cannot run."""

from autoshard.program.program import Program


def unable(program: Program) -> str:
    """Why a program cannot be compiled and run here; empty where it can."""
    import jax

    if jax.default_backend() == "cpu" and any(op.attrs.get("ragged") for op, _ in program.walk()):
        return "XLA for CPU has no ragged_all_to_all, which a shard_map of the program asks for"
    return ""
