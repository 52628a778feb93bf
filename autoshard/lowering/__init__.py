"""Lowering: a program and a schedule become one `shard_map` with exactly the planned collectives."""
