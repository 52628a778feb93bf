"""A hook of mkdocs: links of the pages to files outside of docs/ lead to the repository, or are plain text."""

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+([^)\s#]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Replace links such as ``../experiments/x/README.md``, which the site does not have.

    Links to pages of the site that begin with ``../`` (from a folder of pages) stay as they are.
    """
    url = (config.get("repo_url") or "").rstrip("/")

    def replaced(found: re.Match[str]) -> str:
        text, path = found[1], found[2]
        if files.get_file_from_path(path) is not None:
            return found[0]
        return f"[{text}]({url}/blob/main/{path})" if url else f"{text} (`{path}`)"

    return _OUTSIDE.sub(replaced, markdown)
