"""Torch and safetensors files: read without running code, and checked for damage that torch does not look for."""

from __future__ import annotations

import pickletools
import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.serialization import get_unsafe_globals_in_checkpoint

from ..judge.errors import AuditError
from ..judge.names import one_line
from .specs import import_from_here

ADVICE = "If you trust this file, load it with --fa-unsafe-load; better, save its state_dict and plain values"

SMALL = 1 << 24
"""Bytes that nobody needs to ask for."""
DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128),
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
)
HARMLESS = ("torch._utils.", "torch.storage.", "collections.OrderedDict", "_codecs.encode")
"""What a pickled tensor is made of."""


def read_tensor_file(path: Path, *, unsafe: bool = False, advice: str = ADVICE) -> Any:
    """The contents of a torch or safetensors file, or an error that says what the file is instead."""
    if path.is_dir():
        raise AuditError(f"{path}: is a directory, not a file of tensors")
    if not path.is_file():
        raise AuditError(f"{path}: no such file")
    try:
        with path.open("rb") as file:
            start = file.read(512)
    except OSError as error:
        raise AuditError(f"{path}: cannot be read: {error.strerror}") from error
    if not start:
        raise AuditError(f"{path}: the file is empty")
    if path.suffix == ".safetensors":
        return _read_safetensors(path, start)
    if start.startswith(b"PK"):
        _check_archive(path)
    return _read_torch(path, start, unsafe=unsafe, advice=advice)


def check_tensors(state: Mapping[str, Tensor], path: Path) -> None:
    """Refuse tensors that hold no numbers, or that a small file makes out to be large, before anything is built from them."""
    for name, tensor in state.items():
        shown = f"{path}: {one_line(name[:80])}"
        if tensor.is_meta:
            raise AuditError(f"{shown} has a shape and no values: it was saved from the device «meta»")
        if tensor.layout is not torch.strided or tensor.is_quantized:
            kind = "quantised" if tensor.is_quantized else str(tensor.layout).removeprefix("torch.")
            raise AuditError(f"{shown} is {kind}; save plain tensors (to_dense() or dequantize() gives them)")
        if tensor.dtype not in DTYPES:
            dtype = str(tensor.dtype).removeprefix("torch.")
            raise AuditError(f"{shown} is {dtype}, in which nothing can be computed; save it as float16 or better")
        size = tensor.numel() * tensor.element_size()
        if size > max(tensor.untyped_storage().nbytes(), SMALL):
            raise AuditError(
                f"{shown} makes {size:,} bytes of {tensor.untyped_storage().nbytes():,} by repeating them (expand); save what "
                "was trained"
            )


def _read_torch(path: Path, start: bytes, *, unsafe: bool, advice: str) -> Any:
    if unsafe:
        import_from_here()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a pickle protocol that torch did not write
            return torch.load(path, map_location="cpu", weights_only=not unsafe)
    except MemoryError as error:
        raise AuditError(f"{path}: not enough memory to load it") from error
    except Exception as error:  # torch reports damage by many types: RuntimeError, EOFError, KeyError, ValueError …
        refused = "" if unsafe else _refused(str(error), path, start)
        if refused:
            raise AuditError(
                f"{path}: refused to load {refused}: only tensors and plain values are read, since a pickle can run code. "
                f"{advice}"
            ) from error
        if unsafe and isinstance(error, (ImportError, AttributeError)):
            raise AuditError(
                f"{path}: its pickle needs code that is not here ({error}); put it on PYTHONPATH, or save the state_dict"
            ) from error
        raise AuditError(_damaged(path, start)) from error


def _check_archive(path: Path) -> None:
    """Compare every record with its checksum: torch does not, and would load a flipped bit as another weight."""
    try:
        with zipfile.ZipFile(path) as archive:
            records = archive.infolist()
            if any(record.filename.endswith("/constants.pkl") for record in records):
                raise AuditError(f"{path}: a TorchScript archive; save the state_dict of the network instead")
            if not any(record.filename.endswith("data.pkl") for record in records):
                held = ", ".join(record.filename for record in records[:4])
                raise AuditError(f"{path}: an archive, but not one that torch.save wrote; it holds {held}")
            unpacked = sum(record.file_size for record in records)
            if unpacked > max(SMALL, 2 * path.stat().st_size):  # torch.save compresses nothing
                raise AuditError(
                    f"{path}: a compressed archive that would unpack to {unpacked:,} bytes; torch.save writes none"
                )
            if any(record.CRC for record in records):  # torch.serialization.set_crc32_options(False) writes none
                broken = archive.testzip()
                if broken is not None:
                    raise AuditError(
                        f"{path}: damaged: the checksum of {broken} is wrong; copy the file again from where it was trained"
                    )
    except AuditError:
        raise
    except Exception as error:  # BadZipFile, NotImplementedError, zlib.error …: damage in the archive's own tables
        raise AuditError(_damaged(path, b"PK")) from error


def _refused(text: str, path: Path, start: bytes) -> str:
    """The classes for which a weights-only load refuses a file, or what a pickle that torch did not write would import."""
    if start.startswith(b"PK"):
        try:
            unsafe = get_unsafe_globals_in_checkpoint(path)
        except Exception:  # it reads protocol 2 only, and what is damaged not at all
            unsafe = []
        if unsafe:
            return ", ".join(sorted(unsafe)[:3]) + (f" and {len(unsafe) - 3} more" if len(unsafe) > 3 else "")
    named = re.search(
        r"GLOBAL (\S+) (?:was not|whose module)|but got <class '([^']+)'>|unrecognized function <\w+(?: \w+)* '?([\w.]+)", text
    )
    name = next(group for group in named.groups() if group) if named else ""
    # pickle.dump of a tensor, unlike torch.save, goes through torch.storage
    if start.startswith(b"\x80") and (name.startswith("torch.storage.") or "Unsupported operand" in text):
        imports = _imports(path)
        return f"a plain pickle that imports {', '.join(imports[:3])}" if imports else "a plain pickle"
    return name


def _imports(path: Path) -> list[str]:
    """What a pickle would import beside the parts of tensors, read from its opcodes without running them."""
    names: list[str] = []
    pushed: list[str] = []
    memo: dict[Any, Any] = {}
    last: Any = None
    try:
        for opcode, argument, _ in pickletools.genops(path.read_bytes()):
            if opcode.name == "MEMOIZE":
                memo[len(memo)] = last
                continue
            if opcode.name == "GLOBAL":
                names.append(str(argument).replace(" ", "."))
            elif opcode.name == "STACK_GLOBAL":
                names.append(".".join(pushed[-2:]))
            recalled = opcode.name in ("BINGET", "LONG_BINGET")
            last = memo.get(argument) if recalled else argument if isinstance(argument, str) else None
            pushed += [last] if last is not None else []
    except Exception:  # genops raises whatever a damaged pickle makes it raise; what was found so far is still true
        pass
    return [name for name in dict.fromkeys(names) if not name.startswith(HARMLESS)]


def _damaged(path: Path, start: bytes) -> str:
    if start.startswith(b"PK"):
        kind = "the archive is truncated or damaged; copy it again from where it was trained"
    elif start.startswith(b"version https://git-lfs"):
        kind = "this is a Git LFS pointer; fetch the file itself with: git lfs pull"
    elif _is_text(start):
        kind = "this is a text file"
    else:
        kind = "the file is truncated, damaged, or of another format"
    return f"{path}: not a readable torch file: {kind}"


def _is_text(start: bytes) -> bool:
    try:
        text = start[:-3].decode() if len(start) == 512 else start.decode()  # the cut may go through a character
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character in "\t\r\n\f" for character in text)


def _read_safetensors(path: Path, start: bytes) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors: dict[str, Tensor] = load_file(path, device="cpu")
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        what = "this is a text file" if _is_text(start) else f"truncated, damaged, or of another format ({error})"
        raise AuditError(f"{path}: not a readable safetensors file: {what}") from error
    return tensors
