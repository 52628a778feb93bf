"""Options: wrong ones are refused before anything is traced, and the message says what to write."""

import subprocess
import sys

import pytest

from autoshard.errors import InputError
from autoshard.models import build
from autoshard.models.options import MoeOptions, TransformerOptions


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (
            "transfomer",
            {},
            r"no model 'transfomer'; did you mean 'transformer'\? Choices: mlp, transformer, moe, resnet",
        ),
        ("transformer", {"head": 4}, r"no option 'head'; did you mean 'heads'\? Choices: .*dims"),
        ("transformer", {"layers": 0}, "layers must be a whole number of at least 1, found 0"),
        ("mlp", {"layers": 2**63}, "layers is 9223372036854775808; no more than 2.53 can be planned"),
        ("transformer", {"layers": 2.0}, "layers must be a whole number"),
        ("transformer", {"layers": True}, "layers must be a whole number"),
        ("transformer", {"layers": None}, "layers must be a whole number"),
        ("transformer", {"batch": "8"}, "batch must be a whole number"),
        ("transformer", {"heads": 6, "kv_heads": 4, "head_dim": 8}, "heads=6 is not a multiple of kv_heads=4"),
        ("transformer", {"d_model": 30}, "d_model=30 is not a multiple of heads=4"),
        ("transformer", {"head_dim": 5}, "head_dim=5 must be even"),
        ("transformer", {"positions": "learned", "max_seq": 16}, "seq=32 is longer than the 16 learned positions"),
        ("transformer", {"positions": "ropes"}, r"positions cannot be 'ropes'; did you mean 'rope'\?"),
        ("transformer", {"local_per_global": 1}, "needs sliding_window"),
        ("transformer", {"attention_block": 5}, "seq=32 is not a multiple of attention_block=5"),
        ("transformer", {"attention_ring": 5}, "seq=32 is not a multiple of attention_ring=5"),
        ("transformer", {"attention_ring": 4, "attention_block": 8}, "leave one out"),
        ("transformer", {"attention_ring_order": "zigzag"}, "needs attention_ring, the number of parts"),
        ("transformer", {"attention_ring_order": "zigzag", "attention_ring": 32}, "a multiple of twice as many"),
        ("transformer", {"attention_ring_order": "zigzag", "attention_ring": 1}, "two parts or more"),
        ("transformer", {"scan": "yes"}, "scan must be true or false, found 'yes'"),
        (
            "transformer",
            {"remat": "some"},
            "remat cannot be 'some'; give true, false, one of none, full, dots, or a list",
        ),
        ("transformer", {"param_dtype": "bf16"}, r"did you mean 'bfloat16'\?"),
        ("transformer", {"learning_rate": 0}, "learning_rate must be a number above 0, found 0"),
        ("transformer", {"beta1": 1.0}, "beta1 must be a number at least 0 and below 1"),
        ("transformer", {"weight_decay": float("nan")}, "weight_decay must be a number at least 0, found nan"),
        ("moe", {"experts": 2, "experts_per_token": 3}, "experts_per_token=3 exceeds experts=2"),
        ("moe", {"dispatch": "dense"}, "dispatch cannot be 'dense'; .*Choices: einsum, ragged"),
        ("moe", {"bias": True}, "its experts have no biases"),
        ("mlp", {"task": "ranking"}, "Choices: classification, regression"),
        ("resnet", {"stages": []}, "stages must be a list of positive whole numbers"),
        ("resnet", {"stages": [1, 0]}, "stages must be a whole number of at least 1, found 0"),
        ("resnet", {"groups": 3}, "width=8 is not a multiple of groups=3"),
        ("resnet", {"bottleneck": False, "groups": 2}, "needs bottleneck blocks"),
        ("resnet", {"image": 3}, "image=3 is too small"),
    ],
)
def test_a_wrong_option_is_refused_with_its_reason(model, options, message):
    with pytest.raises(InputError, match=message):
        build(model, **options)


def test_derived_options_are_filled_in():
    options = TransformerOptions(heads=4, d_model=64)
    assert (options.kv_heads, options.head_dim, options.max_seq, options.activation) == (4, 16, 32, "silu")


def test_capacity_is_the_even_share_times_the_factor_rounded_up():
    # 32 tokens * 2 choices / 4 experts = 16 each; 16 * 1.3 = 20.8
    assert MoeOptions(seq=32, experts=4, experts_per_token=2, capacity_factor=1.3).capacity == 21


def test_capacity_never_exceeds_the_sequence():
    assert MoeOptions(seq=32, capacity_factor=100.0).capacity == 32


def test_importing_the_library_and_listing_it_does_not_import_jax():
    code = (
        "import sys; from autoshard.models import card_names, model_names; card_names(); model_names(); "
        "assert 'jax' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
