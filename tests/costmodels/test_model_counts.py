"""Parameter and FLOP counts from dimensions."""

from pathlib import Path

import pytest
import yaml

from autoshard.costmodels import ProfileError
from autoshard.costmodels.models import load_model, model_cards

# Counts worked out once from the dimensions, exactly (attention + MLP + router + embeddings + learned positions).
EXACT = {
    "llama2_7b": 6738149376,
    "llama3_8b": 8029995008,
    "llama3_70b": 70552387584,
    "llama3_405b": 405849243648,
    "gemma_7b": 8537899008,
    "gpt3_175b": 174588899328,
    "palm_540b": 540354281472,
    "maxtext_22b": 21944598528,
    "maxtext_52b": 51942260736,
    "mixtral_8x7b": 46702526464,
    "qwen3_235b_a22b": 235092836352,
    "deepseek_v3": 671025397760,
    "megatron_gpt_1t": 1007996108800,
}
ACTIVE = {"mixtral_8x7b": 12879659008, "qwen3_235b_a22b": 22189965312, "deepseek_v3": 37551276032}
PUBLISHED = sorted(name for name, card in model_cards().items() if card.params_published)


@pytest.mark.parametrize("name", sorted(EXACT))
def test_parameters_come_out_exactly(name) -> None:
    assert load_model(name).params() == EXACT[name]


@pytest.mark.parametrize("name", sorted(ACTIVE))
def test_active_parameters_come_out_exactly(name) -> None:
    assert load_model(name).params(active=True) == ACTIVE[name]


def test_there_are_30_models_with_a_published_count() -> None:
    assert len(PUBLISHED) >= 30


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_within_half_a_percent_of_the_published_count(name) -> None:
    card = load_model(name)
    assert card.params() == pytest.approx(card.params_published, rel=0.005)


@pytest.mark.parametrize("billions", [16, 22, 32, 52, 64, 128, 256, 512, 1024])
def test_maxtext_models_have_the_parameters_that_they_are_named_for(billions: int) -> None:
    assert load_model(f"maxtext_{billions}b").params() == pytest.approx(billions * 1e9, rel=0.02)


def test_training_takes_six_flops_a_parameter_and_token_and_attention() -> None:
    card = load_model("llama3_70b")
    matmul = 70552387584 - 128256 * 8192  # the embedding lookup is no matmul
    assert card.train_flops_per_token(0) == 6 * matmul
    attention = card.train_flops_per_token(8192) - card.train_flops_per_token(0)
    assert attention == 12 * 80 * 64 * 128 * 8192
    assert card.train_flops_per_token(8192, causal=True) == 6 * matmul + attention / 2


def test_a_models_card_can_come_from_a_users_file(tmp_path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(
        "{layers: 2, d_model: 8, d_ff: 32, heads: 2, kv_heads: 1, head_dim: 4, vocab: 10, gated_mlp: true, "
        "tied_embeddings: true, source: mine}"
    )
    # attention 2 * (2*8*8 + 2*8*4) = 384, MLP 2 * 3 * 8 * 32 = 1536, embedding 80
    assert load_model(str(path)).params() == 384 + 1536 + 80
    path.write_text("{layers: 2}")
    with pytest.raises(ProfileError, match="is not a model card"):
        load_model(str(path))
    with pytest.raises(ProfileError, match=r"no model named 'llama9'; there are .*deepseek_v3, gemma2_27b"):
        load_model("llama9")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ("kv_heads: 3", "kv_heads is 3 beside heads 4; it must divide heads"),
        ("kv_heads: 8", "kv_heads is 8 beside heads 4; it must divide heads"),
        ("kv_heads: 4, experts_per_token: 9", "experts_per_token is 9 of 4 experts; at most all of them"),
        ("kv_heads: 4, dense_layers: 7", "dense_layers is 7 of 2 layers; at most all of them"),
    ],
)
def test_a_card_of_a_model_that_cannot_be_is_refused(tmp_path: Path, fields: str, says: str) -> None:
    path = tmp_path / "impossible.yaml"
    given = yaml.safe_load(f"{{{fields}}}")
    path.write_text(yaml.safe_dump({**MIXTURE, **given}))
    with pytest.raises(ProfileError, match=f"is not a model card: {says}$"):
        load_model(str(path))


MIXTURE = {
    "layers": 2, "d_model": 64, "heads": 4, "kv_heads": 4, "head_dim": 16, "vocab": 0, "gated_mlp": True,
    "tied_embeddings": False, "experts": 4, "experts_per_token": 2, "d_ff_expert": 32, "d_ff_dense": 3, "source": "me",
}  # fmt: skip
