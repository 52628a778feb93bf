"""docs/model.md says where each part of the model is implemented: these places exist."""

import re
from pathlib import Path


def test_the_places_that_the_model_page_names_exist(repository: Path) -> None:
    text = (repository / "docs" / "model.md").read_text()
    named = set(re.findall(r"\b((?:[a-z_]+/)+[a-z_]+\.(?:py|md))\b|`((?:[a-z_]+/)+)`", text))
    places = {one or other for one, other in named} - {"tests/house/test_model_page.py"}
    assert len(places) > 15
    missing = [p for p in sorted(places) if not (repository / "autoshard" / p).exists()]
    assert missing == []
