"""Costs: seconds and bytes of ops and reshards on a machine (times come from `costmodels`)."""
