"""A kind of statement: its classes, and how it is written in a config."""

from dataclasses import dataclass

from autoshard.constraints.in_config import ConfigKey
from autoshard.constraints.statement import Matched, Statement


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of statement, as the registry has it.

    matched: the class for one program and for plan.json; `matched.kind` is the name of the kind. stated: the class that
    users write in Python; None where statements come from the code of the program or from an option of their own.
    config: the key in a config.
    """

    matched: type[Matched]
    stated: type[Statement] | None = None
    config: ConfigKey | None = None

    @property
    def name(self) -> str:
        """The name of the kind in plan.json."""
        return self.matched.kind
