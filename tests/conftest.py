"""What every test stands on: eight simulated devices on the CPU, and hypothesis without chance or clocks."""

import gc
import importlib.util
import os
import sys
from importlib.metadata import version
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent

# Before jax is imported anywhere: eight CPU devices stand in for a pod.
# Most of what the suite does is compiling small programs for them, which run sooner as they are than optimized;
# XLA's older way to emit fused loops takes a third of the time. Newer releases do not have it, and end where a flag is
# not one of theirs.
_flags = {"--xla_force_host_platform_device_count": "8", "--xla_backend_optimization_level": "0"}
if version("jaxlib").startswith("0.10."):
    _flags["--xla_cpu_use_fusion_emitters"] = "false"
for _flag, _value in _flags.items():
    if _flag not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_flag}={_value}".strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["AUTOSHARD_PLANS"] = ""  # no plan of a test is kept, and none is found

# The installed package is what is tested; without an installation, the working tree.
if importlib.util.find_spec("autoshard") is None:
    sys.path.insert(0, str(REPOSITORY))

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

settings.register_profile(
    "autoshard",
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=False,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("autoshard")


MANY = 2000
"""Of so many tests some need every hot loop of the solver."""


def pytest_collection_finish(session: pytest.Session) -> None:
    """What modules and tests consist of stays to the end: no search for garbage has to go through it again. Workers
    share the compilation of the solver's hot loops, which takes each a minute."""
    gc.collect()
    gc.freeze()
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker and len(session.items) > MANY:
        from hot_loops import compile_part

        compile_part(int(worker.removeprefix("gw")))


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the working tree: configs/, docs/ and README.md are beneath it."""
    return REPOSITORY
