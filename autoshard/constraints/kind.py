"""A kind of statement: its classes, and how it is written in a config."""

from dataclasses import dataclass

from autoshard.constraints.in_config import ConfigKey
from autoshard.constraints.statement import Matched, Statement


@dataclass(frozen=True, eq=False)
class Kind:
    """What the registry knows of a kind.

    matched: what it is in one program and in plan.json, where `matched.kind` is its name. stated: what users write in
    Python; None where it comes from the code of the program or from an option of its own. config: its key there.
    """

    matched: type[Matched]
    stated: type[Statement] | None = None
    config: ConfigKey | None = None

    @property
    def name(self) -> str:
        """Its name in plan.json."""
        return self.matched.kind
