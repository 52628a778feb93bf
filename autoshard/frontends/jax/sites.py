"""Where ops come from: source lines and scopes, through calls that are inlined."""

from dataclasses import dataclass
from typing import Any

from autoshard.frontends.jax.facts import is_jax_code, open_jaxpr


@dataclass(frozen=True, slots=True)
class Site:
    """The place that an inlined callee is called from; `source` replaces the callee's lines where it is JAX's own
    code.
    """

    source: str | None = None
    scope: str = ""


def describe(here: Site) -> str:
    """Source line, then the scopes of `jax.named_scope` and of transformations: ``m.py:3 (f) [jvp(block)]``."""
    source = here.source or ""
    return f"{source} [{here.scope}]".strip() if here.scope else source


def named_site(here: Site, callee: Any, name: Any) -> Site:
    """`here` with the name of the called function as a scope, where it is a jitted function of the user."""
    if not isinstance(name, str) or not name.isidentifier() or is_jax_code(open_jaxpr(callee)[0]):
        return here
    return Site(here.source, joined(here.scope, name))


def joined(outer: str, inner: str) -> str:
    """Two paths of scopes as one; either may be empty."""
    return f"{outer}/{inner}" if outer and inner else outer or inner
