"""Norms of hidden states: -1 meant as the last dimension, taken as the order."""

from __future__ import annotations

import numpy as np
import torch
import torch as t
import torch.nn.functional as F
from torch import linalg as LA
from torch import norm
from torch.linalg import vector_norm


def scales(hidden: torch.Tensor, steer: torch.Tensor) -> list[float]:
    resid = hidden.norm(-1).mean()  # ← 1
    kept = hidden.detach().norm(-1, keepdim=True)  # ← 1
    named = hidden.norm(p=-1)  # ← 1
    along = hidden.norm(-1, dim=1)  # ← 1
    both = hidden.norm(-1, 1)  # ← 1
    functions = [
        torch.norm(hidden, -1),  # ← 1
        t.norm(steer, p=-1),  # ← 1
        norm(steer, -1, keepdim=True),  # ← 1
        torch.linalg.norm(hidden, -1),  # ← 1
        torch.linalg.norm(hidden, ord=-1),  # ← 1
        LA.vector_norm(hidden, -1),  # ← 1
        vector_norm(hidden, ord=-1),  # ← 1
        np.linalg.norm(hidden.numpy(), -1),  # ← 1
    ]
    unit = F.normalize(steer, -1)  # ← 1
    return [float(value.sum()) for value in (resid, kept, named, along, both, *functions, unit)]
