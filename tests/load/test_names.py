"""The names of a checkpoint's tensors against those of a network."""

from __future__ import annotations

import pytest

from pytest_fadiag.load.names import fit, is_aside

OWN = ("embed.weight", "blocks.0.fc1.weight", "head.bias")


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "model.", "net.", "model._orig_mod.", "module.model.net."])
def test_prefixes_of_wrappers_are_taken_off(prefix: str) -> None:
    given = [prefix + name for name in OWN]
    for fitted in (fit(given, OWN), fit(OWN, given)):
        assert not (fitted.missing or fitted.extra or fitted.aside)
    assert fit(given, OWN).pairs == {name: prefix + name for name in OWN}


def test_a_prefix_that_the_network_has_itself_stays() -> None:
    own = ("model.fc.weight", "net.fc.weight")
    assert fit(own, own).pairs == {name: name for name in own}
    assert fit(("model.fc.weight",), own).missing == ("net.fc.weight",)


def test_two_networks_in_a_file_are_not_taken_for_one() -> None:
    fitted = fit([*(f"model.{name}" for name in OWN), *(f"net.{name}" for name in OWN)], OWN)
    assert fitted.missing == OWN
    copies = fit([*OWN, *(f"ema.{name}" for name in OWN)], OWN)
    assert not copies.missing
    assert copies.extra == tuple(f"ema.{name}" for name in OWN)


def test_a_name_of_a_tied_tensor_stands_for_the_others() -> None:
    own = ("embed.weight", "head.weight")
    tied = {"embed.weight": ["head.weight"], "head.weight": ["embed.weight"]}
    assert fit(["embed.weight"], own, tied).pairs == {"embed.weight": "embed.weight", "head.weight": "embed.weight"}
    assert fit(["embed.weight"], own).missing == ("head.weight",)


@pytest.mark.parametrize(
    "name",
    [
        *("Bs.0", "Bs", "feedback.0.weight", "feedback_weights", "fixed_fb_weights", "blocks.0.fc1.fixed_fb_weights", "fb.3"),
        *("blocks.0.hook.fixed_fb_weights", "B0", "B_3", "embed.B1"),
        *(
            "blocks.0.fc1.weight_backward",
            "blocks.0.fc1.bias_backward",
            "blocks.0.fc1.backward_weight",
            "blocks.0.feedback_matrix",
        ),
        *("embed.weight_fa", "embed.B_fa", "random_feedback.weight", "criterion.weight", "loss_fn.weight"),
    ],
)
def test_feedback_and_losses_are_left_aside(name: str) -> None:
    assert is_aside(name, OWN)
    assert fit([*OWN, name], OWN).aside == (name,)
    assert fit([f"model.{own}" for own in OWN] + [f"model.{name}", "criterion.pos"], OWN).aside == (
        f"model.{name}",
        "criterion.pos",
    )


@pytest.mark.parametrize(
    "name",
    [
        *(
            "blocks.1.fc1.weight",
            "pos_embed",
            "blocks.0.fc1.lora_B",
            "blocks.0.ssm.B",
            "B",
            "backward.lstm.weight",
            "fbnet.weight",
        ),
        *("blocks.0.fc1.bias", "lossless.weight", "blocks.1.fc1.weight_backward", "dfa", "fa.weight", "weight_decay"),
    ],
)
def test_what_a_forward_pass_may_use_is_not(name: str) -> None:
    assert not is_aside(name, OWN)
    assert fit([*OWN, name], OWN).extra == (name,)
