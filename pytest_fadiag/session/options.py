"""The command-line options and their ini twins, declared in one table."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pytest

from ..judge.diagnostics import ALL, DIAGNOSTICS
from ..judge.errors import AuditError
from ..judge.inputs import Normalisation
from ..judge.keys import Keys
from ..judge.protocol import PROTOCOL_NAMES
from ..judge.thresholds import CONFOUND_RULES, GROWTH_FORMS, SHORT_NAMES, DiagnosticThresholds, threshold_names
from ..show.outputs import OUTPUTS

if TYPE_CHECKING:
    from ..registry import Registry

CALLED = "FADIAG_CALLED"
"""The variable by which a command tells pytest what it was called."""
CHECKPOINTS = (".pt", ".pth", ".ckpt", ".safetensors")
"""How the names of checkpoint files end."""


def _text(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("the value is empty; is a variable of your shell unset?")
    return text


class Option(NamedTuple):
    """One setting: ``--fa-NAME`` on the command line, ``fa_NAME`` in the ini file."""

    name: str
    help: str
    read: Callable[[str], Any] = _text
    default: Any = None
    metavar: str = "VALUE"
    many: bool = False
    flag: bool = False
    ini: bool = True
    listed: bool = False
    """Whether commas separate parts of the value, which a TOML file may hold as a list."""
    merged: bool = False
    """Whether values of the command line are added to those of the ini file, rather than replacing them."""

    @property
    def key(self) -> str:
        """The name of the ini twin, and of the parsed attribute."""
        return f"fa_{self.field}"

    @property
    def field(self) -> str:
        """The name of its value among the settings of a run."""
        return self.name.replace("-", "_")


def _seeds(text: str) -> tuple[int, ...]:
    try:
        seeds = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise argparse.ArgumentTypeError(f"seeds are whole numbers separated by commas, not {text!r}") from None
    if not seeds:
        raise argparse.ArgumentTypeError("no seed given")
    if len(set(seeds)) != len(seeds):
        raise argparse.ArgumentTypeError(f"a seed is named twice in {text!r}")
    return seeds


def _threshold(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, not {text!r}; names: {', '.join(_NUMBERS)}")
    name = SHORT_NAMES.get(name.strip(), name.strip())
    if name in ("growth", "confounds"):
        raise argparse.ArgumentTypeError(f"{name} has its own option: --fa-{name}={value}")
    try:
        number: Any = float(value)
    except ValueError:
        number = value
    if name in threshold_names():  # else another package may know it, which is not known yet
        _validated(lambda: DiagnosticThresholds().replace(**{name: number}))
    return name, number


def _keys(text: str) -> Keys | str:
    """The keys of a text; whether there are such diagnostics is told when those of other packages are known."""
    return text if text == ALL else Keys.parse(_text(text))


def _columns(text: str) -> tuple[tuple[str, str], ...]:
    parts = [part.partition("=") for part in text.split(",") if part.strip()]
    pairs = [(key.strip(), column.strip()) for key, _, column in parts]
    if not pairs or not all(key and column for key, column in pairs) or len(dict(pairs)) < len(pairs):
        raise argparse.ArgumentTypeError(
            f"expected KEY=COLUMN,…, each key once, not {text!r}; such as epoch=step,acc_eval=val/acc"
        )
    return tuple(pairs)


def _normalize(text: str) -> str:
    return str(_validated(lambda: Normalisation.parse(text)).text)


def _validated(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except AuditError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _function(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text):
        raise argparse.ArgumentTypeError(f"expected package.module:function, not {text!r}")
    return text


def _count(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.strip().isdigit()) or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a whole number of at least {least}, not {text!r}")
        return int(text)

    return read


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(f"expected {' or '.join(choices)}, not {text!r}")
        return text

    return read


def _device(text: str) -> str:
    kind, _, index = text.partition(":")
    if kind not in ("auto", "cpu", "cuda", "mps") or (index and not index.isdigit()):
        raise argparse.ArgumentTypeError(f"expected auto, cpu, cuda, cuda:N or mps, not {text!r}")
    return text


def _report(text: str) -> tuple[str, str]:
    """A kind and its destination, empty where none is named; whether there is such a kind is told as for diagnostics."""
    kind, _, destination = _text(text).partition(":")
    return kind, destination


def _shard(text: str) -> tuple[int, int]:
    number, slash, count = text.partition("/")
    if not (slash and number.isascii() and count.isascii() and number.isdigit() and count.isdigit()):
        raise argparse.ArgumentTypeError(f"expected K/N, such as 1/4 for the first of four parts, not {text!r}")
    if not 1 <= int(number) <= int(count):
        raise argparse.ArgumentTypeError(f"there is no part {number} of {count}; parts are counted from 1")
    return int(number), int(count)


_DEFAULTS = DiagnosticThresholds().by_name()
_NUMBERS = [name for name in threshold_names(short=True) if name not in ("growth", "confounds")]
_DIAGNOSTICS = ", ".join(f"{diagnostic.key} {diagnostic.name}" for diagnostic in DIAGNOSTICS)

OPTIONS = (
    Option(
        "checkpoint",
        "Audit this checkpoint: a file, a glob, or a folder, of checkpoints or as Hugging Face writes one (repeatable). "
        "{seed} stands for each of --fa-seeds. Write it with '=', quoted: --fa-checkpoint='runs/*.pt'",
        metavar="PATH|GLOB|DIR",
        many=True,
    ),
    Option(
        "log",
        "Audit this training log in part, where no checkpoint is left: a .json, .jsonl or .csv file, TensorBoard's event "
        "file, a glob, a folder (repeatable)",
        metavar="PATH|GLOB|DIR",
        many=True,
    ),
    Option(
        "log-batch",
        "The batch size at which the logs' gradients were taken (default: grad_batch_size of its config, else an assumption)",
        _count(1),
        metavar="N",
    ),
    Option(
        "log-columns",
        "The columns of logs that other tools kept: epoch=step,acc_eval=val/acc,… (default: guessed by their names, and said)",
        _columns,
        metavar="KEY=COLUMN,…",
        listed=True,
    ),
    Option(
        "merge",
        "Judge the rows of earlier audits again, as one audit (repeatable): files of --fa-report=json",
        metavar="FILE|GLOB",
        many=True,
        ini=False,
    ),
    Option(
        "shard",
        "Audit the K-th of N parts of the checkpoints, of about the same size in bytes; --fa-merge puts them together",
        _shard,
        metavar="K/N",
        ini=False,
    ),
    Option(
        "seeds", "Seeds that {seed} in --fa-checkpoint or --fa-log stands for: 42,123,456", _seeds, metavar="N,N,…", listed=True
    ),
    Option(
        "missing",
        "What a checkpoint that does not exist is: error, or skip where others exist (default: error)",
        _one_of("error", "skip"),
        "error",
        "error|skip",
    ),
    Option(
        "model",
        "The network of the checkpoints: package.module:factory or torchvision:NAME "
        "(default: the reference ResidualMLP, rebuilt from the tensor shapes)",
        metavar="SPEC",
    ),
    Option(
        "stream",
        "Where the residual stream is: 'blocks.* -> out_ln', the blocks and the module after them; a comma joins lists, * "
        "matches inside a name (default: found by itself)",
        metavar="SPEC",
    ),
    Option(
        "data",
        "The test data: fashion-mnist:ROOT, cifar10:ROOT, folder:PATH, a .npz, .pt or .safetensors file with x and y (or "
        "input_ids, …, labels), or package.module:factory",
        metavar="SPEC",
    ),
    Option(
        "normalize",
        "How test inputs are normalised: data (its usual constants), none (pixels in [0, 1], fractions as they are), or "
        "MEAN/STD, with commas between channels: 0.49,0.48,0.45/0.25,0.24,0.26 (default: images by the mean and std of each "
        "checkpoint's config, else by the usual constants, with a note; fractions as they are)",
        _normalize,
        metavar="data|none|MEAN/STD",
    ),
    Option("batches", "How many batches of 128 test samples are probed (default: 10)", _count(2), 10, "N"),
    Option(
        "batch-size",
        "How many samples are forwarded at once at most; changes no number (default: 128, and 512 where nothing is "
        "differentiated)",
        _count(1),
        metavar="N",
    ),
    Option(
        "frozen",
        "The frozen-random control: an accuracy (0.349), METHOD=ACCURACY, a control checkpoint or glob, matched by method and "
        "seed, or a JSON file (repeatable). Without one, depth-utility is run in the place of frozen-margin",
        metavar="VALUE",
        many=True,
    ),
    Option(
        "threshold",
        "Change a threshold (repeatable, on top of the ini file's): "
        + ", ".join(f"{name} (default: {_DEFAULTS[SHORT_NAMES.get(name, name)]})" for name in _NUMBERS),
        _threshold,
        metavar="NAME=VALUE",
        many=True,
        merged=True,
    ),
    Option(
        "growth",
        "Which growth residual-growth judges: per_block or cumulative (default: per_block)",
        _one_of(*GROWTH_FORMS),
        metavar="|".join(GROWTH_FORMS),
    ),
    Option(
        "confounds",
        "Whether saturation and aggregate drift are excused, or flagged as the published rule does (default: excuse)",
        _one_of(*CONFOUND_RULES),
        metavar="|".join(CONFOUND_RULES),
    ),
    Option(
        "diagnostics",
        f"Which diagnostics are run, and f where --fa-credit is given; nothing is measured for the others (default: abcd, e "
        f"without a control; all: what can be measured). {_DIAGNOSTICS}; those of other "
        "packages by their names, behind a comma: abcd,my-name",
        _keys,
        metavar="KEYS",
    ),
    Option(
        "protocol",
        "Judge by a published form: three (D1 residual-growth, D2 gradient-floor, D3 frozen-margin, confounds flagged unless "
        "--fa-confounds says otherwise, no margin over seeds; PASS or FAIL(D1+D2) beside the verdict) or four "
        "(residual-growth to frozen-margin); the method's credit is then shown and not judged (default: neither)",
        _one_of(*PROTOCOL_NAMES),
        metavar="|".join(PROTOCOL_NAMES),
    ),
    Option(
        "credit",
        "The method's credit at each block output, for credit-alignment: a function called with (model, x, y, checkpoint) that "
        "returns a list of tensors (default: where credit-alignment is asked for, the checkpoint's Bs or the network's own "
        "backward)",
        _function,
        metavar="package.module:function",
    ),
    Option(
        "inconclusive",
        "What a margin over seeds is whose interval holds the minimum: fail, or skip (default: fail)",
        _one_of("fail", "skip"),
        "fail",
        "fail|skip",
    ),
    Option(
        "checklist",
        "Read this evaluation code for the pitfalls of measuring credit: a file or a folder (repeatable); "
        "# fadiag: ok REASON lets one stand",
        metavar="PATH",
        many=True,
    ),
    Option(
        "device",
        "Where networks are measured: auto, cpu, cuda, cuda:N or mps (default: auto, a GPU if there is one)",
        _device,
        "auto",
        "DEVICE",
    ),
    Option(
        "threads",
        "CPU threads that a measurement uses; another number may change last digits, so it does not follow the machine, and "
        "-n spreads checkpoints over cores (default: 1)",
        _count(1),
        1,
        "N",
    ),
    Option(
        "report",
        f"Write the audit (repeatable): {', '.join(OUTPUTS)}, such as markdown:$GITHUB_STEP_SUMMARY. Without DEST: "
        f"{', '.join(output.destination for output in OUTPUTS.values())}",
        _report,
        metavar="TYPE[:DEST]",
        many=True,
    ),
    Option(
        "expect",
        'Recorded verdicts: an earlier audit.json, or a JSON object such as {"dfa": "abd", "bp": ""}. What is expected to '
        "fire is a strict xfail, so any change is red, and of an audit.json the table shows what moved by more than 1 %",
        metavar="FILE",
    ),
    Option("update-expect", "Write what is found to the file of --fa-expect; refused where CI is set", flag=True, ini=False),
    Option("update-expect-on-ci", "As --fa-update-expect, also where CI is set", flag=True, ini=False),
    Option("only", "Collect nothing but the audit: the repo's own tests are neither run nor imported", flag=True),
    Option("no-cache", "Measure anew and neither read nor write the cache", flag=True),
    Option(
        "unsafe-load",
        "Let a checkpoint's pickle run code, such as that of a whole network; only for files you trust",
        flag=True,
        ini=False,
    ),
)


def declare(parser: pytest.Parser) -> None:
    """Add every option and its ini twin; a bad value ends pytest with exit code 4 before anything runs."""
    called = os.environ.pop(CALLED, "")
    if called:
        parser.prog = called  # of which an error speaks, rather than of a command that nobody typed
    group = parser.getgroup("fadiag", "audit of networks trained without backpropagation (pytest-fadiag)")
    for option in OPTIONS:
        flag = f"--fa-{option.name}"
        shown = option.help.replace("%", "%%")
        if option.flag:
            group.addoption(flag, dest=option.key, action="store_true", default=None, help=shown)
        else:
            action = "append" if option.many else "store"
            group.addoption(flag, dest=option.key, action=action, type=_kept(option), metavar=option.metavar, help=shown)
        if option.ini:
            parser.addini(option.key, f"As {flag}", type=_ini_type(option), default=None)


def is_command(config: pytest.Config) -> bool:
    """Whether somebody typed «fadiag …», whose options have no prefix."""
    return str(getattr(config._parser, "prog", None) or "").startswith("fadiag ")


def spoken(text: str) -> str:
    """A text for whoever typed «fadiag …»: its options as they are typed there."""
    return _PREFIXED.sub("--", text)


_PREFIXED = re.compile(rf"--fa-(?=(?:{'|'.join(option.name for option in OPTIONS)})(?![\w-]))")


def describe_others(config: pytest.Config, registry: Registry) -> None:
    """Let --help name what other packages add; by now all of them are known, and the parser has our words only."""
    others = [diagnostic for diagnostic in registry.diagnostics if diagnostic not in DIAGNOSTICS]
    added = {
        "fa_diagnostics": ", ".join(diagnostic.name for diagnostic in others),
        "fa_threshold": ", ".join(f"{diagnostic.threshold} (default: {diagnostic.default})" for diagnostic in others),
        "fa_report": ", ".join(kind for kind in registry.report_kinds if kind not in OUTPUTS),
    }
    for action in config._parser.optparser._actions:
        if added.get(action.dest):
            action.help = f"{action.help}. Of packages installed here: {added[action.dest].replace('%', '%%')}"


def _ini_type(option: Option) -> Literal["args", "bool", "linelist", "string"]:
    if option.flag:
        return "bool"
    return "linelist" if option.many else "args" if option.listed else "string"


def _kept(option: Option) -> Callable[[str], str]:
    """Check a value and keep its text: xdist sends parsed options to its workers, and text survives the journey."""

    def check(text: str) -> str:
        option.read(text)
        return text

    check.__name__ = option.metavar  # argparse names the type by it in its own messages
    return check


INFORMATION = ("help", "version", "markers", "cacheshow", "showfixtures")
"""Options of pytest that print something and end: they work whatever the ini file says of checkpoints."""


def refuse_unknown(config: pytest.Config) -> None:
    """Refuse an ini key like fa_checkpoints, with which nothing is audited; pytest itself only warns, if warnings are on."""
    given = getattr(config, "_inicfg", None)
    unknown = [name for name in (config.inicfg if given is None else given) if name.startswith("fa_")]
    unknown = [name for name in unknown if name not in config._parser._inidict]  # of which other plugins may have some
    if not unknown or any(config.getoption(name, None) for name in INFORMATION):
        return
    import difflib

    known = [option.key for option in OPTIONS if option.ini]
    meant = difflib.get_close_matches(unknown[0][3:], [name[3:] for name in known], 1)  # «fa_» alone would be a likeness
    hint = f"did you mean fa_{meant[0]}?" if meant else f"known: {', '.join(known)}"
    raise pytest.UsageError(f"ini option {unknown[0]}: unknown; {hint}")


def is_asked_for(config: pytest.Config) -> bool:
    """Whether this call of pytest names something to audit, or has workers that may: those of a written test's marker do."""
    if hasattr(config, "workerinput") or config.getoption("dist", "no") != "no":
        return True
    arguments = (str(argument).partition("::")[0] for argument in config.args)
    if any(argument.endswith(CHECKPOINTS) for argument in arguments):
        return True
    given = (config.getoption(option.key, None) for option in OPTIONS)
    try:
        ini = [config.getini(option.key) for option in OPTIONS if option.ini]
    except (TypeError, ValueError):  # before pytest 9.2 a value of the wrong type: whoever reads the settings says so
        return True
    return any(value not in (None, False, "", []) for value in (*given, *ini))
