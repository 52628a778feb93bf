"""Reports: tables, texts, pages and exports about plans and runs, for people and for other tools."""

from autoshard.report.plan_tables import print_plan, print_run, summary

__all__ = ["print_plan", "print_run", "summary"]
