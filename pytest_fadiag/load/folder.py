"""A tree of image files, one folder a class."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor

from ..judge.errors import AuditError

IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""How the names of images end."""


def read_folder(root: Path) -> tuple[Tensor, Tensor]:
    """All images ``[N, C, H, W]`` as bytes, and the index of each one's folder; if all are grey they keep one channel."""
    if not root.is_dir():
        raise AuditError(f"{root}: no such folder; expected one sub-folder of images per class")
    samples = _listed(root)
    images = [_decoded(path) for path, _ in samples]
    sizes = sorted({tuple(image.shape[1:]) for image in images})
    if len(sizes) > 1:
        some = ", ".join(f"{height} × {width}" for height, width in sizes[:3])
        raise AuditError(f"{root}: images of different sizes ({some}); resize them, or give a data factory that does")
    channels = max(len(image) for image in images)  # one grey image among colour ones becomes a colour image
    images = [image.expand(channels, -1, -1) for image in images]
    return torch.stack(images), torch.tensor([label for _, label in samples])


def _listed(root: Path) -> list[tuple[Path, int]]:
    """Every image with the number of its class, in the order of torchvision's ImageFolder."""
    classes = sorted(folder.name for folder in root.iterdir() if folder.is_dir())
    samples: list[tuple[Path, int]] = []
    for label, name in enumerate(classes):
        walk = sorted(os.walk(root / name, followlinks=True))
        paths = [Path(folder, file) for folder, _, files in walk for file in sorted(files) if file.lower().endswith(IMAGES)]
        if not paths:
            raise AuditError(f"{root}: expected one sub-folder of images per class: no image in {name} ({', '.join(IMAGES)})")
        samples += [(path, label) for path in paths]
    if not samples:
        raise AuditError(f"{root}: expected one sub-folder of images per class: there is no sub-folder")
    return samples


def _decoded(path: Path) -> Tensor:
    import numpy as np
    from PIL import Image

    try:
        with Image.open(path) as image:
            pixels = np.array(image if image.mode == "L" else image.convert("RGB"))
    except Exception as error:  # decoders raise SyntaxError, ValueError, struct.error and more on damaged images
        raise AuditError(f"{path}: not a readable image: {error or type(error).__name__}") from error
    return torch.from_numpy(pixels).view(*pixels.shape[:2], -1).permute(2, 0, 1).contiguous()
