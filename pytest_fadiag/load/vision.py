"""The one place that imports torchvision."""

from __future__ import annotations

import sys
from typing import Any

import torch

from ..judge.errors import AuditError

_declared: list[Any] = []
"""The declarations live as long as the process: torch forgets a library that is collected."""


def import_torchvision() -> Any:
    """torchvision, also where its compiled operators belong to another build of torch.

    A CUDA build of torchvision with a CPU build of torch fails on import, since its operators were
    never registered. Classification networks need none of them: it is enough to declare the two
    that are named at import.
    """
    try:
        import torchvision
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise AuditError(f"torchvision cannot be imported: {error}") from error
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for operator in ("nms", "qnms"):
            library.define(  # type: ignore[no-untyped-call]
                f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )
        _declared.append(library)
        import torchvision
    except ImportError as error:
        raise AuditError(f"{error}: pip install 'pytest-fadiag[vision]'") from error
    return torchvision
