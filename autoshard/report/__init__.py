"""Saying it: tables and texts for people, made from plain data."""

from autoshard.report.plan_tables import print_plan, print_run, summary

__all__ = ["print_plan", "print_run", "summary"]
