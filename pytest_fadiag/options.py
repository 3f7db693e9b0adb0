"""The command-line options and their ini twins in one table.

Imported by every run of pytest, so it imports nothing.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pytest

CHECKPOINTS = (".pt", ".pth", ".ckpt", ".safetensors", ".pth.tar", ".npz")
"""How the names of checkpoints and traces end among the arguments of pytest."""
COUNT = "[1-9][0-9]*"
FUNCTION = r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*"
QUIET = ("help", "version", "markers", "cacheshow", "showfixtures", "show_fixtures_per_test")
"""Options of pytest that print something and end: they work whatever the ini file says."""


class Option(NamedTuple):
    """One setting: ``--fa-NAME`` on the command line, ``fa_NAME`` in the ini file."""

    name: str
    role: str
    """``names`` what is audited, ``measures`` it, ``judges`` it, or ``shows`` it."""
    metavar: str
    help: str
    like: str = r"[\s\S]*\S[\s\S]*"
    """The pattern of a good value."""
    default: str | None = None
    many: bool = False
    ini: bool = True

    @property
    def key(self) -> str:
        """The name of the ini twin and of the parsed attribute."""
        return f"fa_{self.name.replace('-', '_')}"

    @property
    def flag(self) -> bool:
        """Whether it takes no value."""
        return not self.metavar

    @property
    def ini_type(self) -> str:
        """How pytest reads it from the ini file."""
        if self.flag:
            return "bool"
        return "linelist" if self.many else "string"

    @property
    def arguments(self) -> dict[str, Any]:
        """How argparse and pytest take it."""
        help_text = self.help.replace("%", "%%")
        if self.flag:
            return {"action": "store_true", "default": None, "help": help_text}
        action = "append" if self.many else "store"
        return {"action": action, "type": self.check, "metavar": self.metavar, "help": help_text}

    def check(self, text: str) -> str:
        """The value as it was given, if it is a good one.

        Settings are read from it once all packages are known.
        """
        if not re.fullmatch(self.like, text):
            raise argparse.ArgumentTypeError(f"expected {self.metavar}, not {text!r}")
        return text


OPTIONS = (
    Option(
        "checkpoint",
        "names",
        "PATH|GLOB|DIR",
        "Audit this checkpoint: a file, a glob, or a folder of checkpoints or as Hugging Face "
        "writes one (repeatable). Every seed of --fa-seeds replaces {seed}. Write it with '=': "
        "--fa-checkpoint='runs/*.pt'",
        many=True,
    ),
    Option(
        "log",
        "names",
        "PATH|GLOB|DIR",
        "Partial audit of a training log: a .json, .jsonl or .csv file, TensorBoard's event file, "
        "a glob or a folder (repeatable)",
        many=True,
    ),
    Option(
        "trace",
        "names",
        "PATH|GLOB|DIR",
        "Audit the arrays of a network that ran elsewhere: a .npz or .safetensors file with "
        "outputs, y, e, h_0 … h_L, g_0 … g_L, a glob or a folder (repeatable)",
        many=True,
    ),
    Option(
        "seeds",
        "names",
        "N,N,…",
        "Seeds that replace {seed} in --fa-checkpoint and --fa-log: 42,123,456",
        r"\s*[0-9]+\s*(,\s*[0-9]+\s*)*",
    ),
    Option(
        "missing",
        "names",
        "error|skip",
        "If a checkpoint or log is missing: error, or skip it where others exist (default: error)",
        "error|skip",
        "error",
    ),
    Option(
        "shard",
        "names",
        "K/N",
        "Audit every N-th checkpoint, from the K-th on; `fadiag show` puts the parts together",
        f"{COUNT}/{COUNT}",
        ini=False,
    ),
    Option(
        "only",
        "names",
        "",
        "Collect nothing but the audit: the repo's own tests are neither run nor imported",
    ),
    Option(
        "model",
        "measures",
        "package.module:factory|torchvision:NAME",
        "The network of the checkpoints (default: the reference ResidualMLP, rebuilt from the "
        "tensor shapes)",
        FUNCTION,
    ),
    Option(
        "stream",
        "measures",
        "SPEC",
        "The residual stream: 'blocks.* -> out_ln', the blocks and the module after them; a comma "
        "joins lists, * matches inside a name (default: detected)",
    ),
    Option(
        "data",
        "measures",
        "SPEC",
        "The test data: fashion-mnist:ROOT, cifar10:ROOT, folder:PATH, a .npz, .pt or .safetensors "
        "file with x, y (or input_ids, …, labels) and optional groups, or package.module:factory",
    ),
    Option(
        "train",
        "measures",
        "SPEC|auto",
        "The training data, as for --fa-data: linear probes and readouts are fitted to it; auto is "
        "that of fashion-mnist:ROOT, cifar10:ROOT or folder:PATH (default: they are fitted to each "
        "half of the test data in turn, and read the other)",
    ),
    Option(
        "state-key",
        "measures",
        "KEY.KEY",
        "Where each checkpoint holds the tensors of its network, if not under state_dict, "
        "model_state_dict, model, net or network: agents.policy (default: these are tried)",
    ),
    Option(
        "loss",
        "measures",
        "ce|mse|bce|package.module:function",
        "The loss of training: ce (cross-entropy), mse (squared error), bce (binary "
        "cross-entropy on logits), or a function called with (outputs, y) that returns one value "
        "per sample (default: the checkpoint's config, else cross-entropy, «assumed»)",
        rf"ce|mse|bce|{FUNCTION}",
    ),
    Option(
        "task",
        "measures",
        "classes|regression|tokens",
        "What the targets are (default: integers [N] are classes, floats [N] or [N, k] "
        "regression, integers [N, T] tokens)",
        "classes|regression|tokens",
    ),
    Option(
        "forward",
        "measures",
        "package.module:function",
        "How outputs are computed: a function called with (model, x, y), for networks that "
        "return tuples, take labels, or keep encoder and head apart (default: model(x))",
        FUNCTION,
    ),
    Option(
        "normalize",
        "measures",
        "data|none|MEAN/STD",
        "How inputs are normalised: data (its usual constants), none, or MEAN/STD with commas "
        "between channels (default: images by the mean and std of each checkpoint's config, else "
        "by the usual constants, with a note)",
    ),
    Option(
        "batch-size",
        "measures",
        "N",
        "Maximum forward batch size; does not affect results (default: 512)",
        COUNT,
        "512",
    ),
    Option(
        "frozen",
        "measures",
        "VALUE",
        "The frozen-random control: an accuracy (0.349), METHOD=ACCURACY, a control checkpoint or "
        "glob, matched by method and seed, or a log (repeatable). Without a sound one, "
        "depth-utility is measured",
        many=True,
    ),
    Option(
        "bp",
        "measures",
        "PATH|GLOB",
        "BP networks to compare with: same tensor shapes, same data (repeatable; default: the "
        "audited checkpoints of the method bp)",
        many=True,
    ),
    Option(
        "credit",
        "measures",
        "package.module:function",
        "The method's credit at each block output, for credit-alignment: a function called with "
        "(model, x, y, checkpoint) that returns a list of tensors (default: none, so "
        "credit-alignment runs only if asked for)",
        FUNCTION,
    ),
    Option(
        "step",
        "measures",
        "package.module:function",
        "One update of the rule, for credit-alignment where there is no credit: a function called "
        "with (model, x, y), and checkpoint if it has that parameter, that changes the model in "
        "place, preferably by plain SGD (default: none)",
        FUNCTION,
    ),
    Option(
        "device",
        "measures",
        "auto|cpu|cuda|cuda:N",
        "Where networks are measured (default: auto, a GPU if there is one)",
        r"auto|cpu|cuda(:[0-9]+)?",
        "auto",
    ),
    Option(
        "threads",
        "measures",
        "N",
        "CPU threads per measurement; more can change the last digits, so use -n for more "
        "cores (default: 1)",
        COUNT,
        "1",
    ),
    Option(
        "memory",
        "measures",
        "GB",
        "What the evaluation data of a generator, which is kept, may take (default: half of the "
        "free memory)",
        r"[0-9]*\.?[0-9]+",
    ),
    Option(
        "log-batch",
        "measures",
        "N",
        "The batch size at which the gradients of logs were taken (default: grad_batch_size of the "
        "log's config, else assumed and said)",
        COUNT,
    ),
    Option(
        "log-columns",
        "measures",
        "KEY=COLUMN,…",
        "Map the columns of logs: epoch=step,acc_eval=val/acc (default: inferred from their "
        "names and reported)",
        "[^=,]+=[^=,]+(,[^=,]+=[^=,]+)*",
    ),
    Option(
        "unsafe-load",
        "measures",
        "",
        "Let a checkpoint's pickle run code, such as that of a whole network; only for files "
        "you trust",
        ini=False,
    ),
    Option(
        "no-cache", "measures", "", "Measure everything again; neither read nor write the cache"
    ),
    Option(
        "diagnostics",
        "judges",
        "KEYS",
        "The diagnostics to run: letters and names, such as abcd or abcd,my-name, or all (default: "
        "those that can be measured); an unknown one lists them",
    ),
    Option(
        "protocol",
        "judges",
        "three|four",
        "Judge by a published form: three (D1 residual-growth, D2 gradient-floor, D3 "
        "frozen-margin, confounds flagged, no margin over seeds) or four (residual-growth to "
        "frozen-margin) (default: neither)",
        "three|four",
    ),
    Option(
        "threshold",
        "judges",
        "NAME=VALUE",
        "Change a threshold, such as margin_pp=1.5 or growth=cumulative (repeatable, on top of the "
        "ini file's; default: as published); an unknown one lists them",
        r"\s*[^=\s]+\s*=\s*\S+\s*",
        many=True,
    ),
    Option(
        "expect",
        "judges",
        "FILE",
        'Recorded findings, a JSON object such as {"dfa": "abd", "dfa::seed-margin": "FIRE"}: '
        "what is listed is "
        "expected to fail, what is not listed is expected to pass, and any change fails",
    ),
    Option(
        "update-expect",
        "shows",
        "",
        "Write what is found to the file of --fa-expect; refused where CI is set",
        ini=False,
    ),
    Option(
        "report",
        "shows",
        "TYPE[:DEST]",
        "Write the audit (repeatable): json, markdown, html, figures, certificate, form, such as "
        "markdown:$GITHUB_STEP_SUMMARY (default DEST: audit.json, audit.md, audit.html, "
        "figures, certificate, form.md)",
        many=True,
    ),
)


def declare(parser: pytest.Parser, prefix: str = "--fa-") -> None:
    """Add every option and its ini twin; a bad value ends pytest with exit code 4."""
    title = "audit of networks trained without backpropagation (pytest-fadiag)"
    group = parser.getgroup("fadiag", title)
    for option in OPTIONS:
        flag = f"{prefix}{option.name}"
        if flag == "--trace":  # pytest has an option of this name; the command translates it
            continue
        group.addoption(flag, dest=option.key, **option.arguments)
        if option.ini and prefix == "--fa-":
            parser.addini(option.key, f"As {flag}", type=option.ini_type, default=None)  # type: ignore[arg-type]


def is_asked_for(config: pytest.Config) -> bool:
    """Whether this call of pytest names something to audit.

    Tests with a marker ask for it later.
    """
    if any(config.getoption(name, None) for name in QUIET):
        return False
    if hasattr(config, "workerinput"):
        return "fadiag" in config.workerinput
    for argument in config.args:
        name, _, _ = str(argument).partition("::")
        if name.endswith(CHECKPOINTS):
            return True
    for option in OPTIONS:
        if config.getoption(option.key, None):
            return True
        if option.role == "names" and option.ini and config.getini(option.key):
            return True
    return False
