"""Make the pictures of report.md from a page: python docs/make_report_pictures.py REPORT.html

Needs Chromium, as the tests of pages do.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "report"))

UNFOLD = """(() => {
  const input = document.querySelector('#search');
  input.value = 'w_up';
  input.dispatchEvent(new Event('input'));
  [...document.querySelectorAll('#program .row')].find((row) => row.textContent.includes('dot_general')).click();
  document.querySelector('#memory').scrollIntoView();
})()"""


def main(page: Path) -> None:
    from browser import Browser

    with Browser() as chromium:
        chromium.resize(1500, 1060)
        for theme, what in (("light", "1"), ("dark", UNFOLD)):
            chromium.prefer(theme)
            chromium.open(page)
            chromium.ask(what)
            chromium.ask("new Promise((done) => setTimeout(done, 500))")  # until charts have found their size
            (ROOT / "docs" / f"report_{theme}.png").write_bytes(chromium.picture())


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
