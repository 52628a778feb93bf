"""Work that may end the process is done in a copy of it, so that the command can still say what happened.

Shardy's passes end the process on some modules that their verifiers accept (a known custom call with fewer results
than it should have). The copy is a fork, which costs milliseconds. Where a fork is not possible (JAX is imported and
has threads, or the system is Windows), the work is done in this process.
"""

import os
import pickle
import re
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import IO, Any

from autoshard.errors import AutoshardError, InputError

_FATAL = re.compile(r"^LLVM ERROR: (?:.*?\.cc:\d+\] )?(.*)$", re.MULTILINE)
"""What ends the process on purpose says why, behind the place in MLIR's source."""


def guarded(work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``work(*args, **kwargs)``, whose result can be pickled; `InputError` where it ended the process."""
    if not hasattr(os, "fork") or "jax" in sys.modules or threading.active_count() > 1:
        return work(*args, **kwargs)
    sys.stdout.flush()
    sys.stderr.flush()
    from_child, to_parent = os.pipe()
    with _file() as told:  # what the passes of MLIR print goes past Python
        child = os.fork()
        if not child:
            if told is not None:
                os.dup2(told.fileno(), 2)
            _in_child(work, args, kwargs, from_child, to_parent)
        os.close(to_parent)
        with os.fdopen(from_child, "rb") as pipe:
            data = pipe.read()
        _, status = os.waitpid(child, 0)
        errors = ""
        if told is not None:
            told.seek(0)
            errors = told.read().decode(errors="replace")
    reason = _FATAL.findall(errors)
    if data or not reason:
        sys.stderr.write(errors)
    if not data:
        how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit code {os.WEXITSTATUS(status)}"
        if reason:
            raise InputError(f"a pass of MLIR ended the process ({how}): {reason[-1].strip()}")
        raise InputError(
            f"the MLIR passes that read the rules of ops, import the module or export it ended the process ({how}); "
            "look for known custom calls with unusual operands or results, and give them a sharding_rule of their own"
        )
    is_result, value = pickle.loads(data)
    if is_result:
        return value
    raise value


def _file() -> AbstractContextManager[IO[bytes] | None]:
    """A file without a name; None where there is no folder for one."""
    try:
        return tempfile.TemporaryFile()
    except OSError:
        return nullcontext()


def _in_child(work: Callable[..., Any], args: Any, kwargs: Any, from_child: int, to_parent: int) -> None:
    """Do the work and send the result or the error; never returns."""
    code = 1
    try:
        os.close(from_child)
        try:
            answer = pickle.dumps((True, work(*args, **kwargs)))
        except (AutoshardError, KeyboardInterrupt) as error:
            answer = pickle.dumps((False, error))
        with os.fdopen(to_parent, "wb") as pipe:
            pipe.write(answer)
        code = 0
    except BrokenPipeError:  # whoever asked was ended, and hears no answer
        pass
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)
