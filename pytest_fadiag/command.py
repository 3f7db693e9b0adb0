"""``fadiag``: the audit for people outside a test suite; every command is a call of pytest, and exits as it does."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

from .judge.errors import AuditError
from .judge.late import named
from .load.logtables import EVENTS
from .load.setup import Setup
from .session.options import CALLED, OPTIONS, Option, spoken
from .session.run import registry_of
from .session.settings import REGISTRY, Settings
from .verify import verify

CONTROL = ("model", "stream", "data", "unsafe-load")
"""What says which network a checkpoint holds."""
LOGS = (".json", ".jsonl", ".csv")
TAKE_A_VALUE = ("-k", "-m", "-n", "-p", "-c", "-o", "-r", "-W", "--tx", "--dist", "--maxfail", "--junitxml", "--tb", "--color")
"""Options of pytest's own after which a word is their value, and no file to audit."""


@dataclass(frozen=True)
class Command:
    """One word after ``fadiag``."""

    name: str
    summary: str
    files: str
    """What its files are called in the help."""
    example: str
    run: Callable[[Sequence[str]], int]
    options: tuple[str, ...] | None = None
    """The options that it lists; all of them, if none are named."""
    of_pytest: bool = True
    """Whether what it does not know goes to pytest."""

    def help(self) -> str:
        """What ``--help`` prints."""
        others = "\n\nEverything else goes to pytest: -n 2, -q, -x, -k, --junitxml=FILE …"
        parser = argparse.ArgumentParser(
            prog=f"fadiag {self.name}",
            usage=" ".join(
                [
                    *("fadiag", self.name, self.files),
                    *["[OPTIONS]"] * (self.options != ()),
                    *["[OPTIONS OF PYTEST]"] * self.of_pytest,
                ]
            ),
            description=self.summary,
            epilog=f"example:\n  {self.example}{others if self.of_pytest else ''}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            add_help=False,
        )
        for option in OPTIONS:
            if self.options is None or option.name in self.options:
                shown = spoken(option.help.replace("%", "%%"))
                if option.flag:
                    parser.add_argument(f"--{option.name}", action="store_true", help=shown)
                else:
                    parser.add_argument(f"--{option.name}", metavar=option.metavar, help=shown)
        return parser.format_help()


class _Parser(argparse.ArgumentParser):
    """Says what is wrong and leaves the exit code to the command."""

    def error(self, message: str) -> NoReturn:
        raise AuditError(message)


def _audit(arguments: Sequence[str]) -> int:
    return _pytest("audit", arguments, lambda path: "log" if _is_log(path) else "checkpoint")


def _merge(arguments: Sequence[str]) -> int:
    return _pytest("merge", arguments, lambda path: "merge")


def _lint(arguments: Sequence[str]) -> int:
    return _pytest("lint", arguments, lambda path: "checklist")


def _verify(arguments: Sequence[str]) -> int:
    parser = _Parser(add_help=False)
    parser.add_argument("certificate", type=Path)
    parser.add_argument("--root", type=Path, action="append", default=[])
    options, rest = parser.parse_known_args(arguments)
    if rest:
        raise AuditError(f"unknown argument {rest[0]!r}; it takes a certificate and --root FOLDER")
    return verify(options.certificate, options.root)


def _control(arguments: Sequence[str]) -> int:
    parser = _Parser(add_help=False)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seed", type=int)
    own = [option for option in OPTIONS if option.name in CONTROL]
    for option in own:
        parser.add_argument(f"--{option.name}", action="store_true" if option.flag else "store")
    options, rest = parser.parse_known_args(arguments)
    if rest:
        raise AuditError(f"unknown argument {rest[0]!r}; it takes one checkpoint and the options that --help lists")
    path: Path = options.checkpoint
    out = path.with_name(f"frozen_{path.with_suffix('.pt').name}") if options.out is None else options.out
    chosen = [(option, getattr(options, option.name.replace("-", "_"))) for option in own]
    asked = _Asked()
    words = [f"--fa-{option.name}" + ("" if option.flag else f"={value}") for option, value in chosen if value]
    code = int(pytest.main(words, plugins=[asked]))
    if asked.problem is not None:
        raise asked.problem
    if asked.setup is None:
        return code
    sys.path[:0] = [str(Path.cwd()), str(asked.root)]  # where --model finds a factory, as python -m pytest does
    print(named("pytest_fadiag.workshop:write_control")(path, out, asked.setup, options.seed))
    return 0


class _Asked:
    """What command and ini file say of a network: pytest reads both, and runs nothing."""

    def __init__(self) -> None:
        self.setup: Setup | None = None
        self.problem: AuditError | None = None
        self.root = Path.cwd()

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> int:
        """Take the settings in the place of a run."""
        config.stash[REGISTRY] = registry = registry_of(config)
        try:
            settings = Settings.of(config)
            data = None if settings.data is None else registry.data_spec(settings.data, settings.base("data")).text
        except AuditError as error:
            self.problem = error
            return 0
        base, unsafe, self.root = settings.base("data"), settings.unsafe_load, settings.root
        self.setup = Setup(data, settings.model, settings.stream, device="cpu", unsafe=unsafe, base=base)
        return 0


COMMANDS = (
    Command(
        "audit",
        "Audit trained checkpoints, or the logs that are left of them: one test a network and diagnostic, and the audit table.",
        "PATH…",
        "fadiag audit runs/*.pt --data fashion-mnist:data --frozen 'runs/frozen_*.pt' --report html",
        _audit,
    ),
    Command(
        "merge",
        "Judge earlier audits again as one: the parts of several machines, or several papers' results.",
        "AUDIT.json…",
        "fadiag merge part-*.json --report html:audit.html",
        _merge,
        ("threshold", "growth", "confounds", "diagnostics", "protocol", "report", "expect", "missing", "inconclusive"),
    ),
    Command(
        "lint",
        "Read evaluation code for the pitfalls of measuring credit; nothing of it is run.",
        "PATH…",
        "fadiag lint src/ experiments/eval.py",
        _lint,
        ("report",),
    ),
    Command(
        "verify",
        "Measure an audit again from its certificate, and say what reproduces, row by row. Files and test data are "
        "found by their digests: at their recorded paths, from this folder, then anywhere under --root.",
        "CERTIFICATE [--root FOLDER]",
        "fadiag verify certificate/ --root unpacked/",
        _verify,
        (),
        of_pytest=False,
    ),
    Command(
        "control",
        "Write the frozen control of a checkpoint, ready to train: its network with all weights drawn anew, and the names of "
        "those in its blocks, which must not be trained. --out names the file (default: frozen_NAME.pt beside it), --seed "
        "the seed (default: the checkpoint's). What is not given is taken from the ini file, as in an audit.",
        "CHECKPOINT [--out FILE] [--seed N]",
        "fadiag control runs/dfa_s42.pt --model mylab.models:build --out runs/frozen_dfa_s42.pt",
        _control,
        CONTROL,
        of_pytest=False,
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit codes are pytest's."""
    name, *rest = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in ("-h", "--help"):
        print(_overview())
        return 0
    command = next((command for command in COMMANDS if command.name == name), None)
    if command is None:
        close = difflib.get_close_matches(name, [command.name for command in COMMANDS], 1)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        print(f"fadiag: no command {name!r}{meant}\n\n{_overview()}", file=sys.stderr)
        return int(pytest.ExitCode.USAGE_ERROR)
    if "-h" in rest or "--help" in rest:
        print(command.help())
        return 0
    try:
        return command.run(rest)
    except AuditError as error:
        print(f"fadiag {name}: {spoken(str(error))}", file=sys.stderr)
        return int(pytest.ExitCode.USAGE_ERROR)


def _overview() -> str:
    lines = "\n".join(f"  {command.name:9} {command.summary}" for command in COMMANDS)
    return f"usage: fadiag COMMAND …\n\n{lines}\n\nfadiag COMMAND --help tells its options and gives an example."


def _pytest(name: str, arguments: Sequence[str], option_of: Callable[[str], str]) -> int:
    """Run pytest on files alone: not the tests of the folder that somebody happens to stand in."""
    translated = translate(arguments, option_of)
    named = ("--fa-checkpoint=", "--fa-log=", "--fa-merge=", "--fa-checklist=")
    if not any(argument.startswith(named) for argument in translated):
        raise AuditError("no file is named; --help gives an example")
    _check_spelling(arguments)
    os.environ[CALLED] = f"fadiag {name}"
    command = [sys.executable, "-m", "pytest", "--fa-only", *translated]
    if os.name != "posix":
        return subprocess.call(command)
    sys.stdout.flush()
    os.execv(command[0], command)  # in the place of this process: signals and the exit code are pytest's own


def _check_spelling(arguments: Sequence[str]) -> None:
    """Refuse an option that is nearly one of ours; pytest is asked whether it is one of its own or of another plugin."""
    ours = [f"--{option.name}" for option in OPTIONS]
    for name in (word.partition("=")[0] for word in arguments if word.startswith("--") and not word.startswith("--fa-")):
        close = difflib.get_close_matches(name, ours, 1, 0.75)
        if close and name not in (*ours, *TAKE_A_VALUE) and not _known_to_pytest(name):
            raise AuditError(f"no option {name}; did you mean {close[0]}?")


def _known_to_pytest(name: str) -> bool:
    done = subprocess.run([sys.executable, "-m", "pytest", "--help"], capture_output=True, text=True, check=False)
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", done.stdout) is not None


def translate(arguments: Sequence[str], option_of: Callable[[str], str]) -> list[str]:
    """The arguments of pytest: a file becomes the value of an option, ``--data X`` is ``--fa-data=X``, the rest stays."""
    options = {f"--{prefix}{option.name}": option for prefix in ("", "fa-") for option in OPTIONS}
    translated: list[str] = []
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        option = options.get(name)
        if option is not None and option.flag:
            translated.append(f"--fa-{option.name}")
        elif option is not None:
            chosen = value if equals else _next(words, option)
            _check(option, chosen)
            translated.append(f"--fa-{option.name}={chosen}")
        elif word in TAKE_A_VALUE:
            translated += [word, *(value for value in [next(words, None)] if value is not None)]
        elif not word.startswith("-"):
            translated.append(f"--fa-{option_of(word)}={word}")
        else:
            translated.append(word)
    return translated


def _check(option: Option, value: str) -> None:
    """Refuse a value in the words of this command; pytest would speak of an option that nobody typed."""
    try:
        option.read(value)
    except argparse.ArgumentTypeError as error:
        raise AuditError(f"--{option.name}: {error}") from None


def _next(words: Iterator[str], option: Option) -> str:
    value = next(words, None)
    if value is None:
        raise AuditError(f"--{option.name} needs a value: --{option.name} {option.metavar}")
    return value


def _is_log(path: str) -> bool:
    name = Path(path).name
    return name.endswith(LOGS) or EVENTS in name
