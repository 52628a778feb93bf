"""Running a plan: in this process, or as a group of processes that each hold their own shards.

`run_group` starts a local demonstration of many processes; on a pod every host runs `program.run` itself after
`jax.distributed.initialize`.
"""
