"""``fadiag``: the audit outside of a test suite; ``fadiag audit`` is a run of pytest."""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from . import __version__
from .judge.errors import AuditError
from .judge.words import ASCII, one_line, printable
from .options import OPTIONS, declare

if TYPE_CHECKING:
    import pytest

USAGE_ERROR = 4
VERIFIED = (
    *("model", "stream", "data", "train", "normalize", "frozen", "credit", "step", "loss", "task"),
    *("forward", "device", "threads", "batch-size", "unsafe-load"),
)
"""The options of ``fadiag verify``: those that measure."""
CONTROL = ("model", "stream", "data", "forward", "unsafe-load")
"""Those of ``fadiag control``: what network a checkpoint holds."""


COMMANDS = ("demo", "audit", "show", "diff", "verify", "lint", "control")
USAGES = {
    "audit": "PATH ...",
    "show": "AUDIT.json ...",
    "diff": "OLD.json NEW.json",
    "verify": "CERTIFICATE",
    "lint": "PATH ...",
    "control": "CHECKPOINT",
}
EXAMPLES = """\
examples:
  fadiag demo
  fadiag audit runs/dfa_s1.pt --model lab.models:Net --data cifar10:data --frozen 0.349
  fadiag show audit.json --report html:audit.html

fadiag COMMAND --help has the options; https://pytest-fadiag.readthedocs.io"""
ROLES = {
    "names": "what is audited",
    "measures": "how it is measured",
    "judges": "how it is judged",
    "shows": "what is written",
}
"""The groups of options by their role."""
WITH_VALUE = {
    f"--{prefix}{option.name}" for option in OPTIONS if not option.flag for prefix in ("", "fa-")
} | {"--slurm"}
"""The options of the audit that take a value."""
FLAGS = [f"--{option.name}" for option in OPTIONS if option.flag]
QUIET = ("-qq", "--tb=no", "-rN")
"""What pytest prints is left out: the audit says it."""


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Shows one spelling of an option."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if len(action.option_strings) < 2 or action.option_strings[0] == "-h":
            return super()._format_action_invocation(action)
        value = "" if action.nargs == 0 else f" {action.metavar}"
        return f"{action.option_strings[0]}{value}"


class _Parser(argparse.ArgumentParser):
    """Ends with the exit code of a usage error, and suggests what was meant."""

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"(?:choice: '|arguments: )([\w-]+)", message)
        hint = suggestion(wrong[1], [*COMMANDS, *WITH_VALUE, *FLAGS]) if wrong else ""
        self.exit(USAGE_ERROR, f"{self.prog}: {message}{hint}\n")

    def add(self, names: Sequence[str]) -> None:
        """Declare options of the audit without their prefix, by what they do."""
        for role, title in ROLES.items():
            group = self.add_argument_group(title)
            for option in OPTIONS:
                if option.name in names and option.role == role:
                    group.add_argument(
                        f"--{option.name}", f"--fa-{option.name}", **option.arguments
                    )


def suggestion(word: str, known: Sequence[str]) -> str:
    """«; did you mean --frozen?», where a known word is close, or the beginning of this one."""
    beginnings = [name for name in known if word.startswith(f"{name}-")]
    close = beginnings or get_close_matches(word, known, 1, 0.75)
    return f"; did you mean {close[0]}?" if close else ""


def make_parser() -> _Parser:
    """The commands and their options; those of ``audit`` are parsed by pytest."""
    parser = _Parser(
        prog="fadiag",
        description="Did the hidden layers learn? Audits networks trained without backpropagation.",
        epilog=EXAMPLES,
        formatter_class=_Formatter,
    )
    parser.add_argument("--version", action="version", version=f"pytest-fadiag {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(run: Any, example: str, description: str) -> _Parser:
        """A command by its function."""
        subparser: _Parser = commands.add_parser(
            run.__name__,
            help=description.partition(":")[0].removesuffix("."),
            description=description,
            epilog=f"example: fadiag {run.__name__} {example}",
            formatter_class=_Formatter,
            usage=f"fadiag {run.__name__} [options] {USAGES.get(run.__name__, '')}".rstrip(),
        )
        subparser.set_defaults(run=run)
        return subparser

    command(demo, "", "Audit two small networks of this package; nothing else is needed.")
    auditing = command(
        audit,
        "runs/*.pt --data fashion-mnist:data --frozen 'runs/frozen_*.pt' --report html",
        "Audit checkpoints, logs or traces: one test per network and diagnostic, plus a summary "
        "table. Every other option goes to pytest: -n 2, -q, -x, -k, --junitxml=FILE.",
    )
    auditing.add_argument(
        "files",
        nargs="*",
        metavar="PATH",
        help="A checkpoint, a log, a trace (.npz), a glob or a folder",
    )
    auditing.add([option.name for option in OPTIONS])
    auditing.add_argument(
        "--slurm",
        metavar="KEY=VALUE,…",
        help="Measure in parts as one Slurm array, with these options of sbatch and parts=N "
        "(default: 1), then print the one table: partition=gpu,gpus=1,parts=16",
    )
    showing = command(
        show,
        "part-*.json --report html:audit.html",
        "Print or write audits again, several as one: the parts of --shard, or different "
        "checkpoints.",
    )
    showing.add_argument("audits", nargs="+", type=Path, metavar="AUDIT.json")
    showing.add(["threshold", "report", "expect"])
    comparing = command(
        diff, "old.json new.json", "What changed from one audit to another; 1 if anything did."
    )
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    verifying = command(
        verify,
        "certificate/ --root unpacked/",
        "Measure a certified audit again and report which rows reproduce. Code runs only if it "
        "is typed: --model, --credit, --step, --forward, a function as --loss.",
    )
    verifying.add_argument("certificate", type=Path)
    verifying.add_argument(
        "--root",
        type=Path,
        action="append",
        default=[],
        help="Where to look for the files (repeatable)",
    )
    verifying.add(VERIFIED)
    linting = command(
        lint,
        "src/ eval.py",
        "Lint evaluation code for common mistakes in measuring credit; never runs it.",
    )
    linting.add_argument("paths", nargs="+", metavar="PATH")
    freezing = command(
        control,
        "runs/dfa_s42.pt --model mylab.models:build",
        "Create an untrained frozen-random control for a checkpoint: re-initialised weights plus "
        "the list of block parameters to keep frozen.",
    )
    freezing.add_argument("checkpoint", type=Path)
    freezing.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="The file to write (default: frozen_NAME.pt in the same folder)",
    )
    freezing.add_argument(
        "--seed", type=int, metavar="N", help="The seed of the weights (default: the checkpoint's)"
    )
    freezing.add(CONTROL)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit codes are pytest's."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=ASCII)
    try:
        os.getcwd()  # where it is gone, an import of torch would end the process
        if words[:1] == ["audit"] and not {"-h", "--help"} & set(words):
            return audit(words[1:])
        options = make_parser().parse_args(words or ["--help"])
        return int(options.run(options))
    except (AuditError, OSError) as error:  # the working folder is gone, the disk is full
        print(f"fadiag {words[0]}: {printable(str(error))}", file=sys.stderr)
        return USAGE_ERROR


def pytest_configure(config: pytest.Config) -> None:
    """Let the summary know that the audit alone is printed."""
    config.option.fa_command = True


def pytest_report_teststatus(report: Any, config: pytest.Config) -> tuple[str, str, str] | None:
    """No letter for a test: the audit is printed in the end."""
    is_parallel = config.getoption("dist", "no") != "no"
    if config.get_verbosity() > -2 or is_parallel:
        return None
    return str(report.outcome), "", ""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let pytest know ``--data`` too: this module is a plugin of ``fadiag audit``."""
    declare(parser, "--")


def audit(words: Sequence[str]) -> int:
    """Run pytest on files alone, not on the tests of the folder.

    Words that are not options are the files.
    """
    command = [sys.executable, "-m", "pytest", "-p", __name__, "--fa-only", *QUIET]
    request = ""
    for word in words_for_pytest(words):
        if word.startswith("--slurm="):
            request = word.removeprefix("--slurm=")
        else:
            command.append(word)
    if request:
        from .slurm import measure

        code = measure(command, request)
        if code:
            return code
    if os.name != "posix":
        return subprocess.call(command)
    sys.stdout.flush()
    # In the place of this process: signals and the exit code are pytest's.
    os.execv(command[0], command)


def words_for_pytest(words: Sequence[str]) -> list[str]:
    """The words of ``fadiag audit`` for pytest, whose own parser tells which of them are not
    options.

    >>> words_for_pytest(["runs/a.pt", "--durations", "5"])
    ['--durations', '5', '--fa-checkpoint=runs/a.pt']
    """
    import pytest
    from _pytest.config import get_config

    from .load.names import is_log

    # pytest looks for its root folder, and an ini file, at every path that is a word of its own.
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in WITH_VALUE:
            joined[-1] += f"={word}"
        else:
            joined.append(re.sub("^--trace(?==|$)", "--fa-trace", word))
    config = get_config()
    config.pluginmanager.register(sys.modules[__name__])
    config.pluginmanager.load_setuptools_entrypoints("pytest11")
    try:
        parsed, unknown = config._parser.parse_known_and_unknown_args(joined)
    except pytest.UsageError:  # pytest says it
        return joined
    for word in unknown:
        name = word.partition("=")[0]
        hint = suggestion(name, [*WITH_VALUE, *FLAGS])
        if hint and name not in WITH_VALUE:
            raise AuditError(f"unknown option {name}{hint}")
    files = parsed.file_or_dir
    for file in files:
        if "::" in file:
            continue
        kind = "checkpoint"
        if file.endswith(".npz"):
            kind = "trace"
        elif is_log(Path(file)) and not os.path.isdir(file):
            kind = "log"
        joined.remove(file)
        joined.append(f"--fa-{kind}={file}")
    return joined


def demo(options: argparse.Namespace) -> int:
    """Audit the networks of the package."""
    from .demo import demo as texts

    for text in texts():
        print(text)
    return 0


def show(options: argparse.Namespace) -> int:
    """Audits of earlier runs as one: its table, its files, and the exit code that its run would
    have.
    """
    from .hooks import installed
    from .session.expect import Expectations
    from .session.files import destination, write
    from .show.combine import combine
    from .show.json import read_audit
    from .show.table import table

    outputs = installed().outputs()
    reports = options.report or ()
    base = Path.cwd()
    places = {destination(outputs, report, base)[1] for report in reports}
    if not places.isdisjoint(map(Path.absolute, options.audits)):
        raise AuditError("--report would overwrite an audit that is read; name another file")
    audits = [read_audit(path) for path in options.audits]
    thresholds = dict(text.split("=", 1) for text in options.threshold or ())
    if options.expect:
        record = Expectations.read(Path(options.expect))
        audit = combine(audits, thresholds, record.expected_keys, record.margins)
    else:
        audit = combine(audits, thresholds)
    print(table(audit, shutil.get_terminal_size((120, 24)).columns), end="")
    for report in reports:
        print(write(outputs, report, base, audit))
    return audit.exit_code


def diff(options: argparse.Namespace) -> int:
    """What changed from one audit to another."""
    from .hooks import installed
    from .show.compare import diff as changes
    from .show.json import read_audit

    installed()
    lines = changes(read_audit(options.old), read_audit(options.new))
    print("\n".join(map(one_line, lines)) or "nothing changed")
    return int(bool(lines))


def verify(options: argparse.Namespace) -> int:
    """Measure a certificate again."""
    from .verify import verify as check

    names = [name.replace("-", "_") for name in VERIFIED]
    typed = {name: getattr(options, name) for name in names}
    return check(options.certificate, options.root, **typed)


def lint(options: argparse.Namespace) -> int:
    """Lint evaluation code."""
    from .lint import main as check

    return check(options.paths)


def control(options: argparse.Namespace) -> int:
    """Write the network to train for a control."""
    from .auditor import Auditor
    from .load.setup import Setup

    path: Path = options.checkpoint
    out = options.out or path.with_name(f"frozen_{path.with_suffix('.pt').name}")
    unsafe = bool(options.unsafe_load)
    setup = Setup.of(vars(options), data=options.data, unsafe=unsafe, device="cpu")
    print(Auditor(setup).write_control(path, out, options.seed))
    return 0
