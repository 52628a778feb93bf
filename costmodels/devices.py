"""The packaged profile of a device, by JAX's name for it."""

import re

from autoshard.costmodels.errors import ProfileError

_KNOWN = {
    "TPU v3": "tpu_v3", "TPU v4": "tpu_v4", "TPU v5 lite": "tpu_v5e", "TPU v5e": "tpu_v5e", "TPU v5": "tpu_v5p",
    "TPU v5p": "tpu_v5p", "TPU v6 lite": "tpu_v6e", "TPU v6e": "tpu_v6e", "TPU7x": "tpu_v7x", "V100": "v100",
    "A100-SXM4-40GB": "a100_40", "A100-PCIE-40GB": "a100_40",
    "A100": "a100_80", "H100": "h100", "H200": "h200", "GB200": "gb200_nvl72",
    "B200": "b200", "MI300X": "mi300x", "cpu": "cpu_sim",
}  # fmt: skip
"""JAX's name for a device, or whole words of the name (the longest that fits count) -> the profile."""


def profile_of_device(device_kind: str) -> str:
    """The packaged profile of a device by JAX's name for it; `ProfileError` where there is none.

    >>> profile_of_device("NVIDIA H100 80GB HBM3"), profile_of_device("TPU v5 lite")
    ('h100', 'tpu_v5e')
    """
    fits = [known for known in _KNOWN if re.search(rf"(?<!\w){re.escape(known)}(?!\w)", device_kind, re.IGNORECASE)]
    if not fits:
        raise ProfileError(f"no profile is known for devices of kind {device_kind!r}; name the machine")
    return _KNOWN[max(fits, key=len)]
