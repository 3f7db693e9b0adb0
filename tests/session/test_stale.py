"""No result of yesterday's code or data: what a factory imported and what was read decides whether a record still holds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from repo import Repo

import pytest_fadiag
from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.load.closure import is_current
from pytest_fadiag.load.digests import file_digest
from pytest_fadiag.load.setup import Setup
from pytest_fadiag.load.sources import DataSpec
from pytest_fadiag.load.supplied import supplied_digest
from pytest_fadiag.load.watch import Watch
from pytest_fadiag.registry import Registry, installed
from pytest_fadiag.workshop import Workshop

BP = "--fa-checkpoint=runs/bp_s42.pt"
MODEL = "--fa-model=stale_net.nets:make"
NET = """
import json, pathlib
from stale_layers import make as network, WIDTH
def make():
    import stale_late
    assert json.loads(pathlib.Path("stale.json").read_text()) and stale_late.NAME
    return network(WIDTH)
"""


@pytest.fixture
def factory(repo: Repo) -> Repo:
    repo.forget()
    repo.write("stale_net/__init__.py", "")
    repo.write("stale_net/nets.py", NET)
    repo.write(
        "stale_layers.py",
        "from pytest_fadiag import ResidualMLP\nfrom stale_width import WIDTH\n"
        "def make(width): return ResidualMLP(20, width, 4, 5)\n",
    )
    repo.write("stale_width.py", "WIDTH = 16\n")
    repo.write("stale_late.py", "NAME = 'late'\n")
    repo.write("unrelated.py", "")
    (repo.path / "stale.json").write_text("[1]")
    return repo


@pytest.mark.parametrize(
    "name", ["stale_net/nets.py", "stale_net/__init__.py", "stale_layers.py", "stale_width.py", "stale_late.py", "stale.json"]
)
def test_whatever_a_factory_imported_or_opened_counts(factory: Repo, measured: list[str], name: str) -> None:
    factory.run(BP, MODEL).assert_outcomes(passed=3, skipped=1)
    (factory.path / "unrelated.py").write_text("# changed")
    factory.run(BP, MODEL).assert_outcomes(passed=3, skipped=1)
    assert len(measured) == 1
    path = factory.path / name
    path.write_text(path.read_text() + "\n")
    for _ in range(2):
        factory.run(BP, MODEL).assert_outcomes(passed=3, skipped=1)
    assert len(measured) == 2, "measured again, once"


def test_a_module_that_a_conftest_had_imported_before_counts_too(factory: Repo, measured: list[str]) -> None:
    factory.write("conftest.py", "import stale_layers\n")
    factory.run(BP, MODEL)
    (factory.path / "stale_width.py").write_text("WIDTH = 8 * 2\n")
    factory.run(BP, MODEL)
    assert len(measured) == 2


def test_another_module_of_the_same_name_that_is_found_first_counts(
    factory: Repo, measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    factory.run(BP, MODEL)
    factory.write("elsewhere/stale_width.py", "WIDTH = 16\n")
    monkeypatch.syspath_prepend(str(factory.path / "elsewhere"))
    factory.run(BP, MODEL)
    assert len(measured) == 2


def test_a_run_from_the_cache_imports_no_factory_and_one_that_measures_no_compiler(factory: Repo) -> None:
    seen = "import sys\ndef pytest_sessionfinish():\n    open('seen.txt', 'w').write(' '.join(sys.modules))\n"
    factory.write("conftest.py", seen)
    for measures in (True, False):
        factory.spawn(BP, MODEL, "-p", "no:xdist").assert_outcomes(passed=3, skipped=1)
        loaded = set((factory.path / "seen.txt").read_text().split())
        assert {"torch", "stale_net", "stale_layers", "torch._dynamo"} & loaded == (
            {"torch", "stale_net", "stale_layers"} if measures else set()
        )


@pytest.mark.parametrize("sources", [None, 1, {}, {"modules": {"os": 3}, "files": {}, "packages": {}}, {"modules": {}}])
def test_damaged_sources_are_not_current(sources: object) -> None:
    assert not is_current(sources)
    assert is_current({key: {} for key in ("modules", "files", "folders", "asked", "packages", "installed")})


def images(root: Path, colour: int) -> None:
    from PIL import Image

    for label in ("cat", "dog"):
        (root / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4, 3), colour, np.uint8)).save(root / label / "0.png")


def test_images_behind_a_symbolic_link_count(tmp_path: Path) -> None:
    images(tmp_path / "real", 1)
    (tmp_path / "ds").mkdir()
    (tmp_path / "ds" / "test").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "cat" / "loop").symlink_to(tmp_path / "real")
    data = DataSpec.parse(f"folder:{tmp_path / 'ds'}")
    before = data.stamp(), data.digest()
    assert None not in before
    (tmp_path / "real" / "cat").rename(tmp_path / "real" / "emu")
    assert data.stamp() != before[0] and data.digest() != before[1]


def test_a_folders_digest_is_of_its_content_wherever_and_whenever_it_was_copied(tmp_path: Path) -> None:
    images(tmp_path / "a", 1)
    images(tmp_path / "b", 1)
    os.utime(tmp_path / "b" / "cat" / "0.png", (1, 1))
    one, other = (DataSpec.parse(f"folder:{tmp_path / name}") for name in "ab")
    assert one.digest() == other.digest() and one.stamp() != other.stamp()
    images(tmp_path / "b", 2)
    assert one.digest() != other.digest()


def test_a_symbolic_link_to_fashion_mnist_has_a_digest(tmp_path: Path) -> None:
    raw = tmp_path / "elsewhere" / "raw"
    raw.mkdir(parents=True)
    for part in ("images-idx3", "labels-idx1"):
        (raw / f"t10k-{part}-ubyte").write_bytes(b"1")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "FashionMNIST").symlink_to(raw.parent)
    data = DataSpec.parse(f"fashion-mnist:{tmp_path / 'root'}")
    before = data.digest()
    (raw / "t10k-labels-idx1-ubyte").write_bytes(b"2")
    assert before is not None and data.digest() != before


def test_what_is_not_kept_says_so(repo: Repo) -> None:
    repo.write("own_data_of_repo.py", "import numpy\ndef make():\n    d = numpy.load('data.npz')\n    return d['x'], d['y']\n")
    said = "note: not cached, so that the next run measures again: the data come from the factory own_data_of_repo:make*"
    repo.run(BP, "--fa-data=own_data_of_repo:make").stdout.fnmatch_lines([said])
    repo.write("conftest.py", "import pytest\n@pytest.fixture\ndef fa_model(fa_model): return fa_model\n")
    repo.run(BP).stdout.fnmatch_lines(["note: not cached*: a conftest replaces what networks are measured with"])


def test_this_package_is_not_the_users_by_whatever_path_it_was_found() -> None:
    """With pythonpath = .. in an ini file its own files have «..» in their names, and all of them were read and kept."""
    root = Path(pytest_fadiag.__file__).parents[1]
    code = (
        f"import os, sys; sys.path.insert(0, {str(root / 'tests' / '..')!r}); from pytest_fadiag.load import closure; "
        "print(closure.is_users(os.path.abspath(closure.__file__)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root / "tests")
    assert done.stdout.strip() == "False"


REPLACED = """
import pytest, shutil
P = pytest.mark.fa_protocol(checkpoint="runs/bp_s42.pt")
@P
def test_before({fixture}):
    assert {fixture}.{attribute}
    shutil.copy("runs/dfa_s42.pt", "runs/bp_s42.pt")
@P
def test_after(fa_report):
    assert fa_report.fired == "ab"
"""


@pytest.mark.parametrize(("fixture", "attribute"), [("fa_checkpoint", "state_dict"), ("fa_report", "method_name")])
def test_a_checkpoint_that_is_replaced_during_a_run_is_read_again(repo: Repo, fixture: str, attribute: str) -> None:
    """The tensors of the old file were measured, and kept under the digest of the new one."""
    repo.forget()
    repo.write("test_own.py", REPLACED.format(fixture=fixture, attribute=attribute))
    repo.run("test_own.py").assert_outcomes(passed=2)
    repo.run("test_own.py::test_after").assert_outcomes(passed=1)


def test_a_checkpoint_that_changes_while_it_is_measured_is_an_error_and_not_kept(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.forget()
    original = Workshop.observe

    def slow(self: Workshop, *args: Any) -> Any:
        shutil.copy(repo.path / "runs" / "dfa_s42.pt", repo.path / "runs" / "bp_s42.pt")
        return original(self, *args)

    with monkeypatch.context() as patched:
        patched.setattr(Workshop, "observe", slow)
        result = repo.run(BP, "--fa-diagnostics=a")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*bp_s42.pt: this file changed while it was measured; run again when it is whole"])
    assert not list((repo.path / ".pytest_cache" / "d" / "fadiag").glob("*.json"))


def test_a_checkpoint_that_changes_while_it_is_read_is_an_error(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Registry.load_checkpoint

    def slow(self: Registry, path: Path, *, unsafe: bool) -> object:
        content = original(self, path, unsafe=unsafe)
        path.write_bytes(path.read_bytes() + b"0")
        return content

    monkeypatch.setattr(Registry, "load_checkpoint", slow)
    with pytest.raises(AuditError, match="changed while it was read"):
        Workshop(Setup(), installed()).checkpoint(repo.path / "runs" / "bp_s42.pt")


def test_data_that_change_while_they_are_read_are_an_error_and_nothing_is_kept(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.forget()
    original = DataSpec.load

    def slow(self: DataSpec, split: str = "test") -> Any:
        data = np.load(repo.path / "data.npz")
        np.savez(repo.path / "data.npz", x=data["x"] * 1.01, y=data["y"])
        return original(self, split)

    monkeypatch.setattr(DataSpec, "load", slow)
    result = repo.run(BP, "--fa-diagnostics=a")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*data.npz: these data changed while they were read; run again when they are whole"])
    assert not list((repo.path / ".pytest_cache" / "d" / "fadiag").glob("*.json"))


def test_a_file_of_the_same_size_and_time_has_its_own_digest(tmp_path: Path) -> None:
    file = tmp_path / "a"
    digests = set()
    for content in ("1", "2"):
        file.write_text(content)
        os.utime(file, (1, 1))
        digests.add(file_digest(file))
    assert len(digests) == 2


def test_images_of_the_same_size_and_time_that_change_their_places_count(tmp_path: Path) -> None:
    """Two folders that change their names leave every file's size and time as they were."""
    images(tmp_path, 1)
    for path in tmp_path.rglob("*.png"):
        os.utime(path, (1, 1))
    data = DataSpec.parse(f"folder:{tmp_path}")
    before = data.stamp()
    (tmp_path / "cat").rename(tmp_path / "emu")
    (tmp_path / "dog").rename(tmp_path / "cat")
    (tmp_path / "emu").rename(tmp_path / "dog")
    assert data.stamp() != before


SCALED = """
import pytest, torch
from dataclasses import dataclass, field
from pytest_fadiag import ResidualMLP
def scaled(checkpoint, scale):
    model = ResidualMLP(20, 16, 4, 5)
    model.load_state_dict(checkpoint.state_dict)
    with torch.no_grad():
        model.blocks[0].fc2.weight.mul_(scale)
    return model
"""
BY_MARKER = """
def pytest_configure(config): config.addinivalue_line("markers", "net(scale)")
@pytest.fixture
def fa_model(request, fa_checkpoint): return scaled(fa_checkpoint, request.node.get_closest_marker("net").args[0])
"""
MARKED = """
import pytest
@pytest.mark.net(1)
def test_one(fa_report): assert fa_report.fired == ""
@pytest.mark.net(1)
def test_again(fa_report): assert fa_report.fired == ""
@pytest.mark.net(1e6)
def test_other(fa_report): assert fa_report.fired == "ab"
"""
BY_VALUE = """
@dataclass
class Config:
    name: str
    scale: float = field(repr=False)
@pytest.fixture(params=[Config("a", 1), Config("a", 1e6)])
def config(request): return request.param
@pytest.fixture
def fa_model(config, fa_checkpoint): return scaled(fa_checkpoint, config.scale)
"""
VALUED = """
def test_one(config, fa_report): assert fa_report.fired == ("" if config.scale == 1 else "ab")
def test_again(config, fa_report): assert fa_report.fired == ("" if config.scale == 1 else "ab")
"""


@pytest.mark.parametrize(("conftest", "tests"), [(BY_MARKER, MARKED), (BY_VALUE, VALUED)], ids=["marker", "repr"])
def test_two_values_of_a_fixture_are_two_networks(repo: Repo, measured: list[str], conftest: str, tests: str) -> None:
    repo.write("conftest.py", SCALED + conftest)
    repo.write("test_own.py", tests)
    result = repo.run("test_own.py", BP, "-k", "test_")
    assert result.parseoutcomes()["passed"] == (3 if conftest is BY_MARKER else 4)
    assert len(measured) == 2, "once for each network, not for each test"


PLAIN_ATTRIBUTE = """
import pytest
from pytest_fadiag import ResidualMLP
class Own(ResidualMLP):
    roll = 0
    def forward(self, x, return_hidden=False):
        made = super().forward(x, return_hidden)
        return (made[0].roll(self.roll, -1), made[1]) if return_hidden else made.roll(self.roll, -1)
@pytest.fixture
def fa_model(request, fa_checkpoint):
    model = Own(20, 16, 4, 5)
    model.load_state_dict(fa_checkpoint.state_dict)
    {change}
    return model
"""


@pytest.mark.parametrize(
    "change",
    [
        "model.roll = int(request.node.originalname == 'test_b')",
        "request.getfixturevalue('monkeypatch').setattr(Own, 'roll', int(request.node.originalname == 'test_b'))",
    ],
)
def test_what_no_weight_tells_is_told_by_an_attribute_or_by_the_test(repo: Repo, change: str) -> None:
    repo.write("conftest.py", PLAIN_ATTRIBUTE.format(change=change))
    own = "def test_a(fa_report): seen.append(fa_report.headline_acc)\n"
    repo.write("test_own.py", f"seen = []\n{own}{own.replace('_a', '_b', 1)}def test_z(): assert len(set(seen)) == 2\n")
    repo.run("test_own.py", BP, "-k", "test_").assert_outcomes(passed=3, deselected=4)


@pytest.mark.parametrize("scope", ["function", "session"])
def test_the_diagnostics_of_one_supplied_network_share_one_measurement(repo: Repo, measured: list[str], scope: str) -> None:
    made = "network(20, 16, 4, 5, seed=0)"
    repo.write(
        "conftest.py",
        f"import pytest\nfrom support import network\n@pytest.fixture(scope={scope!r})\ndef fa_model(): return {made}\n",
    )
    repo.run(BP, "--fa-diagnostics=abc")
    assert len(measured) == 1


def test_batches_that_can_be_gone_through_once_are_those_of_their_test(repo: Repo, measured: list[str]) -> None:
    repo.write(
        "conftest.py",
        "import pytest\n@pytest.fixture\ndef fa_eval_batches(fa_eval_batches): return (own for own in list(fa_eval_batches))\n",
    )
    repo.run(BP, "--fa-diagnostics=ac").assert_outcomes(passed=2)
    assert len(measured) == 2


def test_a_supplied_value_is_known_by_all_that_it_holds() -> None:
    import torch

    assert supplied_digest([torch.ones(2), {"a": 1}, len]) == supplied_digest([torch.ones(2), {"a": 1}, len])
    told = [
        torch.ones(2),
        torch.ones(2, 1),
        torch.ones(2, dtype=torch.float64),
        torch.nn.Linear(1, 2),
        torch.nn.Bilinear(1, 1, 2),
    ]
    assert len({supplied_digest(value) for value in told}) == len(told)
    functions = [lambda: scale for scale in (1, 2)]  # noqa: B023
    assert len({supplied_digest(function) for function in functions}) == 2
    assert supplied_digest(value for value in told) is None


def test_a_generated_test_audits_the_checkpoint_that_its_id_names(repo: Repo) -> None:
    repo.write("conftest.py", "import pytest\n@pytest.fixture\ndef fa_checkpoint(): return 'runs/bp_s42.pt'\n")
    result = repo.run("--fa-checkpoint=runs/dfa_s42.pt")
    result.assert_outcomes(errors=4)
    result.stdout.fnmatch_lines(["the fixture fa_checkpoint gave runs/bp_s42.pt to a test of runs/dfa_s42.pt, whose verdict *"])
    (repo.path / "copies").mkdir()
    shutil.copy(repo.path / "runs" / "bp_s42.pt", repo.path / "copies" / "bp_s42.pt")
    repo.run(BP).assert_outcomes(passed=3, skipped=1)
    repo.run("--fa-checkpoint=copies/bp_s42.pt").assert_outcomes(passed=3, skipped=1)


def test_a_parametrised_test_audits_the_checkpoint_that_its_id_names(repo: Repo) -> None:
    repo.write("conftest.py", "import pytest\n@pytest.fixture\ndef fa_checkpoint(request): return 'runs/bp_s42.pt'\n")
    repo.write(
        "test_own.py",
        "import pytest\n@pytest.mark.fa_protocol(checkpoint='runs/dfa_s42.pt')\ndef test_own(fa_report): fa_report.check()\n",
    )
    result = repo.run("test_own.py")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["the fixture fa_checkpoint gave runs/bp_s42.pt to a test of runs/dfa_s42.pt, whose verdict *"])


WATCHED = "--fa-model=watched_net:make"
PLAIN = "from pytest_fadiag import ResidualMLP\nimport os\ndef make():\n    {}\n    return ResidualMLP(20, 16, 4, 5)\n"
IN_FORWARD = """
from pytest_fadiag import ResidualMLP
class Own(ResidualMLP):
    def forward(self, x, return_hidden=False):
        open("there.txt").close()
        return super().forward(x, return_hidden)
def make(): return Own(20, 16, 4, 5)
"""
AT_IMPORT = "open('there.txt').close()\n" + PLAIN.format("")


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        (PLAIN.format("try: open('new.json').close()\n    except OSError: pass"), "new.json"),
        (PLAIN.format("os.path.exists('new.json')"), "new.json"),
        (PLAIN.format("__import__('pathlib').Path('new.json').is_file()"), "new.json"),
        (PLAIN.format("os.access('new.json', os.R_OK)"), "new.json"),
        (PLAIN.format("os.listdir('names')"), "names/new.json"),
        (PLAIN.format("__import__('glob').glob('names/*.json')"), "names/new.json"),
        (IN_FORWARD, "there.txt"),
        (AT_IMPORT, "there.txt"),
    ],
    ids=["absent", "exists", "pathlib", "access", "listdir", "glob", "forward", "import"],
)
def test_whatever_a_factory_asks_for_counts_also_what_is_not_there(
    repo: Repo, measured: list[str], code: str, changed: str
) -> None:
    repo.forget()
    repo.write("watched_net.py", code)
    (repo.path / "there.txt").write_text("1")
    (repo.path / "names").mkdir()
    both = ("--fa-checkpoint=runs/bp_*.pt", WATCHED, "--fa-diagnostics=a")
    for _ in range(2):
        repo.run(*both).assert_outcomes(passed=2)
    assert len(measured) == 2, "both are kept"
    (repo.path / changed).write_text("another")
    for _ in range(2):
        repo.run(*both).assert_outcomes(passed=2)
    assert len(measured) == 4, "and both are measured again, once"


def test_a_file_that_changes_after_a_factory_read_it_leaves_nothing_that_holds(repo: Repo, measured: list[str]) -> None:
    """Its digest was taken when all was measured, and was that of a content which nobody had read."""
    repo.forget()
    (repo.path / "there.txt").write_text("1")
    code = "file = __import__('pathlib').Path('there.txt')\n    file.read_text()\n    file.write_text('another')"
    repo.write("watched_net.py", PLAIN.format(code))
    for _ in range(2):
        (repo.path / "there.txt").write_text("1")
        repo.run(BP, WATCHED, "--fa-diagnostics=a").assert_outcomes(passed=1)
    (repo.path / "there.txt").write_text("another")
    repo.run(BP, WATCHED, "--fa-diagnostics=a").assert_outcomes(passed=1)
    assert len(measured) == 3


def test_watching_leaves_os_as_it_was(tmp_path: Path) -> None:
    before = os.stat, os.access
    watch, within = Watch(), Watch()
    with pytest.raises(ValueError, match="null"), watch, within:
        assert os.path.exists(tmp_path) and os.stat not in before
        (tmp_path / "made").write_text("")
        open("a\0b")  # noqa: SIM115
    assert (os.stat, os.access) == before
    assert watch.seen() == within.seen() == {"files": {}, "folders": {}, "asked": {str(tmp_path): "folder"}}


def test_an_installed_package_of_the_same_version_with_other_code_counts(
    repo: Repo, measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.forget()
    repo.write("site-packages/watched_lab/__init__.py", PLAIN.format(""))
    monkeypatch.syspath_prepend(str(repo.path / "site-packages"))
    for change in ("", "", "# another\n", ""):
        with (repo.path / "site-packages" / "watched_lab" / "__init__.py").open("a") as file:
            file.write(change)
        repo.run(BP, "--fa-model=watched_lab:make", "--fa-diagnostics=a").assert_outcomes(passed=1)
    assert len(measured) == 2
    os.utime(repo.path / "site-packages" / "watched_lab" / "__init__.py", (1, 1))
    repo.run(BP, "--fa-model=watched_lab:make", "--fa-diagnostics=a").assert_outcomes(passed=1)
    assert len(measured) == 2, "the same content, installed again"


@pytest.mark.parametrize("before", ["", "import watched_net\n"], ids=["new", "changed"])
def test_a_conftest_that_may_change_a_factorys_module_counts(repo: Repo, measured: list[str], before: str) -> None:
    repo.forget()
    repo.write("watched_net.py", PLAIN.format(""))
    if before:
        repo.write("conftest.py", before)
    for _ in range(2):
        repo.run(BP, WATCHED, "--fa-diagnostics=a").assert_outcomes(passed=1)
    assert len(measured) == 1
    repo.write("conftest.py", "import watched_net\nwatched_net.ROLL = True\n")
    for _ in range(2):
        repo.run(BP, WATCHED, "--fa-diagnostics=a").assert_outcomes(passed=1)
    assert len(measured) == 2


def test_a_module_that_a_conftest_imported_and_a_factory_finds_by_its_name_counts(repo: Repo, measured: list[str]) -> None:
    repo.forget()
    repo.write("watched_layers.py", PLAIN.format(""))
    repo.write(
        "watched_net.py", "import sys\nfind = getattr(sys, 'mod' + 'ules')\ndef make(): return find['watched_layers'].make()\n"
    )
    repo.write("conftest.py", "import watched_layers\n")
    for _ in range(2):
        repo.run(BP, WATCHED, "--fa-diagnostics=a").assert_outcomes(passed=1)
    assert len(measured) == 1
    repo.write("watched_layers.py", PLAIN.format("'another'"))
    repo.run(BP, WATCHED, "--fa-diagnostics=a").assert_outcomes(passed=1)
    assert len(measured) == 2


def test_a_file_that_a_credit_function_reads_counts(repo: Repo, measured: list[str]) -> None:
    repo.forget()
    (repo.path / "there.txt").write_text("1")
    repo.write(
        "watched_rule.py",
        "import torch, pathlib\ndef credit(model, x, y, checkpoint):\n    sign = float(pathlib.Path('there.txt').read_text())\n"
        "    h, states = model.embed(x).detach().requires_grad_(), []\n"
        "    for block in model.blocks:\n        h = h + block(h)\n        states.append(h)\n"
        "    loss = torch.nn.functional.cross_entropy(model.out_head(model.out_ln(h)), y, reduction='sum')\n"
        "    return [sign * grad for grad in torch.autograd.grad(loss, states)]\n",
    )
    options = (BP, "--fa-credit=watched_rule:credit", "--fa-diagnostics=f")
    for _ in range(2):
        repo.run(*options).assert_outcomes(passed=1)
    assert len(measured) == 1
    (repo.path / "there.txt").write_text("-1")
    for _ in range(2):
        repo.run(*options).assert_outcomes(failed=1)
    assert len(measured) == 2
