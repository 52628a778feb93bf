"""Which rule an operator has, by domain and type."""

from autoshard.onnx.rules import contractions, elementwise, layers, structure
from autoshard.onnx.rules.rule import Call, OpRule, RuleFunction

_UNARY_0007 = """
    Abs Acos Acosh Asin Asinh Atan Atanh Cast Ceil Cos Cosh Dropout Erf Exp Floor Identity IsInf IsNaN Log Neg Not
    Reciprocal Round Sigmoid Sign Sin Sinh Tan Tanh BitwiseNot
"""
_UNARY = """
    BitCast Celu Clip Elu Gelu HardSigmoid HardSwish LeakyRelu Mish Relu Selu Shrink Softplus Softsign Sqrt Swish
    ThresholdedRelu
"""
_N_ARY_0007 = """
    Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Equal Greater Less Max Min Mod Mul Or Pow Sub Sum Where Xor
"""
_N_ARY = "Div GreaterOrEqual LessOrEqual Mean PRelu"
_SILENT = """
    ConcatFromSequence SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength
    SequenceMap SplitToSequence Optional OptionalGetElement OptionalHasElement If Loop Scan GRU LSTM RNN DFT STFT
    MelWeightMatrix TfIdfVectorizer AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool MaxRoiPool
    Conv ConvInteger ConvTranspose DeformConv InstanceNormalization LpNormalization LayerNormalization
"""
SILENT_0007 = frozenset(_SILENT.split())
"""Operators that proposal 0007 calls not supported: whatever is cut, the answer is "no rule", never "invalid"."""

LISTED_0007 = frozenset(
    [*_UNARY_0007.split(), *_N_ARY_0007.split(), *elementwise.COMBINERS, "MatMul", "Gemm", "MatMulInteger"]
    + ["QLinearMatMul", "Einsum", "ConstantOfShape"]
)
"""Operators whose rules are those of the proposal, as corrected where it lists one in the wrong place."""

_RULES: dict[str, RuleFunction] = {
    **dict.fromkeys([*_UNARY_0007.split(), *_UNARY.split()], elementwise.unary),
    **dict.fromkeys([*_N_ARY_0007.split(), *_N_ARY.split()], elementwise.n_ary),
    **dict.fromkeys(elementwise.COMBINERS, elementwise.reduction),
    **dict.fromkeys(["ArgMax", "ArgMin"], elementwise.arg_reduction),
    **dict.fromkeys(["QuantizeLinear", "DequantizeLinear"], elementwise.quantize),
    **dict.fromkeys(["Conv", "ConvInteger", "ConvTranspose", "QLinearConv"], contractions.convolution),
    **dict.fromkeys(["AveragePool", "LpPool", "MaxPool"], layers.pool),
    **dict.fromkeys(["GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"], layers.global_pool),
    **dict.fromkeys(["MaxRoiPool", "RoiAlign"], layers.region_pool),
    **dict.fromkeys(["Softmax", "LogSoftmax", "Hardmax"], layers.softmax),
    **dict.fromkeys(["LayerNormalization", "RMSNormalization"], layers.layer_normalization),
    **dict.fromkeys(["Reshape", "Flatten"], structure.reshape),
    **dict.fromkeys(["Resize", "Upsample"], structure.resize),
    **dict.fromkeys(["ScatterElements", "Scatter"], structure.scatter_elements),
    **dict.fromkeys(["Constant", "ConstantOfShape"], structure.made),
    **dict.fromkeys(["Shape", "Size"], structure.shape_of),
    **dict.fromkeys(["CumSum", "CumProd"], structure.cumulative),
    **dict.fromkeys(["DepthToSpace", "SpaceToDepth"], structure.leading_pass(1)),
    "Attention": layers.attention,
    "BatchNormalization": layers.batch_normalization,
    "CastLike": elementwise.cast_like,
    "Concat": structure.concat,
    "DeformConv": structure.deformed,
    "Det": structure.determinant,
    "Einsum": contractions.einsum,
    "Expand": structure.expand,
    "Gather": structure.gather,
    "GatherElements": structure.gather_elements,
    "GatherND": structure.gather_nd,
    "Gemm": contractions.gemm,
    "GridSample": layers.grid_sample,
    "GroupNormalization": layers.group_normalization,
    "InstanceNormalization": layers.instance_normalization,
    "LRN": layers.local_response,
    "LpNormalization": structure.one_axis_whole(-1),
    "MatMul": contractions.matmul,
    "MatMulInteger": contractions.matmul_integer,
    "MeanVarianceNormalization": layers.mean_variance_normalization,
    "OneHot": structure.one_hot,
    "Pad": structure.pad,
    "QLinearMatMul": contractions.qlinear_matmul,
    "ReverseSequence": structure.reverse_sequence,
    "RotaryEmbedding": layers.rotary,
    "ScatterND": structure.scatter_nd,
    "Slice": structure.slices,
    "Split": structure.split,
    "Squeeze": structure.squeeze,
    "TfIdfVectorizer": structure.leading_pass(0, last=1),
    "Tile": structure.tile,
    "TopK": structure.one_axis_whole(-1),
    "Transpose": structure.transpose,
    "Trilu": structure.leading_pass(0, last=2),
    "Unsqueeze": structure.unsqueeze,
}

_RULES_ML: dict[str, RuleFunction] = {"TreeEnsemble": structure.leading_pass(0, last=1)}
_BY_DOMAIN = {"": _RULES, "ai.onnx": _RULES, "ai.onnx.ml": _RULES_ML}

DESCRIBED = frozenset(_RULES)
"""Operators of the default domain that have a rule."""


def rule_of(call: Call, domain: str = "") -> OpRule | None:
    """The rule of a node; None where nobody described its operator.

    Raises `RankUnknown` and `ShapesDisagree`.
    """
    maker = _BY_DOMAIN.get(domain, {}).get(call.op)
    return None if maker is None else maker(call)
