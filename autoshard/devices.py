"""Simulated devices: one host process pretends to have as many devices as the mesh needs."""

import os
import re
import sys
from collections.abc import MutableMapping

MAX_SIMULATED_DEVICES = 64
"""Most devices that are simulated on one host to run a program."""

_FLAG = "--xla_force_host_platform_device_count"


def simulate_devices(count: int, environment: MutableMapping[str, str] = os.environ, *, exactly: bool = False) -> bool:
    """Have JAX see `count` CPU devices. Call it before JAX is imported. Returns whether JAX will see them.

    Plans for larger meshes are made without devices, so above the limit only the platform is chosen.
    Where JAX is already imported, its devices stay as they are. exactly: lower the number of devices too where the
    environment asks for more.
    """
    if environment is os.environ and "jax" in sys.modules:
        return False
    environment["JAX_PLATFORMS"] = "cpu"
    if count > MAX_SIMULATED_DEVICES:
        return False
    flags = environment.get("XLA_FLAGS", "")
    flag = re.search(rf"{_FLAG}=(\d+)", flags)
    if flag is None:
        environment["XLA_FLAGS"] = f"{flags} {_FLAG}={count}".strip()
    elif int(flag[1]) < count or exactly:
        environment["XLA_FLAGS"] = flags.replace(flag[0], f"{_FLAG}={count}")
    return True
