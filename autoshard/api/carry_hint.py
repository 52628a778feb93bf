"""What a plan that was not found may owe to state that was found to be carried, though nobody stated it."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from autoshard.errors import InfeasibleError, OutOfTimeError
from autoshard.program.ties import with_carried

P = ParamSpec("P")
R = TypeVar("R")


def tells_of_carry(plan: Callable[P, R]) -> Callable[P, R]:
    """Decorator: where there is no plan and state was tied without a word, the error says how to lift that."""

    @functools.wraps(plan)
    def planned(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return plan(*args, **kwargs)
        except (InfeasibleError, OutOfTimeError) as error:
            request: Any = args[0]
            program = getattr(request.traced, "program", request.traced)
            found = with_carried(program).carried if request.carry in (None, True, "auto") else ()
            if found and "carry=False" not in str(error):
                error.args = (
                    f"{error}\n{len(found)} outputs were found to be the next values of inputs, with their layouts; "
                    "carry=False (carry: none in a config) lifts that",
                )
            raise

    return planned
