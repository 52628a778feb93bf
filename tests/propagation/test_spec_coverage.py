"""Every statement listed in docs/spec_coverage.md is named by a test, or listed there as not covered."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = ROOT / "docs" / "spec_coverage.md"
WIDEST = 3  # a longer range in a docstring says what a file is about, not what it checks
ID = re.compile(r"\bS(\d)\.(\d+)(?:\s*(?:to|-)\s*S\d\.(\d+))?")


def listed() -> list[str]:
    return re.findall(r"^- (S\d\.\d+) ", LIST.read_text(encoding="utf-8"), re.M)


def not_covered() -> list[str]:
    section = LIST.read_text(encoding="utf-8").split("## Not covered")[1].split("##")[0]
    return re.findall(r"S\d\.\d+", section)


def named() -> dict[str, list[str]]:
    """The test files that name each id."""
    found: dict[str, list[str]] = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for match in ID.finditer(file.read_text(encoding="utf-8")):
            first, last = int(match[2]), int(match[3] or match[2])
            for number in range(first, last + 1) if last - first < WIDEST else ():
                files = found.setdefault(f"S{match[1]}.{number}", [])
                name = str(file.relative_to(ROOT / "tests"))
                if name not in files:
                    files.append(name)
    return found


def test_every_statement_is_named_by_a_test_or_listed_as_not_covered() -> None:
    assert len(listed()) == len(set(listed())) == 224
    covered = named()
    assert [i for i in listed() if i not in covered and i not in not_covered()] == []
    assert [i for i in not_covered() if i in covered] == []


if __name__ == "__main__":
    for item in listed():
        print(item, ", ".join(named().get(item, ["-"])))
