"""The page itself: a template, a style sheet and scripts of ours, and the data, in one file.

Plans may be by somebody else: nothing of them is ever markup. What the template writes is escaped by jinja2, the data
stands in the page as base64 of compressed JSON, and scripts make text of it only. The page's own policy forbids what
it does not need: other scripts than the one whose hash it names, and any connection.
"""

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from autoshard import __version__
from autoshard.report.amounts import bytes_text, seconds_text

SCRIPTS = (
    "dom", "amounts", "model", "colours", "table", "chart", "verdict", "steptime", "roofline", "timeline", "memory",
    "program", "parameters", "compare", "search", "inspector", "main",
)  # fmt: skip
"""Parts of the page's script, in the order in which they stand in it."""


def report_page(plans: Sequence[dict[str, Any]], *, summaries: Sequence[str]) -> str:
    """The page about plans, as HTML.

    plans: results of `page.content.plan_content`. summaries: one text for each plan, for readers without scripts.
    """
    script = '"use strict";\n(() => {\n' + "\n".join(_static(f"{name}.js") for name in SCRIPTS) + "\n})();"
    return rendered(
        "page.html.j2",
        plans=plans,
        summaries=summaries,
        style=_safe(_static("page.css")),
        script=_safe(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        data=packed({"plans": list(plans)}),
        version=__version__,
    )


def rendered(template: str, **words: Any) -> str:
    """A template of ours filled with texts that may be anybody's: all of them are escaped."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"bytes_text": bytes_text, "seconds_text": seconds_text}
    return environment.from_string(_static(template)).render(**words)


def packed(data: Any) -> str:
    """Data as base64 of gzipped JSON; the same data give the same text.

    >>> packed({"a": [1]})[:8]
    'H4sIAAAA'
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # lone surrogates, as names of files may have, cannot be written as UTF-8
    return base64.b64encode(gzip.compress(text.encode("utf-8", "backslashreplace"), 9, mtime=0)).decode()


def _static(name: str) -> str:
    return (files("autoshard.report.page") / "static" / name).read_text("utf-8")


def _safe(text: str) -> Any:
    """A text of our own, marked so that it is not escaped."""
    from markupsafe import Markup

    assert "</script" not in text and "</style" not in text
    return Markup(text)
