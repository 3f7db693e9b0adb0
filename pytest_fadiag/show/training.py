"""What configs say of a training, sorted into what a paper is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from ..judge.config import IDENTITY, Plain
from ..judge.report import DiagnosticReport
from ..judge.wording import limit

SUBJECTS = {
    "architecture": (
        "architecture arch model model_name model_type network d_in in_dim d dim d_model width hidden hidden_dim hidden_size "
        "embed_dim blocks n_blocks num_blocks depth layers n_layers num_layers num_hidden_layers heads n_heads num_heads "
        "num_attention_heads intermediate_size mlp_ratio patch_size image_size activation hidden_act norm out_ln dropout "
        "classes n_classes num_classes num_labels"
    ),
    "data": "data dataset data_set dataset_name augment augmentation train_size",
    "optimiser": (
        "optimiser optimizer optim lr learning_rate wd weight_decay momentum betas beta1 beta2 eps schedule scheduler "
        "lr_scheduler lr_scheduler_type warmup warmup_steps warmup_ratio batch batch_size train_batch_size clip grad_clip "
        "label_smoothing"
    ),
    "epochs": "epochs n_epochs num_epochs max_epochs num_train_epochs steps n_steps max_steps",
}
"""By what a form asks for, the names under which people save it."""
OTHER = "other settings"
NOT_OF_TRAINING = ("frozen", "shallow", "untrained")
"""In which a control differs from its network because it is one."""
_SUBJECT = {name: subject for subject, names in SUBJECTS.items() for name in names.split()}


def configured(reports: Sequence[DiagnosticReport]) -> list[DiagnosticReport]:
    """Those whose file says anything of its training."""
    return [report for report in reports if _settings(report)]


def common(reports: Sequence[DiagnosticReport]) -> dict[str, str]:
    """By subject the settings that all say alike that say any."""
    told = configured(reports)
    names = _names(told)
    return _by_subject({name: _settings(told[0])[name] for name in names if _is_common(name, told)})


def own(reports: Sequence[DiagnosticReport], everyone: Sequence[DiagnosticReport]) -> str:
    """What these say that not everyone says alike; where they differ among themselves, every value."""
    told, parts = configured(everyone), []
    for name in _names(reports):
        values = dict.fromkeys(_shown(config[name]) for report in reports if name in (config := _settings(report)))
        parts += [f"{name} {' or '.join(values)}"] if not _is_common(name, told) else []
    return ", ".join(parts)


def unlike_its_control(report: DiagnosticReport) -> list[str] | None:
    """The settings in which a network and its control differ: «lam 0.01, its control 0»; nothing is known without configs."""
    control = None if report.control is None else report.control.config
    if not control or not report.config:
        return None
    names = dict.fromkeys(name for name in (*report.config, *control) if name not in ("seed", *NOT_OF_TRAINING))
    pairs = [(name, report.config.get(name), control.get(name)) for name in names]
    return [f"{name} {_or_none(own)}, its control {_or_none(other)}" for name, own, other in pairs if own != other]


def _or_none(value: Plain | None) -> str:
    return "none" if value is None else _shown(value)


def _is_common(name: str, reports: Sequence[DiagnosticReport]) -> bool:
    values = [_settings(report).get(name) for report in reports]
    return None not in values and all(value == values[0] for value in values)


def _names(reports: Sequence[DiagnosticReport]) -> list[str]:
    return list(dict.fromkeys(name for report in reports for name in _settings(report)))


def _settings(report: DiagnosticReport) -> dict[str, Plain]:
    return {name: value for name, value in report.config.items() if name not in IDENTITY}


def _by_subject(settings: dict[str, Plain]) -> dict[str, str]:
    said: dict[str, list[str]] = {subject: [] for subject in (*SUBJECTS, OTHER)}
    for name, value in settings.items():
        subject = _SUBJECT.get(name.lower(), OTHER)
        said[subject].append(_shown(value) if name.lower() == subject else f"{name} {_shown(value)}")
    return {subject: ", ".join(parts) for subject, parts in said.items() if parts}


def _shown(value: Plain) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return limit(value) if isinstance(value, float) else str(value)
