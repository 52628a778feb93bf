"""Questions about a named model alone: its counts, its memory, and a step of generating text.

Sources: How To Scale Your Model, chapters 4 (counts, key/value caches), 5 and 6 (training memory), 7 and 8 (serving).
"""

from dataclasses import asdict, dataclass
from typing import Any

from autoshard.costmodels.errors import ProfileError
from autoshard.costmodels.least_traffic import half_of_a_sum
from autoshard.costmodels.load import load_profile
from autoshard.costmodels.models import ModelCard, load_model
from autoshard.costmodels.place import place_mesh
from autoshard.costmodels.profile import Profile
from autoshard.costmodels.questions import dtype_bytes
from autoshard.costmodels.strategies import MOST_TOKENS


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """Counts of a model; FLOP are those of matmuls (a multiply-add is 2), bytes those of the whole model."""

    model: str
    params: int
    active_params: int  # those that take part in the work on one token
    attention_params: int
    mlp_params: int
    embedding_params: int
    seq: int | None
    forward_flops_per_token: float
    train_flops_per_token: float  # attention in full, as most published utilisations count it
    train_flops_per_token_causal: float  # half of the attention
    attention_share: float  # of the training FLOP
    weight_bytes: float
    optimizer_bytes: float  # two float32 moments
    training_bytes: float  # both
    kv_bytes_per_token: float
    kv_bytes_per_sequence: float | None

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data, for ``--json``."""
        return asdict(self)


def kv_bytes_per_token(card: ModelCard, bytes_: float) -> float:
    """Keys and values of one token in all layers, ``2 L K H`` elements; latent attention keeps its compressed rows."""
    return card.layers * card.kv_numbers * bytes_


def ask_model(
    model: str, *, seq: int | None = None, dtype: str = "bfloat16", kv_dtype: str | None = None
) -> ModelAnswer:
    """Counts and sizes of a model (a name, or the path of a card in YAML).

    >>> answer = ask_model("llama3_70b", kv_dtype="int8")
    >>> answer.params, answer.kv_bytes_per_token
    (70552387584, 163840.0)
    """
    card = load_model(model)
    length = _at_least_one("seq", seq) if seq is not None else card.train_seq
    train = card.train_flops_per_token(length or 0)
    weights = card.params() * dtype_bytes(dtype)
    kept = kv_bytes_per_token(card, dtype_bytes(kv_dtype or dtype))
    return ModelAnswer(
        model=model,
        params=card.params(),
        active_params=card.params(active=True),
        attention_params=card.layers * card.attention_params_per_layer,
        mlp_params=card.mlp_params(),
        embedding_params=card.embedding_params,
        seq=length,
        forward_flops_per_token=train / 3,
        train_flops_per_token=train,
        train_flops_per_token_causal=card.train_flops_per_token(length or 0, causal=True),
        attention_share=1 - card.train_flops_per_token(0) / train,
        weight_bytes=weights,
        optimizer_bytes=8.0 * card.params(),
        training_bytes=weights + 8.0 * card.params(),
        kv_bytes_per_token=kept,
        kv_bytes_per_sequence=kv_bytes_per_sequence(card, length, dtype_bytes(kv_dtype or dtype)) if length else None,
    )


def kv_bytes_per_sequence(card: ModelCard, context: int, bytes_: float) -> float:
    """Keys and values of one sequence: layers with a window keep the tokens that it reaches."""
    kept = card.layers * context
    if card.window is not None:
        kept -= card.local_layers * max(0, context - card.window)
    return kv_bytes_per_token(card, bytes_) / card.layers * kept


@dataclass(frozen=True, slots=True)
class InferenceAnswer:
    """A step that generates one token for each sequence of a batch; a copy of the weights has whole sequences.

    Everything of a copy is cut evenly over its `tensor` devices. What a device holds, and seconds, are those of the
    copy that has most sequences.
    """

    model: str
    hardware: str
    devices: int
    batch: int
    context: int
    tensor: int  # devices that share a copy of the weights
    least_seconds: float  # nothing can beat it: the busiest of memory, matrix unit and links
    estimate_seconds: float  # of one step: the book's figure, then the collectives; the work at its peak
    communication_s: float  # activations of tensor parallelism, as they are measured
    bound: str  # "memory", "compute" or "communication": which of them the estimate has most of
    tokens_per_s: float  # by the estimate
    tokens_per_s_per_device: float
    book_seconds: float  # without collectives: caches from memory, then the larger of work and weights from memory
    book_bound: str  # "memory" or "compute": which of the two the weights' part is
    book_tokens_per_s: float
    book_tokens_per_s_per_device: float
    attention_s: float  # reading the caches
    weights_s: float  # reading the weights; of experts those that some token of the batch goes to
    work_s: float  # the matmuls
    weight_bytes: float
    kv_bytes: float
    bytes_per_device: float
    usable_bytes: float  # of a device's memory, what the runtime leaves to programs; all of it where that is not known
    fits: bool  # weights and caches in the usable bytes; activations are small beside them
    least_devices: int  # fewest devices that hold all caches and one copy of the weights
    largest_batch: int  # largest batch whose caches fit beside the weights
    critical_batch: float  # batch from which on the matmuls are compute bound: `work_s` is `weights_s` there
    prefill_seconds: float  # one sequence of that context on the devices of a copy, at the peak rate

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data, for ``--json``."""
        return asdict(self)


def ask_inference(
    model: str,
    devices: int,
    hardware: str | Profile,
    *,
    batch: int = 1,
    context: int | None = None,
    tensor: int | None = None,
    dtype: str = "bfloat16",
    weight_dtype: str | None = None,
    kv_dtype: str | None = None,
) -> InferenceAnswer:
    """The time of one step of generation; `dtype` is that of the matmuls, weights and caches may be narrower.

    tensor: devices that share a copy of the weights, all of them if not given; the others have copies of their own and
    a part of the batch. Per layer and block (attention, MLP) they gather and scatter the activations of their part.

    >>> answer = ask_inference("llama3_70b", 8, "tpu_v5e", batch=32, context=8192, weight_dtype="int8", kv_dtype="int8")
    >>> round(answer.book_seconds, 4), answer.book_bound  # the book's 17 ms, chapter 8
    (0.0174, 'memory')
    """
    card = load_model(model)
    profile = hardware if isinstance(hardware, Profile) else load_profile(hardware)
    _at_least_one("devices", devices)
    _at_least_one("batch", batch)
    length = _at_least_one("context", context) if context is not None else card.train_seq
    if length is None:
        raise ProfileError("this model has no training context of its own; give the context length")
    group = devices if tensor is None else _at_least_one("tensor", tensor)
    if devices % group:
        raise ProfileError(f"tensor={group} does not divide the {devices} devices")
    copies = devices // group
    peak, rate = profile.matmul_flops_per_s(dtype), profile.memory.bandwidth.value
    width = dtype_bytes(weight_dtype or dtype)
    weights = card.params() * width
    cache = kv_bytes_per_sequence(card, length, dtype_bytes(kv_dtype or dtype))
    active = card.matmul_params
    mine = -(-batch // copies)  # sequences of the copy that has most
    attention = mine * cache / (group * rate)
    loaded = card.read_params(mine) * width / (group * rate)
    work = 2 * mine * active / (group * peak)
    book = attention + max(loaded, work)
    sent, least_sent = _activations_s(profile, card, copies, group, mine * card.d_model * dtype_bytes(dtype))
    room, held = profile.memory.usable_bytes, (weights + mine * cache) / group
    return InferenceAnswer(
        model=model,
        hardware=profile.name,
        devices=devices,
        batch=batch,
        context=length,
        tensor=group,
        least_seconds=max(attention + loaded, work, least_sent),
        estimate_seconds=book + sent,
        communication_s=sent,
        bound=_bound(attention, loaded, work, sent),
        tokens_per_s=batch / (book + sent),
        tokens_per_s_per_device=batch / (book + sent) / devices,
        book_seconds=book,
        book_bound="compute" if work > loaded else "memory",
        book_tokens_per_s=batch / book,
        book_tokens_per_s_per_device=batch / book / devices,
        attention_s=attention,
        weights_s=loaded,
        work_s=work,
        weight_bytes=weights * copies,
        kv_bytes=batch * cache,
        bytes_per_device=held,
        usable_bytes=room,
        fits=held <= room,
        least_devices=int(-(-(weights + batch * cache) // room)),
        largest_batch=copies * max(0, int((group * room - weights) // cache)),
        critical_batch=copies * _critical_sequences(card, width * peak / (2 * rate)),
        prefill_seconds=length * card.least_train_flops_per_token(length) / 3 / (group * peak),
    )


def _critical_sequences(card: ModelCard, reuse: float) -> float:
    """Sequences of a copy at which its work takes as long as reading its weights: those with
    ``tokens * active = reuse * read(tokens)``.

    reuse: how many tokens a weight has to meet. What is read rises ever slower with tokens, so there is one such
    number, and steps from above come down to it.
    """
    tokens = reuse * card.params() / card.matmul_params
    while (less := reuse * card.read_params(tokens) / card.matmul_params) < tokens * (1 - 1e-12):
        tokens = less
    return tokens


def _bound(attention: float, loaded: float, work: float, sent: float) -> str:
    """What a step spends most of its seconds on; of weights and work the larger one counts, the other is hidden."""
    parts = {"memory": attention, "compute": 0.0, "communication": sent}
    parts["compute" if work > loaded else "memory"] += max(loaded, work)
    return max(parts, key=lambda name: parts[name])


def _activations_s(
    profile: Profile, card: ModelCard, copies: int, group: int, activations: float
) -> tuple[float, float]:
    """Seconds of a step's collectives over `group` devices: as they are measured, and at least."""
    if group == 1:
        return 0.0, 0.0
    machine = place_mesh(profile, {"data": copies, "tensor": group})
    parts, often = machine.whole("tensor"), 2 * card.layers
    likely = sum(machine.likely_s(kind, activations, parts) for kind in ("all_gather", "reduce_scatter"))
    busy: dict[str, float] = {}
    for kind in ("all_gather", "reduce_scatter"):
        for link, per_byte in half_of_a_sum(machine, machine.link_seconds(kind, parts), parts).items():
            busy[link] = busy.get(link, 0.0) + per_byte * activations
    return often * likely, (often - 1) * max(busy.values())  # embeddings and logits could be whole on each device


def _at_least_one(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ProfileError(f"{name} is {value!r}; give a whole number from 1 on")
    if value > MOST_TOKENS:
        raise ProfileError(f"{name} is about 2**{value.bit_length()}; give a whole number from 1 to {MOST_TOKENS:g}")
    return value
