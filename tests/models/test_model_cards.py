"""Cards: named dimensions give the published parameter counts."""

import pytest

from autoshard.errors import InputError, UnsupportedError
from autoshard.models import build, card, card_names, model_names

BUILDABLE = [name for name in card_names() if "unsupported" not in card(name)]
UNSUPPORTED = [name for name in card_names() if "unsupported" in card(name)]
COUNT_TOLERANCE = 0.005


@pytest.mark.parametrize("name", BUILDABLE)
def test_parameter_count_of_a_card_is_the_published_one(name):
    found = card(name)
    expected = found.get("params_published") or found["params_formula"]
    program = build(found["model"], dims=name)
    assert program.param_count == pytest.approx(expected, rel=COUNT_TOLERANCE)


@pytest.mark.parametrize("name", card_names("moe"))
def test_active_parameters_of_a_mixture_of_experts_follow_the_formula(name):
    # attention, router, embeddings and the experts a token visits; ours adds the norms
    assert build("moe", dims=name).active_param_count == pytest.approx(card(name)["params_active_formula"], rel=1e-3)


@pytest.mark.parametrize("name", ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d"])
def test_conv_nets_have_exactly_the_published_parameters(name):
    assert build("resnet", dims=name).param_count == card(name)["params_published"]


def test_every_card_has_a_source_and_a_model_or_a_reason():
    for name in card_names():
        assert card(name)["source"]
        assert card(name).get("model") in model_names() or card(name)["unsupported"]


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_a_card_beyond_the_library_says_why_and_what_to_try(name):
    with pytest.raises(UnsupportedError, match=r"cannot be built: it .*Try another of: .*llama3_8b"):
        build("transformer", dims=name)


def test_latent_attention_is_named_as_the_reason_for_deepseek():
    with pytest.raises(UnsupportedError, match="latent attention"):
        build("moe", dims="deepseek_v3")


def test_unknown_dims_are_guessed_and_listed():
    with pytest.raises(InputError, match=r"no dims 'llama3_8B'; did you mean 'llama3_8b'\? Choices: llama2_7b"):
        build("transformer", dims="llama3_8B")


def test_dims_of_another_model_name_their_model():
    with pytest.raises(InputError, match="belongs to model 'moe', asked for model 'transformer'"):
        build("transformer", dims="mixtral_8x7b")


def test_a_model_without_cards_says_so():
    with pytest.raises(InputError, match="'mlp' has no dims"):
        build("mlp", dims="llama3_8b")


def test_an_option_given_wins_over_the_card():
    program = build("transformer", dims="llama3_8b", layers=2, batch=3, seq=128)
    assert program.specs[0]["params"]["layers"]["wq"].shape == (2, 4096, 32, 128)
    assert program.specs[1]["tokens"].shape == (3, 128)


def test_the_sequence_of_a_card_is_its_training_context():
    assert build("transformer", dims="llama3_8b").specs[1]["tokens"].shape == (8, 8192)
