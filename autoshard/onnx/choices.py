"""Attributes that are one word of a few: schemas say so in prose alone, so that the words stand here."""

from typing import Any

_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
_DIRECTIONS = ("forward", "reverse", "bidirectional")
_SCATTERED = ("none", "add", "mul", "max", "min")
_LOSSES = ("none", "sum", "mean")
_WAYS_TO_PLACE = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)  # fmt: skip

CHOICES: dict[tuple[str, str], tuple[str, ...]] = {
    **{(op, "auto_pad"): _PADS for op in ("Conv", "ConvInteger", "ConvTranspose", "QLinearConv")},
    **{(op, "auto_pad"): _PADS for op in ("AveragePool", "LpPool", "MaxPool")},
    **{(op, "direction"): _DIRECTIONS for op in ("GRU", "LSTM", "RNN")},
    **{(op, "reduction"): _SCATTERED for op in ("ScatterElements", "ScatterND")},
    **{(op, "reduction"): _LOSSES for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")},
    ("BitShift", "direction"): ("LEFT", "RIGHT"),
    ("Cast", "round_mode"): ("up", "down", "nearest"),
    ("CastLike", "round_mode"): ("up", "down", "nearest"),
    ("DepthToSpace", "mode"): ("DCR", "CRD"),
    ("Gelu", "approximate"): ("none", "tanh"),
    ("GridSample", "mode"): ("linear", "nearest", "cubic", "bilinear", "bicubic"),
    ("GridSample", "padding_mode"): ("zeros", "border", "reflection"),
    ("Pad", "mode"): ("constant", "reflect", "edge", "wrap"),
    ("Resize", "coordinate_transformation_mode"): _WAYS_TO_PLACE,
    ("Resize", "keep_aspect_ratio_policy"): ("stretch", "not_larger", "not_smaller"),
    ("Resize", "mode"): ("nearest", "linear", "cubic"),
    ("Resize", "nearest_mode"): ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    ("RoiAlign", "coordinate_transformation_mode"): ("half_pixel", "output_half_pixel"),
    ("RoiAlign", "mode"): ("avg", "max"),
    ("TensorScatter", "mode"): ("linear", "circular"),
    ("Upsample", "mode"): ("nearest", "linear", "bilinear"),
}
"""(op, attribute) -> the words that it may be, in any version of the op."""


def choice_fault(op: str, attribute: Any) -> str:
    """What is wrong with an attribute that is no word of those that it may be; empty where that is nothing."""
    choices = CHOICES.get((op, attribute.name))
    if choices is None or attribute.ref_attr_name:
        return ""
    word = attribute.s.decode(errors="replace")
    return "" if word in choices else f"attribute '{attribute.name}' is {word!r}; it may be {', '.join(choices)}"
