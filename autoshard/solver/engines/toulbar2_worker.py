"""A fork server around toulbar2, run as a script: one forked child per job, so that every solve starts
from the same library state, and a crash, a timer or a kill touches nothing else.

Reads pickled jobs (length-prefixed) on stdin, writes pickled answers on the original stdout.
"""

import os
import pickle
import signal
import struct
import sys


def solve_job(job):
    """One network solved by toulbar2: complete or not, the assignment found, the bound, the backtracks."""
    import pytoulbar2

    size = job["sizes"]
    cfn = pytoulbar2.CFN(ubinit=job["upper"], resolution=0, vac=job["vac"], seed=1, verbose=-1)
    option = cfn.Option
    option.backtrackLimit = job["backtracks"]
    option.showSolutions = 0
    if job["rows"]:  # stronger consistency costs more than it gives beside rows, and may fill the memory
        option.LcLevel = 1
    if job["hbfs"] is not None:
        option.hbfs = job["hbfs"]
    for i, d in enumerate(size):
        cfn.AddVariable(f"x{i}", range(d))
    for i, costs in job["unary"]:
        cfn.AddFunction([i], costs.tolist())
    for i, j, costs in job["binary"]:
        cfn.AddFunction([i, j], costs.ravel().tolist())
    for scope, amounts, limit in job["rows"]:
        # sum of amounts <= limit, written as sum of (-amounts) >= -limit
        text = [str(-limit)]
        for values in amounts:
            text.append(str(len(values)))
            for v, a in enumerate(values):
                text += [str(v), str(-a)]
        cfn.CFN.wcsp.postKnapsackConstraint(list(scope), " ".join(text), kp=True)
    answer = {"complete": True, "assignment": None, "bound": None}
    try:
        answers = cfn.Solve(timeLimit=job["seconds"])
        answer["complete"] = not option.limited
    except cfn.SolverOut:
        answers = None
        answer["complete"] = False
    if answers is not None:
        answer["assignment"] = [int(v) for v in answers[0]]
    else:
        answers = cfn.GetSolutions()
        if answers:
            answer["assignment"] = [int(v) for v in answers[-1][1]]
    try:
        answer["bound"] = float(cfn.GetDDualBound())
    except Exception:
        answer["bound"] = None
    answer["backtracks"] = int(cfn.CFN.getNbBacktracks())
    return answer


HEADER_BYTES = 8
"""Bytes before a job that hold its length."""


def read_exactly(stream, count):
    """Read `count` bytes; ends the process where the parent has closed the stream."""
    data = stream.read(count)
    if len(data) < count:
        sys.exit(0)
    return data


MAX_BYTES = 5 * 2**29
"""Address space of one job (2.5 GiB): a search that wants more ends unanswered instead of filling the machine."""


def die_with_parent():
    """Ask Linux to kill this process when its parent ends, in whatever way; elsewhere the parent does it at exit."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    except (OSError, AttributeError):
        pass


def limit_memory():
    """Keep this process within `MAX_BYTES`, where the system can."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    except (ImportError, ValueError, OSError):
        pass


def main():
    """Answer jobs until the parent closes the stream."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C belongs to the parent, which then kills this group
    out = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    import numpy  # noqa: F401  (loaded once, before any fork)
    import pytoulbar2  # noqa: F401

    while True:
        (length,) = struct.unpack("<q", read_exactly(sys.stdin.buffer, HEADER_BYTES))
        blob = read_exactly(sys.stdin.buffer, length)
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            die_with_parent()
            limit_memory()
            try:
                answer = solve_job(pickle.loads(blob))
            except BaseException as problem:
                answer = {"error": repr(problem)}
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(pickle.dumps(answer))
            os._exit(0)
        os.close(writer)
        del blob
        with os.fdopen(reader, "rb") as pipe:
            data = pipe.read()
        os.waitpid(child, 0)
        data = data or pickle.dumps({"error": "toulbar2 ended without an answer"})
        out.write(struct.pack("<q", len(data)) + data)
        out.flush()


if __name__ == "__main__":
    main()
