"""Whose network a file is, and what identifies files, data and code."""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.load.names import (
    code_digest,
    code_files,
    file_digest,
    files_of,
    identify,
    is_checkpoint,
    is_log,
    loaded_files,
    model_file,
    plain_config,
)
from pytest_fadiag.load.sources import data_digest, data_files, parse_data
from pytest_fadiag.load.specs import call_factory, check_factory

Write = Callable[..., Path]


# --- method and seed --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "method", "seed"),
    [
        ("runs/dfa_s42.pt", "dfa", 42),
        ("dfa-lam_seed456.ckpt", "dfa-lam", 456),
        ("x_s1.pth.tar", "x", 1),
        ("dfa_s42.pt.log.jsonl", "dfa", 42),
        ("fa_s1/model_best.pth", "model_best", None),
        ("my_net.pt", "my_net", None),
        ("net.v2.pt", "net.v2", None),
        ("results.json", "results", None),
        ("a/.json", ".json", None),
        ("out/dfa_s3/model.safetensors", "dfa", 3),
        ("out/dfa_s3/model.safetensors.index.json", "dfa", 3),
    ],
)
def test_a_name_tells_method_and_seed(path: str, method: str, seed: int | None) -> None:
    assert identify(Path(path)) == (method, seed)


@given(st.from_regex(r"[a-z][a-z0-9.+-]{0,20}", fullmatch=True), st.integers(0, 10**9), st.data())
def test_a_name_that_is_written_is_read(method: str, seed: int, data: st.DataObject) -> None:
    suffix = data.draw(st.sampled_from([".pt", ".pth.tar", ".safetensors", ".jsonl", ".csv", ""]))
    assert identify(Path(f"{method}_s{seed}{suffix}")) == (method, seed)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"method": "fa", "seed": 1}, ("fa", 1)),
        ({"method": "fa"}, ("fa", 7)),
        ({"seed": 0}, ("dfa", 0)),
        ({"seed": "unknown"}, ("dfa", None)),
        ({"method": "dfa", "frozen": True}, ("dfa-frozen", 7)),
        ({"seed": float("inf")}, ("dfa", None)),
        ({"seed": 10**400}, ("dfa", None)),
        ({"seed": torch.tensor(3)}, ("dfa", 3)),
        ({"seed": torch.tensor([1, 2]), "method": torch.zeros(2)}, ("dfa", None)),
        ({"method": "a\x1b[2J\n== 8 passed"}, ("a\\x1b[2J\\n== 8 passed", 7)),
    ],
)
def test_the_config_comes_first_and_odd_values_name_nothing(
    config: dict[str, Any], expected: tuple[str, int | None]
) -> None:
    assert identify(Path("dfa_s7.pt"), config) == expected


def test_names_and_configs_are_bounded() -> None:
    assert identify(Path("net.pt"), {"method": "x" * 300_000}) == ("x" * 500, None)
    held = {"a": "x" * 10_000, "b": 10**400, "c": [1], "lr": 0.1, "frozen": False, "d": "\x1b"}
    assert plain_config(held) == {"a": "x" * 500, "lr": 0.1, "frozen": False, "d": "\\x1b"}


def test_files_are_told_apart_by_their_names(tmp_path: Path) -> None:
    networks = ["a.pt", "a.pth.tar", "a.safetensors", "model.safetensors.index.json"]
    others = ["optimizer.pt", "rng_state_0.pth", "a.json", "notes.txt"]
    assert [is_checkpoint(Path(name)) for name in networks + others] == [True] * 4 + [False] * 4
    logs = ["a.json", "a.jsonl", "a.csv", "events.out.tfevents.1.host"]
    assert [is_log(Path(name)) for name in logs + networks] == [True] * 4 + [False] * 4
    (tmp_path / "model.safetensors").touch()
    assert model_file(tmp_path) is None
    (tmp_path / "trainer_state.json").touch()
    assert model_file(tmp_path) == tmp_path / "model.safetensors"


# --- digests ----------------------------------------------------------------------------------


def test_a_digest_follows_the_content_and_every_file_of_a_network(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(b"weights")
    assert file_digest(path) == hashlib.sha256(b"weights").hexdigest()
    path.write_bytes(b"WEIGHTS")
    assert file_digest(path) == hashlib.sha256(b"WEIGHTS").hexdigest()
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "part.safetensors", "b": "../a.pt"}}))
    for name in ("part.safetensors", "config.json"):
        (tmp_path / name).write_text("1")
    assert {file.name for file in files_of(index)} == {
        *("model.safetensors.index.json", "part.safetensors", "a.pt", "config.json")
    }, "a part outside its folder is not looked for there"
    digests = {file_digest(index)}
    for name in ("part.safetensors", "config.json"):
        (tmp_path / name).write_text("22")
        digests.add(file_digest(index))
    assert len(digests) == 3


def test_the_digest_of_code_covers_the_root_and_the_packages_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, other = tmp_path / "repo", tmp_path / "elsewhere"
    counted = [
        *(root / "a.py", root / "pkg" / "b.py", root / "pkg" / "build" / "dist" / "d.py"),
        *(other / "nets_xyz" / "sub" / "c.py", other / "nets_xyz" / "build" / "e.py"),
    ]
    ignored = [
        root / name / "x.py" for name in (".git", "build", "dist", "env", "lib/site-packages")
    ]
    for file in (*counted, *ignored, other / "nets_xyz" / "__init__.py", other / "unnamed.py"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("1")
    (root / "env" / "pyvenv.cfg").touch()
    (root / "pkg" / "loop").symlink_to(root)
    monkeypatch.syspath_prepend(other)

    def digest() -> str:
        return code_digest(root, code_files(root, ["nets_xyz.sub:make", "no_such_package:make"]))

    start = digest()
    for file in (*counted, *ignored, other / "unnamed.py"):
        file.write_text("2")
        assert (digest() != start) == (file in counted), file
        file.write_text("1")
    (other / "torch-9.9.dist-info").mkdir()
    assert digest() != start, "another version of any installed package"
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    (other / "torch-9.9.dist-info").rmdir()
    assert digest() != start, "modules are found elsewhere"


def test_the_files_of_modules_are_known_but_not_those_of_installed_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = tmp_path / "late_xyz.py"
    for name, expected in (("late_xyz.py", {str(late)}), ("site-packages/there_xyz.py", set())):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
        monkeypatch.syspath_prepend((tmp_path / name).parent)
        module = importlib.import_module(Path(name).stem)
        monkeypatch.delitem(sys.modules, module.__name__)
        before = loaded_files()
        monkeypatch.setitem(sys.modules, module.__name__, module)
        assert loaded_files() - before == expected


# --- data -------------------------------------------------------------------------------------


def test_a_spec_is_taken_apart_and_what_does_not_exist_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d.npz").touch()
    assert parse_data("d.npz", tmp_path) == ("file", tmp_path / "d.npz")
    assert parse_data(f"cifar10:{tmp_path}") == ("cifar10", tmp_path)
    assert parse_data("pkg.mod:make")[0] == "factory"
    wrong = {
        **dict.fromkeys(
            ("cifar10", "cifar10:", "data.csv", ""), "unknown data .*; accepted: fashion"
        ),
        **dict.fromkeys(("folder:nowhere", "nothing.pt"), "no such file or folder"),
        **dict.fromkeys(("cifar10:.", "fashion-mnist:."), r"there: expected \w+"),
    }
    for spec, said in wrong.items():
        with pytest.raises(AuditError, match=said):
            data_files(parse_data(spec, tmp_path))


def test_the_digest_of_a_folder_follows_images_also_behind_links(tmp_path: Path) -> None:
    for name in ("ds/test/a/1.png", "ds/test/b/2.JPG", "ds/test/b/notes.txt", "store/3.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "ds/test/c").symlink_to(tmp_path / "store")
    for name in ("one", "two"):
        (tmp_path / "ds/test/a" / name).symlink_to(tmp_path / "ds/test/a")  # would have no end
    files = data_files(parse_data("folder:ds", tmp_path))
    assert [(path.name, label) for path, label in files] == [
        ("1.png", 0),
        ("2.JPG", 1),
        ("3.png", 2),
    ]
    start = data_digest("folder:ds", tmp_path)
    for name, counts in (("ds/test/b/notes.txt", False), ("store/3.png", True)):
        (tmp_path / name).write_text("changed")
        assert (data_digest("folder:ds", tmp_path) != start) is counts
    assert data_digest("package.module:make") is None


# --- factories --------------------------------------------------------------------------------


def test_a_spec_names_an_object_of_the_working_folder(module: Callable[[str], str]) -> None:
    name = module("""
        number = 3
        def broken(): return 1 / 0
        def whole(config): return config
        def optional(config=None): return config
        def by_name(width, depth=2, *, lr=0.0): return width, depth, lr
        def nothing(*layers, **options): return layers, options
        class Net:
            def __init__(self, width=4): self.width = width
    """)
    config = {"width": 9, "lr": 0.1, "method": "dfa"}
    made = {fn: call_factory(f"{name}:{fn}", "factory", config) for fn in ("whole", "optional")}
    assert made == {"whole": config, "optional": config}
    assert call_factory(f"{name}:by_name", "factory", config) == (9, 2, 0.1)
    assert call_factory(f"{name}:nothing", "factory", config) == ((), {})
    assert call_factory(f"{name}:Net", "factory", config).width == 9
    assert call_factory(f"{name}:optional", "factory") is None
    for spec, said in {
        f"{name}:absent": "cannot be imported: AttributeError",
        f"{name}:number": "raised TypeError: .*is not a callable",
        f"{name}:broken": "raised ZeroDivisionError: division by zero",
        "no_such_package.nets:make": "no such module; is its folder on PYTHONPATH",
        "resnet18": "expected package.module:name",
    }.items():
        with pytest.raises(AuditError, match=said):
            call_factory(spec, "network factory", config)
    check_factory(f"{module('raise RuntimeError')}:make", "factory")  # nothing is imported
