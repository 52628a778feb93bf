"""No primitive of JAX is forgotten, and the documentation names them all."""

from pathlib import Path

import jax.extend.core.primitives as public
import jax.lax

from autoshard.rules import known_primitives

REGIONS_AND_CALLS = {
    "call", "closed_call", "cond", "custom_jvp_call", "custom_lin", "custom_vjp_call", "jit", "remat2", "remat", "scan",
    "while", "checkpoint", "pjit", "core_call", "xla_call", "core_closed_call", "custom_vjp_call_jaxpr",
    "eval_jaxpr",
}  # fmt: skip
"""Inlined by the front end, or tied by data-flow edges."""

WITHOUT_A_RULE = {
    "after_all", "create_token",  # tokens have no dimensions
    "custom_linear_solve",  # takes functions
    "get", "swap", "addupdate",  # mutable references
    "stage",
}  # fmt: skip
"""They get the conservative rule and a warning."""


def test_every_public_primitive_has_a_rule_or_a_reason() -> None:
    names = {p.name for m in (public, jax.lax) for n, p in vars(m).items() if n.endswith("_p") and hasattr(p, "bind")}
    assert len(names) > 100
    assert names - set(known_primitives()) - REGIONS_AND_CALLS - WITHOUT_A_RULE == set()


def test_the_documentation_has_a_row_for_every_primitive(repository: Path) -> None:
    text = (repository / "docs" / "rules.md").read_text()
    assert [name for name in known_primitives() if f"`{name}`" not in text] == []
