"""Options of the models: frozen, checked when made, free of JAX so that a wrong config fails at once."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from autoshard.errors import InputError

DTYPES = ("float32", "bfloat16", "float16")
ACTIVATIONS = ("silu", "gelu", "relu", "tanh")
REMAT_POLICIES = ("none", "full", "dots")
Check = Callable[[str, Any], Any]


def listing(wanted: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown name: a guess, then the choices."""
    known = list(known)
    near = difflib.get_close_matches(wanted, known, n=1)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return f"{guess}Choices: {', '.join(known)}"


# ------------------------------------------------------------------ checks of one option each


_LARGEST = 2**53


def _int_at_least(least: int) -> Check:
    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"option {name} must be a whole number of at least {least}, found {value!r}")
        if value > _LARGEST:
            raise InputError(f"option {name} is {value!r}; no more than 2^53 can be planned")
        return value

    return check


def _number(least: float, *, exclusive: bool = False, below: float = float("inf")) -> Check:
    def check(name: str, value: Any) -> float:
        good = isinstance(value, (int, float)) and not isinstance(value, bool)
        good = good and (value > least if exclusive else value >= least) and value < below
        if not good:
            bound = f"{'above' if exclusive else 'at least'} {least:g}" + (
                f" and below {below:g}" if below < float("inf") else ""
            )
            raise InputError(f"option {name} must be a number {bound}, found {value!r}")
        return float(value)

    return check


def _choice(*choices: str) -> Check:
    def check(name: str, value: Any) -> str:
        if value not in choices:
            raise InputError(f"option {name} cannot be {value!r}; {listing(str(value), choices)}")
        return value

    return check


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"option {name} must be true or false, found {value!r}")
    return value


def _remat(name: str, value: Any) -> str | tuple[str, ...]:
    """`True` is "full", `False` is "none"; a list names the tags whose values are kept."""
    if isinstance(value, bool):
        return "full" if value else "none"
    if isinstance(value, (list, tuple)) and value and all(isinstance(tag, str) for tag in value):
        return tuple(value)
    if value not in REMAT_POLICIES:
        raise InputError(
            f"option {name} cannot be {value!r}; give true, false, one of {', '.join(REMAT_POLICIES)}, "
            'or a list of the tags to keep, such as ["attn_out"]'
        )
    return value


def _int_list(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)) or not value:
        raise InputError(f"option {name} must be a list of positive whole numbers, found {value!r}")
    return tuple(_int_at_least(1)(name, item) for item in value)


def _option(default: Any, check: Check, *, optional: bool = False) -> Any:
    """A dataclass field with its check; `optional` lets `None` through (derived later, or feature off)."""
    return field(default=default, metadata={"check": check, "optional": optional})


def _size(default: int | None) -> Any:
    return _option(default, _int_at_least(1), optional=default is None)


# ------------------------------------------------------------------ options of each model


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of every model: batch size, AdamW (decoupled weight decay), and dtypes.

    Parameters are stored in `param_dtype`, matmuls run in `compute_dtype`; Adam's moments and the
    update are float32 whatever the parameters are. `clip_norm` clips gradients by global norm.
    """

    model: ClassVar[str]

    batch: int = _size(8)
    param_dtype: str = _option("float32", _choice(*DTYPES))
    compute_dtype: str = _option("float32", _choice(*DTYPES))
    learning_rate: float = _option(3e-3, _number(0, exclusive=True))
    weight_decay: float = _option(0.1, _number(0))
    beta1: float = _option(0.9, _number(0, below=1))
    beta2: float = _option(0.95, _number(0, below=1))
    epsilon: float = _option(1e-8, _number(0, exclusive=True))
    clip_norm: float | None = _option(None, _number(0, exclusive=True), optional=True)

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is None and item.metadata["optional"]:
                continue
            object.__setattr__(self, item.name, item.metadata["check"](item.name, value))
        self._resolve()

    def _resolve(self) -> None:
        """Fill derived options and check options against each other."""

    def _default(self, name: str, value: Any) -> None:
        if getattr(self, name) is None:
            object.__setattr__(self, name, value)


@dataclass(frozen=True, kw_only=True)
class MlpOptions(TrainingOptions):
    """Fully connected layers: `inputs` features, `layers - 1` times `hidden`, then `outputs`."""

    model = "mlp"

    inputs: int = _size(32)
    hidden: int = _size(64)
    outputs: int = _size(16)
    layers: int = _size(3)
    bias: bool = _option(True, _flag)
    activation: str = _option("relu", _choice(*ACTIVATIONS))
    task: str = _option("classification", _choice("classification", "regression"))
    remat: str | tuple[str, ...] = _option("none", _remat)


@dataclass(frozen=True, kw_only=True)
class TransformerOptions(TrainingOptions):
    """A decoder: pre-norm attention and MLP blocks, causal, next-token cross-entropy.

    `local_per_global` counts the sliding-window layers before each full one (Gemma 2: 1, Gemma 3: 5);
    with 0 every layer has the window. `max_seq` is the length of the table of learned positions.
    `attention_block` computes attention for that many query positions at a time (recomputed in the
    backward pass), so that the scores of a whole sequence never exist at once. `attention_ring` computes it
    in that many parts of the sequence, which keys and values go round. With `attention_ring_order: zigzag` tokens are
    put in an order in which all parts have the same causal work, and half of the scores are computed.
    """

    model = "transformer"

    seq: int = _size(32)
    layers: int = _size(2)
    d_model: int = _size(64)
    d_ff: int = _size(128)
    heads: int = _size(4)
    kv_heads: int = _size(None)
    head_dim: int = _size(None)
    vocab: int = _size(256)
    gated_mlp: bool = _option(True, _flag)
    activation: str = _option(None, _choice(*ACTIVATIONS), optional=True)
    tied_embeddings: bool = _option(False, _flag)
    positions: str = _option("rope", _choice("rope", "learned", "none"))
    rope_base: float = _option(10_000.0, _number(1, exclusive=True))
    max_seq: int = _size(None)
    norm: str = _option("rms", _choice("rms", "layer"))
    bias: bool = _option(False, _flag)
    qkv_bias: bool = _option(False, _flag)
    qk_norm: bool = _option(False, _flag)
    parallel_block: bool = _option(False, _flag)
    sliding_window: int | None = _size(None)
    local_per_global: int = _option(0, _int_at_least(0))
    attention_block: int | None = _size(None)
    attention_ring: int | None = _size(None)
    attention_ring_order: str = _option("given", _choice("given", "zigzag"))
    scan: bool = _option(True, _flag)
    remat: str | tuple[str, ...] = _option("full", _remat)

    def _resolve(self) -> None:
        self._default("kv_heads", self.heads)
        if self.heads % self.kv_heads:
            raise InputError(
                f"heads={self.heads} is not a multiple of kv_heads={self.kv_heads}; each key-value head "
                "serves the same number of query heads"
            )
        if self.head_dim is None and self.d_model % self.heads:
            raise InputError(
                f"d_model={self.d_model} is not a multiple of heads={self.heads}; give head_dim, or change one"
            )
        self._default("head_dim", self.d_model // self.heads)
        self._default("activation", "silu" if self.gated_mlp else "gelu")
        self._default("max_seq", self.seq)
        if self.positions == "rope" and self.head_dim % 2:
            raise InputError(f"RoPE rotates pairs, so head_dim={self.head_dim} must be even (or positions='learned')")
        if self.positions == "learned" and self.seq > self.max_seq:
            raise InputError(f"seq={self.seq} is longer than the {self.max_seq} learned positions; raise max_seq")
        if self.local_per_global and self.sliding_window is None:
            raise InputError(f"local_per_global={self.local_per_global} needs sliding_window, the length it sees")
        for name in ("attention_block", "attention_ring"):
            if getattr(self, name) is not None and self.seq % getattr(self, name):
                raise InputError(f"seq={self.seq} is not a multiple of {name}={getattr(self, name)}")
        if self.attention_ring is not None and self.attention_block is not None:
            raise InputError(
                f"attention_block={self.attention_block} and attention_ring={self.attention_ring} are two ways to "
                "compute attention in parts; leave one out"
            )
        if self.attention_ring_order == "zigzag" and self.attention_ring is None:
            raise InputError("attention_ring_order='zigzag' needs attention_ring, the number of parts")
        parts = self.zigzag_parts
        if parts is not None and (parts == 1 or self.seq % (2 * parts)):
            raise InputError(
                f"attention_ring_order='zigzag' needs an attention_ring of two parts or more, and seq={self.seq} to be "
                f"a multiple of twice as many, found {parts}"
            )

    @property
    def zigzag_parts(self) -> int | None:
        """The parts of the sequence where tokens are in the order of `autoshard.models.zigzag`, else None."""
        return self.attention_ring if self.attention_ring_order == "zigzag" else None


@dataclass(frozen=True, kw_only=True)
class MoeOptions(TransformerOptions):
    """A decoder whose MLPs are mixtures of experts; `d_ff` is the hidden size of one expert.

    `dispatch="einsum"` (GShard): every sequence sends at most `capacity` tokens to an expert; further tokens skip the
    expert. `dispatch="ragged"`: tokens are sorted by expert, `lax.ragged_dot` multiplies them, and none is dropped.
    """

    model = "moe"

    experts: int = _size(4)
    experts_per_token: int = _size(2)
    capacity_factor: float = _option(1.25, _number(0, exclusive=True))
    dispatch: str = _option("einsum", _choice("einsum", "ragged"))
    router_loss: float = _option(0.01, _number(0))

    def _resolve(self) -> None:
        super()._resolve()
        if self.experts_per_token > self.experts:
            raise InputError(f"experts_per_token={self.experts_per_token} exceeds experts={self.experts}")
        if self.bias:
            raise InputError("bias=True is not available for model 'moe'; its experts have no biases")

    @property
    def capacity(self) -> int:
        """Tokens of one sequence that one expert accepts, at most `seq` (a token names an expert once)."""
        even_share = self.seq * self.experts_per_token * self.capacity_factor / self.experts
        return min(self.seq, max(1, -int(-even_share // 1)))


@dataclass(frozen=True, kw_only=True)
class ResnetOptions(TrainingOptions):
    """A residual conv net (NHWC). `stages` counts the blocks of each stage; widths double from `width`.

    `bottleneck` blocks are 1x1, 3x3, 1x1 with four times the width at the end; the others 3x3, 3x3.
    `stem="large"` is 7x7 stride 2 and a 3x3 stride 2 max pool, "small" is 3x3 stride 1 and a 2x2 max pool.
    `groups` and `group_width` are those of ResNeXt.
    """

    model = "resnet"

    stages: tuple[int, ...] = _option((1, 1), _int_list)
    width: int = _size(8)
    bottleneck: bool = _option(True, _flag)
    groups: int = _size(1)
    group_width: int = _size(None)
    image: int = _size(16)
    channels: int = _size(3)
    classes: int = _size(10)
    stem: str = _option("small", _choice("small", "large"))
    norm_momentum: float = _option(0.9, _number(0, below=1))

    def _resolve(self) -> None:
        if not self.bottleneck and self.groups > 1:
            raise InputError(f"groups={self.groups} needs bottleneck blocks")
        if self.group_width is None and self.width % self.groups:
            raise InputError(f"width={self.width} is not a multiple of groups={self.groups}; give group_width")
        self._default("group_width", self.width // self.groups)
        if not self.bottleneck and self.group_width * self.groups != self.width:
            raise InputError("group_width needs bottleneck blocks")
        shrink = (4 if self.stem == "large" else 2) * 2 ** (len(self.stages) - 1)
        if self.image < shrink:
            raise InputError(f"image={self.image} is too small: the strides shrink it by {shrink}")


OPTIONS: Mapping[str, type[TrainingOptions]] = {
    cls.model: cls for cls in (MlpOptions, TransformerOptions, MoeOptions, ResnetOptions)
}


_OTHER_WORDS = {
    "batch": "batch_size per_device_batch_size global_batch_size",
    "seq": "seq_len seq_length sequence_length max_target_length context block_size",
    "layers": "num_layers n_layers n_layer num_decoder_layers num_hidden_layers base_num_decoder_layers depth",
    "d_model": "hidden_size emb_dim base_emb_dim embed_dim n_embd hidden",
    "hidden": "hidden_size d_ff",
    "d_ff": "intermediate_size mlp_dim base_mlp_dim ffn_dim",
    "heads": "num_heads n_heads n_head num_attention_heads base_num_query_heads",
    "kv_heads": "num_kv_heads n_kv_heads num_key_value_heads base_num_kv_heads",
    "vocab": "vocab_size",
    "experts": "num_experts num_local_experts n_experts",
    "experts_per_token": "num_experts_per_tok top_k",
    "learning_rate": "lr",
    "remat": "remat_policy recompute checkpoint",
    "scan": "scan_layers",
    "compute_dtype": "dtype",
    "param_dtype": "weight_dtype param_type",
}
"""Words of other libraries for options, by the option."""


def _meant(word: str, known: Sequence[str]) -> str:
    """The end of an error about an unknown option: what is meant by a word of other libraries, or the choices."""
    of_others = (option for option, words in _OTHER_WORDS.items() if option in known and word in words.split())
    option = next(of_others, None)
    return listing(word, known) if option is None else f"write {option!r}"


def make_options(model: str, given: Mapping[str, Any]) -> TrainingOptions:
    """The checked options of a model; unknown models and options are errors that list the choices."""
    if model not in OPTIONS:
        raise InputError(f"no model {model!r}; {listing(str(model), OPTIONS)}")
    cls = OPTIONS[model]
    known = [item.name for item in fields(cls)]
    for name in given:
        if name not in known:
            raise InputError(f"model {model!r} has no option {name!r}; {_meant(str(name), [*known, 'dims'])}")
    return cls(**given)
