"""Train the reference ResidualMLP by backpropagation or by one of the methods that do without, for an audit.

python examples/train.py --method dfa --data fashion-mnist:ROOT --d 64 --epochs 15 --out runs/dfa_s42.pt
python examples/train.py --method dfa --data fashion-mnist:ROOT --d 64 --epochs 15 --out runs/frozen_dfa_s42.pt --frozen
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from methods import METHODS
from methods.ep import NotAtEquilibrium
from methods.loop import Training, TrainingStopped
from methods.settings import Settings

from pytest_fadiag import AuditError, GuardStopped
from pytest_fadiag.load.network import ACTIVATIONS
from pytest_fadiag.load.sources import ACCEPTED


def parser() -> argparse.ArgumentParser:
    """The command line; every default is that of the published runs, but for the epochs."""
    p = argparse.ArgumentParser(
        prog="train.py",
        description="Train a pre-LayerNorm residual MLP and write a checkpoint to audit, with a log of every epoch beside it.",
        epilog="methods: "
        + "; ".join(f"{name} = {rule.summary}" for name, rule in METHODS.items()),
    )
    p.add_argument("--method", required=True, choices=METHODS, help="the learning rule")
    p.add_argument("--data", required=True, metavar="SPEC", help=ACCEPTED)
    p.add_argument(
        "--out",
        required=True,
        type=Path,
        metavar="FILE",
        help="the checkpoint; FILE.log.jsonl is the log",
    )
    p.add_argument(
        "--seed",
        type=_natural,
        default=42,
        help="initialisation, feedback and data order (default: 42)",
    )
    p.add_argument(
        "--epochs",
        type=_positive_int,
        default=15,
        help="passes over the training data (default: 15)",
    )
    p.add_argument(
        "--lr",
        type=_positive,
        default=1e-3,
        help="AdamW's, decayed to 0 by a cosine (default: 1e-3)",
    )
    p.add_argument(
        "--wd", type=_not_negative, default=0.01, help="AdamW's weight decay (default: 0.01)"
    )
    p.add_argument("--batch", type=_positive_int, default=128, help="samples a step (default: 128)")
    p.add_argument(
        "--d", type=_positive_int, default=256, help="width of the residual stream (default: 256)"
    )
    p.add_argument("--blocks", type=_natural, default=4, help="residual blocks (default: 4)")
    p.add_argument(
        "--mlp-ratio",
        type=_positive,
        default=4.0,
        help="hidden units of a block per unit of d (default: 4)",
    )
    p.add_argument(
        "--activation", choices=ACTIVATIONS, default="gelu", help="of the blocks (default: gelu)"
    )
    p.add_argument(
        "--no-out-ln", dest="out_ln", action="store_false", help="no LayerNorm before the head"
    )
    p.add_argument(
        "--lam",
        type=_not_negative,
        default=0.0,
        help="dfa: weight of the penalty ‖f_l‖² (default: 0)",
    )
    p.add_argument(
        "--no-normalize-credit",
        dest="normalize_credit",
        action="store_false",
        help="dfa and bridges: leave the credit's size as it is",
    )
    p.add_argument(
        "--beta", type=_positive, default=0.003, help="ep: strength of the nudge (default: 0.003)"
    )
    control = p.add_mutually_exclusive_group()
    control.add_argument(
        "--frozen",
        action="store_true",
        help="control: blocks stay as initialised, the rest is trained",
    )
    control.add_argument("--shallow", action="store_true", help="control: no blocks")
    p.add_argument(
        "--augment",
        action="store_true",
        help="shift images by up to 4 pixels and mirror them, at random",
    )
    p.add_argument("--device", default="cpu", help="cpu, cuda, cuda:N or mps (default: cpu)")
    p.add_argument(
        "--threads",
        type=_positive_int,
        default=1,
        help="CPU threads; their number may change bits (default: 1)",
    )
    p.add_argument(
        "--log-every",
        type=_positive_int,
        default=1,
        metavar="N",
        help="evaluate every N epochs (default: 1)",
    )
    p.add_argument(
        "--guard",
        default="",
        metavar="KEYS",
        help="ab: stop when (a) or (b) has fired in three epochs in a row",
    )
    return p


def settings_from(argv: Sequence[str] | None) -> tuple[Settings, int]:
    """The settings of a command line and the number of threads; combinations that mean nothing are refused."""
    p = parser()
    options = vars(p.parse_args(argv))
    threads = options.pop("threads")
    if options["shallow"]:
        options["blocks"] = 0
    options["shallow"] = options["blocks"] == 0
    if options["lam"] and options["method"] != "dfa":
        p.error("--lam is DFA's penalty: it needs --method dfa")
    if options["lam"] and (options["frozen"] or options["shallow"]):
        p.error(
            "--lam acts on trained blocks, and this control has none: train the control of dfa, which is the same"
        )
    if not options["normalize_credit"] and options["method"] in ("bp", "fa", "ep"):
        p.error(
            f"--no-normalize-credit means nothing to {options['method']}: it never normalises its credit"
        )
    if options["frozen"] and not options["blocks"]:
        p.error("--frozen needs blocks to freeze")
    if options["guard"] and not options["blocks"]:
        p.error("--guard needs blocks: without them there is no stream to watch")
    if options["out"].is_dir():
        p.error(f"--out {options['out']} is a folder; name the checkpoint file in it")
    try:
        torch.empty(0, device=options["device"])
    except (RuntimeError, AssertionError) as error:
        p.error(f"--device {options['device']}: not available: {str(error).splitlines()[0]}")
    return Settings(**options), threads


def main(argv: Sequence[str] | None = None) -> int:
    """Train; 0 when the checkpoint is written, 1 when training stopped, 2 for bad input, 130 when interrupted."""
    settings, threads = settings_from(argv)
    try:
        with reproducible(threads):
            checkpoint = Training(settings).run()
    except AuditError as error:
        print(f"train.py: error: {error}", file=sys.stderr)
        return 2
    except (TrainingStopped, NotAtEquilibrium, GuardStopped) as error:
        print(f"train.py: stopped: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "train.py: interrupted; the same command goes on after the last finished epoch",
            file=sys.stderr,
        )
        return 130
    print(f"{settings.out}: test accuracy {checkpoint['test_acc']:.4f}")
    return 0


@contextmanager
def reproducible(threads: int) -> Iterator[None]:
    """Deterministic algorithms on a fixed number of threads; both are left as found."""
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    os.environ.setdefault(
        "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
    )  # without it CUDA has no deterministic matmul
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.use_deterministic_algorithms(before[1])


def _number(
    kind: type[int] | type[float], accepts: Callable[[float], bool], wanted: str
) -> Callable[[str], float]:
    """A parser of numbers that says what it wanted."""

    def parsed(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not accepts(value):
            raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")
        return value

    return parsed


_natural = _number(int, lambda value: value >= 0, "a whole number, 0 or more")
_positive_int = _number(int, lambda value: value > 0, "a whole number above 0")
_positive = _number(float, lambda value: 0 < value < math.inf, "a number above 0")
_not_negative = _number(float, lambda value: 0 <= value < math.inf, "a number, 0 or more")


if __name__ == "__main__":
    sys.exit(main())
