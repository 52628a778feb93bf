"""Who is best in each case, which candidates are rivals of ours, and what is chosen where the compiler decides."""

import statistics
from collections.abc import Iterator, Mapping, Sequence

NEAR = 0.05
"""How far a candidate may be priced above the best of ours (serial, plain machine), or above the least of all by the
calibrated machine, to be a rival (`autoshard.questions.rivals`)."""
RUN = ("explicit", "constraints", "shardings")
"""Forms in which a plan runs (`autoshard.plan_record.RUN_FORMS`): only these can be chosen."""


def near(rows: Sequence[Mapping[str, str]], case: str, ours: Sequence[str]) -> list[str]:
    """The candidates of a case that are priced at most `NEAR` above the best of ours, or above the least by the
    calibrated machine; ours among them.
    """
    own = [r for r in rows if r["case"] == case and r["serial_s"]]
    mine = [float(r["serial_s"]) for r in own if r["candidate"] in ours]
    least = {
        "serial_s": min(mine, default=0.0),
        "calibrated_overlap_s": min((float(r["calibrated_overlap_s"]) for r in own), default=0.0),
    }
    close = [r["candidate"] for r in own if any(float(r[key]) <= (1 + NEAR) * s for key, s in least.items())]
    return list(dict.fromkeys(close))


def _judged(
    done: Sequence[Mapping[str, str]], ours: Sequence[str], enough: int
) -> Iterator[tuple[str, list[Mapping[str, str]]]]:
    """The cases with enough candidates, ours and others among them, and their rows."""
    for case in dict.fromkeys(r["case"] for r in done):
        mine = [r for r in done if r["case"] == case]
        if len(mine) >= enough and {r["candidate"] in ours for r in mine} == {True, False}:
            yield case, mine


def best_of_cases(done: Sequence[Mapping[str, str]], ours: Sequence[str], enough: int) -> Iterator[str]:
    """For each case with enough candidates the best, and how far from it ours (also the best of ours) and XLA's are."""
    beyond, judged, longer = [], [], []
    for case, mine in _judged(done, ours, enough):
        judged.append(case)
        best = min(mine, key=lambda r: float(r["expected_s"]))
        words = []
        for name in ours:
            own = [float(r["expected_s"]) for r in mine if r["candidate"] == name]
            if own:
                words.append(f"{name} {min(own) / float(best['expected_s']) - 1:+.1%}")
        all_own = [float(r["expected_s"]) for r in mine if r["candidate"] in ours]
        if min(all_own) > 1.02 * float(best["expected_s"]):
            beyond.append(case)
        xla = [float(r["expected_s"]) for r in mine if r["form"] == "shardings" and r["candidate"] not in ours]
        if xla:
            longer.append(min(xla) / min(all_own) - 1)
            words.append(f"XLA's partitioner {min(xla) / float(best['expected_s']) - 1:+.1%}")
        beside = f"; beside it {', '.join(words)}" if words else ""
        yield f"- {case}: best of {len(mine)} is {best['candidate']} as {best['form']}{beside}"
    yield (
        f"- the best of our plans and forms by the timeline is within 2% of the best candidate in "
        f"{len(judged) - len(beyond)} of {len(judged)} cases" + (f"; not in {', '.join(beyond)}" if beyond else "")
    )
    if longer:
        yield (
            f"- XLA's partitioner takes {statistics.median(longer):.0%} longer than the best of ours in the median of "
            f"{len(longer)} cases"
        )


def with_rivals(done: Sequence[Mapping[str, str]], ours: Sequence[str], enough: int) -> Iterator[str]:
    """What `autoshard simulate --rivals 5 --form all` chooses of the candidates: the quickest of those near ours.

    ours: the names of our plans. enough: candidates from which on a case is judged.
    """
    beyond, judged, compiled = [], [], []
    for case, mine in _judged(done, ours, enough):
        judged.append(case)
        names = near(mine, case, ours)
        asked = [r for r in mine if r["candidate"] in names and r["form"] in RUN]
        named = sorted({r["candidate"] for r in asked} - set(ours))
        chosen, best = (min(some, key=lambda r: float(r["expected_s"])) for some in (asked, mine))
        behind = float(chosen["expected_s"]) / float(best["expected_s"]) - 1
        first = min(asked, key=lambda r: (float(r["serial_s"]), RUN.index(r["form"])))
        saved = 1 - float(chosen["expected_s"]) / float(first["expected_s"])
        seconds = sum(float(r["compile_s"]) for r in asked if r["candidate"] not in ours)
        compiled += [seconds] if named else []
        if behind > 0.02:
            beyond.append(f"{case} ({behind:+.1%}: {best['candidate']} as {best['form']})")
        beside = f"rivals {', '.join(named)}, compiled in {seconds:.0f} s" if named else "no strategy is near"
        yield (
            f"- {case}: {chosen['candidate']} as {chosen['form']}, {saved:.1%} quicker than {first['candidate']} as "
            f"{first['form']}, {behind:+.1%} beside the best candidate; {beside}"
        )
    left = f"; not in {', '.join(beyond)}" if beyond else ""
    yield (
        f"- our choice with rivals is within 2% of the best candidate in {len(judged) - len(beyond)} of {len(judged)} "
        f"cases{left}; strategies are near in {len(compiled)} cases, "
        f"which took {min(compiled):.0f} to {max(compiled):.0f} s to compile"
    )
