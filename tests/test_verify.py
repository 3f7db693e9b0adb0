"""A certificate measured again: what reproduces, what was changed, what a forged one cannot do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pytest_fadiag import ResidualMLP
from pytest_fadiag.auditor import Auditor
from pytest_fadiag.cli import main
from pytest_fadiag.judge.diagnostics import select
from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.load.controls import parse_controls
from pytest_fadiag.load.names import file_digest
from pytest_fadiag.load.setup import Setup
from pytest_fadiag.load.sources import data_digest
from pytest_fadiag.show.audit import Audit, Origin, Outcome, Row
from pytest_fadiag.show.combine import margins_of
from pytest_fadiag.show.json import json_text
from pytest_fadiag.verify import Files, verify

IDS = ("runs/bp_s1.pt", "runs/bp_s2.pt")
CONTROL = "controls/frozen_bp_s1.pt"
EVIL = "open({!r}, 'w').write('ran')"


class Shared:
    """A folder with two networks, a control and test data, and its certificate."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ran = folder, folder.parent / "ran"
        random = np.random.default_rng(0)
        centres = random.normal(size=(4, 12))
        y = np.arange(1400) % 4
        x = centres[y] + 0.7 * random.normal(size=(1400, 12))
        np.savez(folder / "data.npz", x=x.astype(np.float32), y=y)
        for seed, name in enumerate((*IDS, CONTROL), 1):
            torch.manual_seed(seed)
            (folder / name).parent.mkdir(exist_ok=True)
            network = ResidualMLP(12, 16, 2, 4)
            network.blocks[0].fc2.weight.data *= 1e4 if seed == 2 else 1  # (a) fires
            torch.save({"state_dict": network.state_dict()}, folder / name)
        self.certificate = folder / "audit.json"
        files = {name: file_digest(folder / name) for name in (*IDS, CONTROL)}
        options = {"data": ("data.npz",), "frozen": ("controls/*.pt",)}
        origin = Origin(created="2026-01-01", files=files, options=options)
        auditor = Auditor(Setup(data=str(folder / "data.npz")))
        control = parse_controls([str(folder / CONTROL)])
        rows = []
        for seed, name in enumerate(IDS, 1):
            report = auditor.report(folder / name, diagnostics=select("abcd"), control=control)
            keys = {
                key: Outcome.FAILED if key in report.fired else Outcome.PASSED for key in "abcd"
            }
            rows.append(Row(name, "bp", seed, report, keys, group="bp"))
        audit = Audit(tuple(rows), margins_of(rows, {}), origin=origin)
        self.certificate.write_text(json_text(audit), "utf-8")

    def edit(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the certificate as a forger would."""
        content = json.loads(self.certificate.read_text("utf-8"))
        change(content)
        self.certificate.write_text(json.dumps(content), "utf-8")


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    (tmp_path / "shared").mkdir()
    return Shared(tmp_path / "shared")


@pytest.fixture
def verified(
    shared: Shared, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str]]:
    """Verify the certificate from elsewhere, and return exit code and output."""
    (shared.folder.parent / "elsewhere").mkdir()
    monkeypatch.chdir(shared.folder.parent / "elsewhere")

    def run(**typed: Any) -> tuple[int, str]:
        before = list(sys.path)
        code = verify(shared.certificate, [shared.folder], **typed)
        assert sys.path == before, "a folder of the certificate is on the path"
        return code, capsys.readouterr().out

    return run


def test_an_honest_certificate_reproduces(verified: Callable[..., tuple[int, str]]) -> None:
    assert verified() == (0, f"✓ {IDS[0]}\n✓ {IDS[1]}\n2 of 2 results reproduce\n")


def test_files_are_found_by_their_content(
    shared: Shared, verified: Callable[..., tuple[int, str]]
) -> None:
    (shared.folder / "runs").rename(shared.folder / "unpacked")
    assert verified()[0] == 0
    (shared.folder / "unpacked/bp_s1.pt").unlink()
    code, out = verified()
    assert (
        code == 1
        and f"✗ {IDS[0]}: no file of this name with SHA-256" in out
        and f"✓ {IDS[1]}" in out
    )


def test_files_that_are_alike_keep_their_names(tmp_path: Path) -> None:
    for name in ("bp_s1.pt", "bp_s2.pt"):
        (tmp_path / name).write_text("the same")
    digest = file_digest(tmp_path / "bp_s1.pt")
    paths = ("runs/bp_s1.pt", "runs/bp_s2.pt", "runs/renamed.pt")
    files = Files(Origin(created="2026-01-01", files=dict.fromkeys(paths, digest)), [tmp_path])
    assert [files.places[path].name for path in paths[:2]] == ["bp_s1.pt", "bp_s2.pt"]
    assert files.places["runs/renamed.pt"].parent == tmp_path


def fadiag(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest_fadiag", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


NAMED = ("--data", "data.npz", "--frozen", "controls/*.pt", "--report", "certificate:made")


def test_the_command_verifies_what_the_command_certified(shared: Shared) -> None:
    fadiag(shared.folder, "audit", *IDS, *NAMED)
    done = fadiag(shared.folder, "verify", "made")
    assert done.returncode == 0 and "2 of 2 results reproduce" in done.stdout, done.stderr


@pytest.mark.parametrize("words", [["runs/bp_s1.pt"], ["--bp", "runs/bp_s1.pt"]], ids=str)
def test_a_twin_is_measured_again_as_it_was(shared: Shared, words: list[str]) -> None:
    """Beside a control in doubt (e) is added for the network, and not for its twin."""
    held = np.load(shared.folder / "data.npz")
    x, y = map(torch.from_numpy, (held["x"], held["y"]))
    for name, epochs in (
        *(("runs/bp", 9), ("controls/frozen_bp", 9)),
        *(("runs/dfa", 9), ("controls/frozen_dfa", 1)),
    ):
        torch.manual_seed(epochs)
        network = ResidualMLP(12, 16, 2, 4)
        network.blocks.requires_grad_("frozen" not in name)
        optimiser = torch.optim.Adam(network.parameters(), 1e-2)
        for _ in range(60):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(network(x), y).backward()
            optimiser.step()
        file = shared.folder / f"{name}_s1.pt"
        torch.save({"state_dict": network.state_dict(), "config": {"epochs": epochs}}, file)
    fadiag(shared.folder, "audit", "runs/dfa_s1.pt", *words, *NAMED)
    report = json.loads((shared.folder / "made/audit.json").read_text("utf-8"))["rows"][-1][
        "report"
    ]
    assert "depth-utility" in report["diagnostics"] and report["twin"]["utility_pp"] is None
    done = fadiag(shared.folder, "verify", "made")
    assert done.returncode == 0, done.stdout + done.stderr


def change_weight(shared: Shared) -> None:
    content = torch.load(shared.folder / IDS[0], weights_only=True)
    content["state_dict"]["embed.weight"][0, 0] += 1
    torch.save(content, shared.folder / IDS[0])


def change_image(shared: Shared) -> None:
    data = dict(np.load(shared.folder / "data.npz"))
    data["x"][0, 0] += 1
    np.savez(shared.folder / "data.npz", **data)


@pytest.mark.parametrize(
    ("forge", "told"),
    [
        (
            change_weight,
            [f"✗ {IDS[0]}: no file of this name with SHA-256", f"✓ {IDS[1]}", "1 of 2 results"],
        ),
        (change_image, [f"✗ {IDS[0]}: ", "0 of 2 results"]),
        (
            lambda s: s.edit(lambda c: c["rows"][0]["report"]["residual_norms"].append(1.0)),
            [f"✗ {IDS[0]}: residual_norms", f"✓ {IDS[1]}"],
        ),
        (
            lambda s: s.edit(lambda c: c["rows"][1]["report"].update(cross_batch_stability=0.5)),
            [f"✗ {IDS[1]}: ", "cross_batch_stability"],
        ),
        (
            lambda s: s.edit(lambda c: c["rows"][1]["outcomes"].update(a="passed")),
            [f"✗ {IDS[1]}: (a) is recorded as passed, and fails"],
        ),
        (
            lambda s: s.edit(lambda c: c["rows"][0].update(checkpoint="runs/other_s1.pt")),
            ["✗ runs/other_s1.pt: no file of this name with SHA-256"],
        ),
        (
            lambda s: s.edit(lambda c: c["margins"][0]["margin"].update(margin=9.0)),
            ["✗ bp: ", "+9.0000 pp is recorded, its rows give ", "2 of 2 results"],
        ),
        (
            lambda s: s.edit(
                lambda c: c["rows"][0]["report"]["thresholds"].update(h_norm_explosion_ratio=60.0)
            ),
            ["note: threshold h_norm_explosion_ratio 60"],
        ),
        (lambda s: (s.folder / CONTROL).unlink(), [f"✗ {IDS[0]}: control: "]),
        (
            lambda s: s.edit(lambda c: c["rows"][0]["report"].update(loss="squared error")),
            [f"✗ {IDS[0]}: loss: squared error → cross-entropy"],
        ),
        (
            lambda s: s.edit(lambda c: c["rows"][0].update(method="dfa")),
            [f"✗ {IDS[0]}: its row says dfa, its file bp"],
        ),
    ],
    ids=(
        "weight",
        "image",
        "length",
        "number",
        "outcome",
        "name",
        "margin",
        "threshold",
        "control",
        "loss",
        "method",
    ),
)
def test_what_was_changed_is_told(
    forge: Callable[[Shared], object],
    told: list[str],
    shared: Shared,
    verified: Callable[..., tuple[int, str]],
) -> None:
    forge(shared)
    code, out = verified()
    assert all(text in out for text in told), out
    assert code == int("note:" not in out)


@pytest.mark.parametrize(
    ("options", "typed"),
    [
        ({"model": ("evil:build",)}, {"model": "evil:build"}),
        ({"credit": ("evil:build",)}, {"credit": "evil:build"}),
        ({"step": ("evil:build",)}, {"step": "evil:build"}),
        ({"loss": ("evil:build",)}, {"loss": "evil:build"}),
        ({"forward": ("cifar10:build",)}, {"forward": "cifar10:build"}),
        ({"data": ("evil:build",)}, {"data": "evil:build"}),
        ({"unsafe-load": ("True",)}, {"unsafe_load": True}),
    ],
)
def test_what_runs_code_must_be_typed(
    options: dict[str, Any], typed: dict[str, Any], shared: Shared, verified: Callable[..., Any]
) -> None:
    """The folder of the certificate holds the module, the working folder does not."""
    (shared.folder / "evil.py").write_text(EVIL.format(str(shared.ran)))
    shared.edit(lambda content: content["origin"]["options"].update(options))
    with pytest.raises(AuditError, match=f"--{next(iter(options))} .*, which runs code; type that"):
        verified()
    assert not shared.ran.exists()


def test_the_training_split_of_the_test_data_need_not_be_typed(
    shared: Shared, verified: Callable[..., tuple[int, str]]
) -> None:
    shared.edit(lambda content: content["origin"]["options"].update(train=("auto",)))
    assert ": auto training data: only fashion-mnist:" in verified()[1]


def test_what_is_typed_is_compared_with_the_record(
    verified: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("mine.py").write_text(
        "from pytest_fadiag import ResidualMLP\ndef net(c): return ResidualMLP(12, 16, 2, 4)"
    )
    monkeypatch.syspath_prepend(str(Path.cwd()))
    code, out = verified(model="mine:net")
    assert (code, "✗ --model: none is recorded, mine:net was typed" in out) == (1, True)
    assert "2 of 2 results reproduce" in out


def test_nothing_in_its_folders_runs_or_is_written(shared: Shared) -> None:
    """The six ways in which a stranger's certificate once ran code or wrote files."""
    folder, victim = shared.folder, shared.folder.parent / "victim"
    victim.write_text("precious")
    for name in ("sitecustomize.py", "usercustomize.py", "conftest.py", "torch.py", "triton.py"):
        (folder / name).write_text(EVIL.format(str(shared.ran)))
    (folder / "pytest.ini").symlink_to(victim)
    (folder / "runs/bp_s3.pt").symlink_to(victim)

    def forge(content: dict[str, Any]) -> None:
        origin = content["origin"]
        origin["options"].update(report=[f"markdown:{victim}"], expect=[str(victim)], p=["evil"])
        for name in ("conftest.py", "sitecustomize.py", "pytest.ini", "runs/bp_s3.pt"):
            origin["files"][name] = file_digest(folder / name)
        origin["files"] |= {"/etc/hostname": "0" * 64, "../" * 9 + "x.pt": "0" * 64, "a" * 999: "0"}
        origin["created"] = "\x1b[2J"

    shared.edit(forge)
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    words = ["verify", "audit.json", "--root", "."]
    code = f"import sys; from pytest_fadiag.cli import main; sys.exit(main({words!r}))"
    done = subprocess.run(
        [sys.executable, "-P" if sys.version_info >= (3, 11) else "-I", "-c", code],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "") and "2 of 2 results" in done.stdout, done
    assert not shared.ran.exists() and victim.read_text() == "precious"


def test_names_are_escaped(
    shared: Shared, verified: Callable[..., tuple[int, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    raw = "runs/\x1b[31m\n✓ forged\x07" + "long" * 200
    shared.edit(lambda content: content["rows"][0].update(checkpoint=raw, method=raw, group=raw))
    shared.edit(lambda content: content["origin"]["files"].update({raw: "0" * 64}))
    code, out = verified()
    assert code == 1 and "\x1b" not in out and "\x07" not in out and "\n✓ forged" not in out
    shared.edit(lambda content: content["origin"]["options"].update(model=[raw]))
    assert main(["verify", str(shared.certificate)]) == 4
    assert "\x1b" not in capsys.readouterr().err


def test_nothing_outside_the_folders_is_looked_at(
    shared: Shared, verified: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = shared.folder.parent / "abroad"
    outside.mkdir()
    (shared.folder / "data.npz").rename(outside / "data.npz")
    (shared.folder / "linked").symlink_to(outside)
    looked: list[str] = []

    def digest(spec: str) -> str | None:
        looked.append(spec)
        return data_digest(spec)

    monkeypatch.setattr("pytest_fadiag.verify.data_digest", digest)
    for path in (str(outside / "data.npz"), "../abroad/data.npz", "linked/data.npz", "a\0.npz"):
        shared.edit(lambda content, path=path: content["origin"]["options"].update(data=[path]))
        with pytest.raises(AuditError, match="not below the working folder; name its folder with"):
            verified()
        shared.edit(lambda content, path=path: content["origin"]["files"].update({path: "0" * 64}))
    assert not [spec for spec in looked if "abroad" in os.path.realpath(spec)]
    monkeypatch.undo()
    assert verified(data=str(outside / "data.npz"))[0] == 0


def test_a_certificate_of_a_list_is_measured_by_that_list(
    shared: Shared, verified: Callable[..., tuple[int, str]]
) -> None:
    """Its control is in doubt, it was compared with BP, and (e) was not asked for."""
    named = ("--data", "data.npz", "--frozen", "0.25", "--diagnostics", "abcd")
    fadiag(shared.folder, "audit", *IDS, "--bp", IDS[0], *named, "--report", "certificate:made")
    done = fadiag(shared.folder, "verify", "made")
    assert "2 of 2 results reproduce" in done.stdout, done.stdout + done.stderr


def first(content: dict[str, Any]) -> Any:
    return content["rows"][0]["report"]


@pytest.mark.parametrize(
    ("forge", "expected"),
    [
        (lambda c: c["origin"]["files"].update({f"{n}.pt": "" for n in range(10_001)}), "files"),
        (lambda c: c.update(rows=[{"checkpoint": "", "method": ""}] * 10_001), "rows"),
        (lambda c: c.update(shard=[1, 10**9]), "shard"),
        (lambda c: c.update(shard=[0, 2]), "shard"),
        (lambda c: first(c).update(residual_norms=[1.0] * 10_001), "residual_norms"),
        (lambda c: first(c)["score"].update(images=-1), "images"),
        (lambda c: first(c)["score"].update(correct="zz"), "correct"),
        (lambda c: first(c)["stream"].update(blocks=[]), "blocks"),
    ],
    ids=["names", "rows", "parts", "part 0", "layers", "images", "outcomes", "blocks"],
)
def test_a_certificate_that_cannot_be_is_refused_where_it_is_read(
    forge: Callable[[dict[str, Any]], object],
    expected: str,
    shared: Shared,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shared.edit(forge)
    assert main(["show", str(shared.certificate)]) == 4
    error = capsys.readouterr().err
    assert "not a valid audit: Expected" in error and expected in error


def test_a_name_that_is_no_text_is_shown_and_written(
    shared: Shared, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shared.edit(lambda content: content["rows"][0].update(checkpoint="a\ud800", method="b\udcff"))
    words = [
        f"--report={kind}:{tmp_path}/x.{kind}" for kind in ("html", "json", "markdown", "table")
    ]
    assert main(["show", str(shared.certificate), *words]) == 1
    capsys.readouterr()
    assert "\\ud800" in (tmp_path / "x.json").read_text("utf-8")


def test_an_audit_without_files_is_refused(shared: Shared) -> None:
    shared.edit(lambda content: content["origin"].update(files={}))
    with pytest.raises(AuditError, match="names no files; write it with --fa-report=certificate"):
        verify(shared.certificate)
