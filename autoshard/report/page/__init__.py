"""One page about one or several plans: a file with everything in it, for any browser and without a network."""

from autoshard.report.page.html import report_page

__all__ = ["report_page"]
