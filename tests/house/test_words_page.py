"""docs/words.md says where each word is at home: these places exist, and no word stands there twice."""

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "words.md").read_text()
ROWS = [line.split("|")[1:-1] for line in TEXT.splitlines() if line.startswith("| ") and not line.startswith("| ---")]


@pytest.mark.parametrize("place", sorted({p for row in ROWS for p in re.findall(r"`([a-z_/]+(?:\.py|/))`", row[-1])}))
def test_a_word_is_at_home_in_a_file_that_exists(place):
    assert (ROOT / "autoshard" / place).exists()


def test_every_word_has_one_meaning():
    words = Counter(word.strip() for row in ROWS for word in row[0].split(",") if row[0].strip() != "word")
    assert [word for word, count in words.items() if count > 1] == []
