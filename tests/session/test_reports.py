"""The files of --fa-report: every type from one audit, an old one rendered again, and what is wrong with a destination."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from repo import Repo

AUDIT = ("--fa-checkpoint=runs", "--fa-frozen=controls/*.pt")
LOG = {"epoch": 1, "hidden_norms": [1, 2], "bp_grad_norms": [1e-4, 1e-4], "acc_eval": 0.9}


def logs(repo: Repo, *names: str) -> None:
    for name in names:
        entries = [{**LOG, "epoch": epoch, "acc_eval": 0.5 + epoch / 10} for epoch in (1, 2, 3)]
        (repo.path / name).write_text(json.dumps({"config": {"grad_batch_size": 128}, "log": entries}))


def test_every_type_of_report_is_written_from_one_run(repo: Repo) -> None:
    logs(repo, "dfa_s1.json", "dfa_s2.json")
    types = ("json:a.json", "markdown:a.md", "html:a.html", "figures:figs", "form:form.md")
    result = repo.run(*AUDIT, "--fa-log=dfa_s*.json", *(f"--fa-report={kind}" for kind in types))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    files = {path.relative_to(repo.path).as_posix() for path in repo.path.rglob("*") if path.is_file()}
    drawn = {f"figs/{name}.{kind}" for name in ("audit", "rescue", "timeline") for kind in ("png", "pdf")}
    assert {"a.json", "a.md", "a.html", "form.md"} | drawn <= files
    assert not [name for name in files if "tmp" in Path(name).name]


def test_default_destinations(repo: Repo) -> None:
    repo.run(*AUDIT, *(f"--fa-report={kind}" for kind in ("json", "markdown", "html", "figures", "form")))
    for name in ("audit.json", "audit.md", "audit.html", "figures/audit.png", "form.md"):
        assert (repo.path / name).exists(), name


def test_a_figure_without_numbers_is_said_to_be_missing_and_so_is_one_of_an_earlier_run(repo: Repo) -> None:
    (repo.path / "figs").mkdir()
    (repo.path / "figs" / "rescue.png").write_bytes(b"old")
    result = repo.run(*AUDIT, "--fa-report=figures:figs")
    result.stdout.fnmatch_lines(
        [
            "FA audit: no figure «rescue»: no report has numbers by epoch; *--fa-log",
            "FA audit: *rescue.png is of an earlier run, and not of this one",
        ]
    )
    assert (repo.path / "figs" / "rescue.png").read_bytes() == b"old"


@pytest.mark.parametrize("compared", [False, True], ids=["alone", "compared with a record"])
def test_the_json_of_a_run_renders_to_the_same_page_again(repo: Repo, compared: bool) -> None:
    logs(repo, "dfa_s1.json", "dfa_s2.json")
    code = repo.write("norms.py", "def f(h):\n    return h.norm(-1)\n")
    options = [*AUDIT, "--fa-log=dfa_s*.json", f"--fa-checklist={code}"]
    if compared:
        repo.run(*options, "--fa-report=json:record.json", "--fa-frozen=0.3")
        options.append("--fa-expect=record.json")
    repo.run(*options, "--fa-report=json:a.json", "--fa-report=html:a.html", "--fa-report=form:a.md")
    repo.run("--fa-merge=a.json", "--fa-report=json:b.json", "--fa-report=html:b.html", "--fa-report=form:b.md")
    for kind in ("json", "html", "md"):
        assert (repo.path / f"b.{kind}").read_text("utf-8") == (repo.path / f"a.{kind}").read_text("utf-8"), kind


def test_the_json_validates_against_the_published_schema(repo: Repo) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    import pytest_fadiag

    schema = json.loads((Path(pytest_fadiag.__file__).parent / "show" / "audit.schema.json").read_text("utf-8"))
    logs(repo, "dfa_s1.json", "dfa_s2.json")
    (repo.path / "runs" / "bad_s1.pt").write_bytes(b"x")
    document = repo.audit(*AUDIT, "--fa-log=dfa_s*.json")
    jsonschema.validate(document, schema)
    document["reports"]["runs/bp_s42.pt"]["headline_acc"] = "high"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema)


@pytest.mark.parametrize("kind", ["json", "markdown", "html", "form"])
def test_a_destination_that_is_a_folder_is_refused_before_anything_runs(repo: Repo, kind: str) -> None:
    result = repo.run(*AUDIT, f"--fa-report={kind}:runs")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --fa-report={kind}: is a folder; name the file to write in it", "  *runs"])


def test_a_file_where_figures_should_go_is_refused(repo: Repo) -> None:
    result = repo.run(*AUDIT, "--fa-report=figures:data.npz")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fa-report=figures: is a file; name a folder", "  *data.npz"])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.parametrize("kind", ["html", "figures"])
def test_a_folder_that_cannot_be_written_to_is_refused(repo: Repo, kind: str) -> None:
    (repo.path / "closed").mkdir(mode=0o500)
    result = repo.run(*AUDIT, f"--fa-report={kind}:closed/there")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_a_report_of_an_earlier_run_is_replaced_whole(repo: Repo) -> None:
    (repo.path / "a.html").write_text("x" * 1_000_000)
    repo.run("--fa-checkpoint=runs/bp_s42.pt", "--fa-report=html:a.html")
    text = (repo.path / "a.html").read_text("utf-8")
    assert "xxx" not in text and text.rstrip().endswith("</html>")


def test_a_report_that_fails_to_render_leaves_the_others_and_the_earlier_file(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pytest_fadiag.show.html as module

    def broken(*args: Any) -> str:
        raise OSError("No space left on device")

    monkeypatch.setattr(module, "html", broken)
    (repo.path / "a.html").write_text("earlier")
    result = repo.run("--fa-checkpoint=runs/bp_s42.pt", "--fa-report=html:a.html", "--fa-report=json:a.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["ERROR: --fa-report=html: cannot be written: No space left on device"])
    assert (repo.path / "a.html").read_text() == "earlier" and (repo.path / "a.json").exists()


def test_a_method_with_markup_in_its_name_stays_text_in_every_file(repo: Repo) -> None:
    import torch

    path = repo.path / "runs" / "dfa_s42.pt"
    content = torch.load(path, weights_only=True)
    content["config"]["method"] = "<script>alert(1)</script>\x1b[31m|`x`"
    torch.save(content, path)
    repo.run(*AUDIT, *(f"--fa-report={kind}:out.{kind}" for kind in ("html", "markdown", "form")))
    for kind in ("html", "markdown", "form"):
        text = (repo.path / f"out.{kind}").read_text("utf-8")
        assert "<script>alert" not in text and "\x1b" not in text and "alert" in text, kind


def test_nothing_is_written_by_a_run_of_nothing(repo: Repo) -> None:
    result = repo.run(*AUDIT, "-k", "nothing", "--fa-report=html:a.html", "--fa-report=figures:figs")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert not (repo.path / "a.html").exists() and not (repo.path / "figs").exists()


def test_two_reports_do_not_share_a_file(repo: Repo) -> None:
    result = repo.run(*AUDIT, "--fa-report=json:a.out", "--fa-report=html:a.out")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fa-report: json and html would be written to one file", "  *a.out"])


def test_a_run_says_what_it_wrote(repo: Repo) -> None:
    result = repo.run(*AUDIT, "--fa-report=json:a.json", "--fa-report=html")
    result.stdout.fnmatch_lines(["FA audit: json written to *a.json", "FA audit: html written to *audit.html"])
