"""A tree of image files, one folder a class."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ..judge.errors import AuditError
from .vision import import_torchvision


def read_folder(root: Path) -> tuple[Tensor, Tensor]:
    """All images ``[N, C, H, W]`` as bytes, and the index of each one's folder; if all are grey they keep one channel."""
    if not root.is_dir():
        raise AuditError(f"{root}: no such folder; expected one sub-folder of images per class")
    datasets = import_torchvision().datasets
    try:
        listing = datasets.ImageFolder(str(root))
    except (FileNotFoundError, RuntimeError) as error:
        raise AuditError(f"{root}: expected one sub-folder of images per class: {error}") from error
    images = [_decoded(Path(path)) for path, _ in listing.samples]
    sizes = sorted({tuple(image.shape[1:]) for image in images})
    if len(sizes) > 1:
        some = ", ".join(f"{height} × {width}" for height, width in sizes[:3])
        raise AuditError(f"{root}: images of different sizes ({some}); resize them, or give a data factory that does")
    channels = max(len(image) for image in images)  # one grey image among colour ones becomes a colour image
    images = [image.expand(channels, -1, -1) for image in images]
    return torch.stack(images), torch.tensor(listing.targets)


def _decoded(path: Path) -> Tensor:
    import numpy as np
    from PIL import Image

    try:
        with Image.open(path) as image:
            pixels = np.array(image if image.mode == "L" else image.convert("RGB"))
    except Exception as error:  # decoders raise SyntaxError, ValueError, struct.error and more on damaged images
        raise AuditError(f"{path}: not a readable image: {error or type(error).__name__}") from error
    return torch.from_numpy(pixels).view(*pixels.shape[:2], -1).permute(2, 0, 1).contiguous()
