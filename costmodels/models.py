"""Parameter and FLOP counts of transformers from their dimensions, and the dimensions of well-known models.

Counts hold attention, MLP, router, embeddings and learned positions; norms and biases are left out (well under 0.5%).
"""

from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from autoshard.costmodels.errors import ProfileError
from autoshard.costmodels.files import read_yaml

_CARDS = Path(__file__).parent / "model_cards.yaml"

Count = Annotated[int, Field(ge=1)]


class LatentAttention(BaseModel):
    """Ranks and head sizes of multi-head latent attention (DeepSeek-V3 report, arXiv 2412.19437)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    q_lora_rank: Count
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    v_head_dim: Count


class ModelCard(BaseModel):
    """Dimensions of a decoder transformer; with `experts`, its layers past the first `dense_layers` are mixtures."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layers: Count
    d_model: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    vocab: Annotated[int, Field(ge=0)]
    gated_mlp: bool
    tied_embeddings: bool
    train_seq: Count | None = None
    d_ff: Count | None = None
    d_ff_dense: Count | None = None
    d_ff_expert: Count | None = None
    experts: Annotated[int, Field(ge=0)] = 0
    experts_per_token: Annotated[int, Field(ge=0)] = 0
    shared_experts: Annotated[int, Field(ge=0)] = 0
    dense_layers: Annotated[int, Field(ge=0)] = 0
    mla: LatentAttention | None = None
    learned_positions: bool = False
    window: Count | None = None  # tokens that a layer with local attention looks back
    local_layers: Annotated[int, Field(ge=0)] = 0  # layers with local attention
    params_published: float | None = None
    params_active_published: float | None = None
    source: str

    @model_validator(mode="after")
    def _whole(self) -> "ModelCard":
        if self.experts and not (self.d_ff_expert and self.experts_per_token):
            raise ValueError("a mixture of experts needs d_ff_expert and experts_per_token")
        if (not self.experts and not self.d_ff) or (self.dense_layers and not self.d_ff_dense):
            raise ValueError("dense layers need d_ff (d_ff_dense beside experts)")
        if (self.window is None) != (self.local_layers == 0) or self.local_layers > self.layers:
            raise ValueError("local attention has a window and a number of local_layers, at most all of them")
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads is {self.kv_heads} beside heads {self.heads}; it must divide heads")
        if self.experts_per_token > self.experts:
            raise ValueError(
                f"experts_per_token is {self.experts_per_token} of {self.experts} experts; at most all of them"
            )
        if self.dense_layers > self.layers:
            raise ValueError(f"dense_layers is {self.dense_layers} of {self.layers} layers; at most all of them")
        return self

    @property
    def mlp_matrices(self) -> int:
        """Number of weight matrices of one MLP: three with a gate, two without."""
        return 3 if self.gated_mlp else 2

    @property
    def attention_width(self) -> float:
        """Mean size of a head in the products with keys and with values; they differ in latent attention."""
        if self.mla is None:
            return float(self.head_dim)
        return (self.mla.qk_nope_head_dim + self.mla.qk_rope_head_dim + self.mla.v_head_dim) / 2

    @property
    def kv_numbers(self) -> int:
        """Numbers that a layer has to keep of a token for later ones: keys and values, or their compressed rows."""
        if self.mla is None:
            return 2 * self.kv_heads * self.head_dim
        return self.mla.kv_lora_rank + self.mla.qk_rope_head_dim

    @property
    def attention_params_per_layer(self) -> int:
        """Parameters of one attention block: ``2 D N H + 2 D K H``, or the low-rank factors of latent attention."""
        d, n = self.d_model, self.heads
        if self.mla is None:
            return 2 * d * n * self.head_dim + 2 * d * self.kv_heads * self.head_dim
        m = self.mla
        queries = d * m.q_lora_rank + m.q_lora_rank * n * (m.qk_nope_head_dim + m.qk_rope_head_dim)
        keys_values = d * (m.kv_lora_rank + m.qk_rope_head_dim)
        keys_values += m.kv_lora_rank * n * (m.qk_nope_head_dim + m.v_head_dim)
        return queries + keys_values + n * m.v_head_dim * d

    def mlp_params(self, active: bool = False) -> int:
        """Parameters of all MLPs; with `active`, of mixtures only those of the experts that see one token."""
        matrices = self.mlp_matrices * self.d_model
        if not self.experts:
            assert self.d_ff is not None
            return self.layers * matrices * self.d_ff
        assert self.d_ff_expert is not None
        experts = (self.experts_per_token if active else self.experts) + self.shared_experts
        moe = (self.layers - self.dense_layers) * matrices * self.d_ff_expert * experts
        return moe + self.dense_layers * matrices * (self.d_ff_dense or 0)

    @property
    def router_params(self) -> int:
        """Parameters of all routers; 0 without experts."""
        return (self.layers - self.dense_layers) * self.d_model * self.experts

    @property
    def embedding_params(self) -> int:
        """Parameters of input and output embedding; they count once where they are tied."""
        return self.vocab * self.d_model * (1 if self.tied_embeddings else 2)

    def params(self, active: bool = False) -> int:
        """All parameters; with `active`, those that take part in the work on one token.

        >>> load_model("llama3_70b").params()
        70552387584
        """
        positions = (self.train_seq or 0) * self.d_model if self.learned_positions else 0
        attention = self.layers * self.attention_params_per_layer
        return attention + self.mlp_params(active) + self.router_params + self.embedding_params + positions

    @property
    def matmul_params(self) -> int:
        """Parameters that multiply each token: the active ones less the embedding lookup."""
        lookup = 0 if self.tied_embeddings else self.vocab * self.d_model
        positions = (self.train_seq or 0) * self.d_model if self.learned_positions else 0
        return self.params(active=True) - lookup - positions

    def train_flops_per_token(self, seq: int | None = None, causal: bool = False) -> float:
        """FLOP: ``6 * matmul_params``, and for attention ``12 L N H S`` (half of that where causal work is skipped)."""
        length = seq if seq is not None else (self.train_seq or 0)
        attention = 12 * self.layers * self.heads * self.attention_width * length
        return 6.0 * self.matmul_params + attention * (0.5 if causal else 1.0)

    def least_train_flops_per_token(self, seq: int) -> float:
        """FLOP that no kernel can leave out: each token looks at itself and what comes before, in windows at no more.

        A token sees ``(S + 1) / 2`` others and itself on average; with a window w at most w.
        """
        seen = (self.layers - self.local_layers) * (seq + 1) / 2
        if self.window is not None:
            width = min(self.window, seq)
            seen += self.local_layers * (width - width * (width - 1) / (2 * seq))
        return 6.0 * self.matmul_params + 12 * self.heads * self.attention_width * seen

    def read_params(self, tokens: float) -> float:
        """Parameters of matmuls that a step on so many tokens reads: of experts those that some token goes to.

        Tokens choose experts independently and evenly: ``1 - (1 - k/E)^tokens`` of them are read.
        """
        if not self.experts:
            return self.matmul_params
        active, routed = self.params(active=True), self.params() - self.params(active=True)
        chosen = self.experts_per_token / self.experts
        per_expert = routed / (1 - chosen) if chosen < 1 else 0.0  # parameters of all routed experts
        lookups = active - self.matmul_params
        return active - lookups - per_expert * chosen + per_expert * (1 - (1 - chosen) ** tokens)


def _first_fault(error: ValidationError) -> str:
    """The first thing that is wrong with a card, and how many more there are."""
    faults = error.errors()
    where, kind = ".".join(map(str, faults[0]["loc"])), faults[0]["type"]
    if kind == "missing":
        first = f"there is no {where}"
    elif kind == "extra_forbidden":
        first = f"unknown field {where}; a card has {', '.join(ModelCard.model_fields)}"
    else:
        said = faults[0]["msg"].removeprefix("Value error, ").removeprefix("Input ")
        of_all = not where and kind == "value_error"  # says itself what was found
        first = said if of_all else f"{where or 'the card'}: {said}, found {str(faults[0]['input'])[:60]}"
    return first if len(faults) == 1 else f"{first}; {len(faults) - 1} more faults"


@lru_cache(maxsize=1)
def model_cards() -> dict[str, ModelCard]:
    """All models by name."""
    data = yaml.safe_load(_CARDS.read_text(encoding="utf-8"))
    return {name: ModelCard.model_validate(card) for name, card in data["models"].items()}


def load_model(name: str) -> ModelCard:
    """A model's card by name, or from a user's YAML file with the same fields."""
    if name in model_cards():
        return model_cards()[name]
    if "/" in name or name.endswith((".yaml", ".yml")):
        try:
            return ModelCard.model_validate(read_yaml(Path(name), "model card"))
        except ValidationError as error:
            raise ProfileError(f"{name} is not a model card: {_first_fault(error)}") from None
    near = get_close_matches(name.lower().replace("-", "_"), model_cards(), n=3, cutoff=0.7)
    if near:
        raise ProfileError(f"no model named {name!r}; did you mean {' or '.join(near)}?")
    raise ProfileError(f"no model named {name!r}; there are {', '.join(sorted(model_cards()))}, or a YAML file's path")
