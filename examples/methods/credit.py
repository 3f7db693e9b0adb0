"""The credit that a trained checkpoint's own rule gives, for ``--fa-credit=examples.methods:credit``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pytest_fadiag import AuditError, ResidualMLP

from .ep import NotAtEquilibrium
from .registry import METHODS
from .rule import LearningRule
from .settings import Settings
from .streams import streams


def credit(model: ResidualMLP, x: Tensor, y: Tensor, checkpoint: Mapping[str, Any]) -> list[Tensor]:
    """a_0 … a_L of every sample by the rule that trained this network, with what its checkpoint saved for it.

    The rule is built as for training; feedback matrices and the bridge are then those of the file, never drawn again.
    """
    rule = restored(model, checkpoint)
    try:
        with torch.enable_grad():
            return rule.credit(x, y)
    except NotAtEquilibrium as error:
        raise AuditError(str(error)) from error


def restored(model: ResidualMLP, checkpoint: Mapping[str, Any]) -> LearningRule:
    config = checkpoint["config"]
    method = str(config.get("method")).removesuffix("-lam")
    if method not in METHODS:
        raise AuditError(
            f"no rule of examples/methods is called {method!r}; known: {', '.join(METHODS)}"
        )
    known = {field.name for field in fields(Settings)} - {"method", "data", "out"}
    settings = {
        name: value for name, value in config.items() if name in known and value is not None
    }
    rule = METHODS[method](
        model, Settings(method, "", Path(), **settings), streams(int(config["seed"]))
    )
    saved = checkpoint.get("Bs") or []
    if len(saved) != len(rule.feedback):
        raise AuditError(
            f"the checkpoint holds {len(saved)} feedback matrices and {method} uses {len(rule.feedback)}: its credit is lost, "
            "since feedback that was not saved cannot be drawn again; train with examples/train.py, which saves it"
        )
    rule.feedback = [B.to(model.out_head.weight) for B in saved]
    if rule.bridge is not None:
        if "bridge" not in checkpoint:
            raise AuditError(
                f"the checkpoint holds no bridge, which gives the credit of {method}; train it again"
            )
        rule.bridge.load_state_dict(checkpoint["bridge"])
    return rule
