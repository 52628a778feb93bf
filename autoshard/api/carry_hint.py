"""A hint for requests without a plan: carried state that nobody stated may be the reason."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from autoshard.errors import InfeasibleError, OutOfTimeError
from autoshard.program.ties import with_carried

P = ParamSpec("P")
R = TypeVar("R")


def tells_of_carry(plan: Callable[P, R]) -> Callable[P, R]:
    """Decorator: where there is no plan and carried state was found unasked, the error says how to lift that."""

    @functools.wraps(plan)
    def planned(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return plan(*args, **kwargs)
        except (InfeasibleError, OutOfTimeError) as error:
            request: Any = args[0]
            program = getattr(request.traced, "program", request.traced)
            pairs = with_carried(program).carried if request.carry in (None, True, "auto") else ()
            if pairs and "carry=False" not in str(error):
                error.args = (
                    f"{error}\n{len(pairs)} outputs were found to be the next values of inputs, with their layouts; "
                    "carry=False (carry: none in a config) lifts that",
                )
            raise

    return planned
