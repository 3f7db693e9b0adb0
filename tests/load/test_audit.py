"""From a checkpoint on disk to its report: load, measure, judge, with the control on the same images."""

from __future__ import annotations

import json
import re
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support import clustered, network, trained
from torch import nn

from pytest_fadiag import Accuracy, AuditError, Control, DiagnosticReport, audit, diagnose
from pytest_fadiag.bench import Bench
from pytest_fadiag.load.controls import ControlFile, control_of
from pytest_fadiag.load.data import DataSet
from pytest_fadiag.load.digests import file_digest
from pytest_fadiag.load.networks import choose_device
from pytest_fadiag.load.setup import Setup
from pytest_fadiag.load.vision import import_torchvision
from pytest_fadiag.workshop import load_data

Save = Callable[..., Path]


@pytest.fixture
def learned(save: Save) -> Path:
    """A checkpoint of a network that was trained on the data."""
    state = trained(60, samples=300).state_dict()
    return save("dfa_s42.pt", {"state_dict": state, "config": {"method": "dfa", "seed": 42}, "test_acc": 0.2})


def test_the_report_of_a_file_is_that_of_the_network_in_memory(learned: Path, archive: str) -> None:
    data = load_data(archive)
    report = audit(learned, data=archive, device="cpu")
    memory = diagnose(model=trained(60, samples=300), eval_batches=[(data.x, data.y)], method_name="dfa", seed=42)
    assert (report.method_name, report.seed) == ("dfa", 42)
    assert report.residual_norms == pytest.approx(memory.residual_norms, rel=1e-6)
    assert report.bp_grad_norms == pytest.approx(memory.bp_grad_norms, rel=1e-6)
    assert report.headline_acc == memory.headline_acc
    assert report.notes == "dfa_s42.pt on data.pt"
    assert report.checkpoint == "dfa_s42.pt"


def test_a_claim_that_the_measurement_does_not_bear_out_is_said(learned: Path, archive: str) -> None:
    assert any("claims accuracy 0.2000, but" in remark for remark in audit(learned, data=archive).remarks)


def test_probes_are_read_of_a_control_as_of_a_network_and_of_one_without_blocks_none(
    learned: Path, save: Save, tmp_path: Path
) -> None:
    x, y = clustered(1200)
    blurred = x + 4 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    torch.save({"x": blurred, "y": y}, tmp_path / "more.pt")
    bench = Bench(Setup(str(tmp_path / "more.pt"), device="cpu"))
    frozen = save("frozen_dfa_s42.pt", {"state_dict": trained(60, samples=300, seed=1).state_dict()})
    asked = bench.registry.diagnostics.select("abcde")
    own = bench.record(frozen, asked).judge(None, None, asked).probe_accuracies
    control = bench.control(ControlFile.named(frozen), beside=asked)
    assert control is not None and len(control.probes) == 5 and control.probes == own
    without_depth = bench.control(ControlFile.named(frozen), beside=asked[:4])
    assert without_depth == replace(control, probes=control.probes[:1]), "h_0 alone, which tells one that was hardly trained"
    assert len(set(control.probes)) > 1
    report = bench.record(learned, asked).judge(control, None, asked)
    assert "of the control: h_0 " in str(report) and DiagnosticReport.from_dict(report.to_dict()).control == report.control
    save("shallow_dfa_s42.pt", {"state_dict": network(blocks=0).state_dict()})
    shallow = bench.control(ControlFile.named(frozen.with_name("shallow_dfa_s42.pt")))
    assert shallow is not None and shallow.probes == ()


def test_512_images_go_at_once_where_nothing_is_differentiated_and_no_more_than_are_allowed(
    learned: Path, tmp_path: Path
) -> None:
    x, y = clustered(3000)
    torch.save({"x": x, "y": y}, tmp_path / "more.pt")
    at_once: dict[bool, set[int]] = {}
    model = network()
    model.register_forward_pre_hook(lambda _, args: at_once.setdefault(torch.is_grad_enabled(), set()).add(len(args[0])))
    reports = []
    for allowed in ({}, {"batch_size": 100}):
        at_once.clear()
        reports.append(audit(learned, data=str(tmp_path / "more.pt"), model=model, frozen=0.1, device="cpu", **allowed))
        assert max(at_once[True]) == allowed.get("batch_size", 128) and max(at_once[False]) == allowed.get("batch_size", 512)
    assert reports[0].headline_acc == reports[1].headline_acc


def test_a_control_checkpoint_is_evaluated_on_the_same_images(learned: Path, archive: str, save: Save) -> None:
    control = save("frozen_dfa_s42.pt")
    report = audit(learned, data=archive, frozen=control)
    x, y = clustered(300)
    hits = (network()(x).argmax(1) == y).tolist()
    assert report.control is not None
    assert report.control.accuracy == Accuracy.of(hits, report.control.accuracy.order, file_digest(Path(archive)))
    assert re.search(r"95 % interval .* \(paired over 300 images\)", str(report))
    assert "(frozen_dfa_s42.pt, seed 42)" in str(report)


def test_a_control_without_blocks_needs_no_stream(learned: Path, archive: str, save: Save) -> None:
    shallow = save("shallow_dfa_s42.pt", {"state_dict": network(blocks=0).state_dict(), "config": {"shallow": True}})
    report = audit(learned, data=archive, frozen=str(shallow))
    assert report.control is not None
    assert (report.control.kind, report.control.method) == ("shallow", "dfa")


@pytest.mark.parametrize(
    ("frozen", "value"),
    [(0.5, 0.5), ({"dfa": 0.4, "bp": 0.6}, 0.4), ("0.3", 0.3), (Control(Accuracy(0.2), "mine"), 0.2), (None, None)],
)
def test_a_control_may_be_a_number_a_mapping_or_none(frozen: Any, value: float | None, learned: Path, archive: str) -> None:
    assert audit(learned, data=archive, frozen=frozen).frozen_baseline_acc == value


def test_an_earlier_report_gives_its_control_again(learned: Path, archive: str, save: Save, tmp_path: Path) -> None:
    first = audit(learned, data=archive, frozen=save("frozen_dfa_s42.pt"))
    (tmp_path / "audit.json").write_text(json.dumps({"reports": {"dfa_s42.pt": first.to_dict()}}))
    again = audit(learned, data=archive, frozen=tmp_path / "audit.json")
    assert again.control == first.control
    assert str(again) == str(first)


def test_controls_of_which_none_fits_are_an_error(learned: Path, archive: str) -> None:
    with pytest.raises(AuditError, match=r"none of the controls supplied is for dfa: they are for bp, ep; name its own"):
        audit(learned, data=archive, frozen={"bp": 0.6, "ep": 0.3})


def test_a_percentage_is_rejected_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="did you pass a percentage"):
        audit(tmp_path / "none.pt", data="none.npz", frozen=34.9)


@pytest.mark.parametrize(
    ("name", "config", "method", "seed", "kind"),
    [
        ("frozen_dfa_s1.pt", {}, "dfa", 1, "frozen"),
        ("control.pt", {"method": "dfa", "seed": 3, "frozen": True}, "dfa", 3, "frozen"),
        ("control.pt", {"method": "dfa-frozen", "seed": "3"}, "dfa", 3, "frozen"),
        ("frozen_bp_s1.pt", {"method": "dfa", "shallow": True, "frozen": False}, "dfa", 1, "shallow"),
        ("control.pt", {"method": "shallow_dfa"}, "dfa", None, "shallow"),
    ],
)
def test_a_control_is_labelled_by_its_config_before_its_name(
    name: str, config: dict[str, Any], method: str, seed: int | None, kind: str
) -> None:
    control = control_of(ControlFile.named(Path(name)), config, Accuracy(0.5))
    assert (control.method, control.seed, control.kind, control.source) == (method, seed, kind, name)


def test_images_are_normalised_as_each_checkpoint_says(save: Save) -> None:
    x = torch.randint(0, 256, (300, 1, 4, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    data = DataSet(x, torch.arange(300) % 5, "images", (0.2860,), (0.3530,))
    raw = audit(save(config={"mean": [0.0], "std": [1.0]}), data=data)
    scaled = audit(save(config={"normalize": {"mean": 0.0, "std": 0.01}}), data=data)
    usual = audit(save(), data=data)
    by_hand = [
        network().embed((x.flatten(1) / 255 - mean) / std).norm(dim=1).median().item()
        for mean, std in [(0, 1), (0, 0.01), (0.286, 0.353)]
    ]
    assert [r.residual_norms[0] for r in (raw, scaled, usual)] == pytest.approx(by_hand, rel=1e-2)


def test_the_data_of_a_folder_says_its_order_in_the_report(learned: Path) -> None:
    x, y = clustered(300)
    report = audit(learned, data=DataSet(x, y, "folder birds", note="taken in a fixed shuffled order"))
    assert report.notes == "dfa_s42.pt on folder birds; taken in a fixed shuffled order"


def test_half_precision_is_audited_in_float32_and_said(save: Save, archive: str) -> None:
    half = audit(save(content=network().half().state_dict()), data=archive)
    full = audit(save(content=network().half().float().state_dict()), data=archive)
    assert half.residual_norms == full.residual_norms
    assert half.bp_grad_norms == full.bp_grad_norms
    assert "the checkpoint is half precision (float16); it was audited in float32" in half.remarks


def test_a_checkpoint_that_is_partly_half_precision_is_said_to_be(save: Save, archive: str) -> None:
    model = network().bfloat16()
    model.out_ln.float()
    assert any("bfloat16" in remark for remark in audit(save(content=model.state_dict()), data=archive).remarks)


def test_progress_tells_the_samples_done_and_their_number(learned: Path, archive: str) -> None:
    told: list[tuple[int, int]] = []
    audit(learned, data=archive, progress=lambda done, total: told.append((done, total)))
    assert told == [(128, 300), (256, 300), (300, 300)]


def test_the_tensors_of_a_measured_checkpoint_are_let_go(learned: Path, archive: str) -> None:
    bench = Bench(Setup(archive))
    held = weakref.ref(bench.workshop.checkpoint(learned).state_dict["embed.weight"])
    assert bench.record(learned).method == "dfa"
    assert held() is None


def test_a_torchvision_network_from_a_file(save: Save) -> None:
    torch.manual_seed(1)  # its last layer is a ReLU, which with some weights is dead for all classes
    model = import_torchvision().models.squeezenet1_1(num_classes=3)
    data = DataSet(torch.rand(256, 3, 32, 32), torch.arange(256) % 3, "noise")
    report = audit(save("bp_s1.pt", model.state_dict()), data=data, model="torchvision:squeezenet1_1")
    assert len(report.residual_norms) == 9
    assert str(report.stream).startswith("features.3 … features.12 → classifier, 8 blocks, no residual connections, ")


def test_a_network_by_factory_with_named_stream(save: Save, archive: str) -> None:
    report = audit(save("mlp_s1.pt", plain_mlp().state_dict()), data=archive, model=f"{__name__}:plain_mlp", stream="2, 4 -> 6")
    assert len(report.residual_norms) == 3


def test_images_are_flattened_for_a_network_that_does_not_do_it_itself(save: Save) -> None:
    x, y = clustered(300)
    path, model = save("mlp_s1.pt", plain_mlp().state_dict()), f"{__name__}:plain_mlp"
    flat = audit(path, data=DataSet(x, y, "vectors"), model=model)
    assert audit(path, data=DataSet(x.view(300, 1, 4, 5), y, "images"), model=model).residual_norms == flat.residual_norms


def plain_mlp() -> nn.Module:
    layers = [nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 5)]
    return nn.Sequential(*layers)


# --- devices ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu", "unknown device 'gpu'; accepted: auto, cpu, cuda, cuda:N, mps"),
        ("cuda:99", r"device 'cuda:99' was asked for, but \d+ CUDA devices are visible"),
        ("meta", "device 'meta' is not supported; accepted"),
    ],
)
def test_a_device_that_is_not_there_is_an_error(name: str, message: str) -> None:
    with pytest.raises(AuditError, match=message):
        choose_device(name)


def test_the_cpu_is_always_there() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type in ("cpu", "cuda", "mps")


def test_a_control_whose_logits_are_not_finite_is_no_control(learned: Path, archive: str, save: Save) -> None:
    state = network().state_dict()
    state["out_head.weight"][0, 0] = float("nan")
    control = save("frozen_dfa_s42.pt", {"state_dict": state})
    with pytest.raises(AuditError, match="the logits are not finite for 300 images, so this network has no accuracy"):
        audit(learned, data=archive, frozen=control)


def test_a_trained_network_is_no_control(learned: Path, archive: str, save: Save) -> None:
    other = save("dfa_s7.pt", {"state_dict": network().state_dict(), "config": {"method": "dfa", "seed": 7, "frozen": False}})
    with pytest.raises(AuditError, match=r"control dfa_s7.pt: its config says frozen: False, so it is a trained network"):
        audit(learned, data=archive, frozen=other)


def test_a_networks_own_earlier_report_is_not_its_control(learned: Path, archive: str, tmp_path: Path) -> None:
    earlier = tmp_path / "earlier.json"
    earlier.write_text(json.dumps(audit(learned, data=archive).to_dict()))
    with pytest.raises(AuditError, match=r"no control in .*earlier\.json: give an accuracy"):
        audit(learned, data=archive, frozen=earlier)
