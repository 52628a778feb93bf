"""Programs that others published, as they are: nothing in them knows of this project. Each file is about one package.

The steps of a training or decoding loop around them are ours, as a user writes them.
"""

from programs import (  # noqa: F401
    diffusion,
    equinox_models,
    graphs,
    haiku_models,
    hugging_face,
    keras_models,
    linen_models,
    maxtext_models,
    nnx_models,
    optimizers,
    probability,
    recurrent_gemma,
    tunix_models,
)
from programs.registry import PROGRAMS, Listed, Made

__all__ = ["PROGRAMS", "Listed", "Made"]
