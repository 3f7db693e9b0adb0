"""What the recorder costs: epochs of the example training that end in an accuracy, with and without a record, turn by turn.

And what a guard costs over its recorder: both record the same network, in turns.

The training data are the shipped test images, over and over, as many as Fashion-MNIST's 60,000; the accuracy is taken on 10,000
in both ways, and the recorder is given it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))

from methods.loop import Training  # noqa: E402
from methods.progress import Progress  # noqa: E402
from methods.samples import Samples  # noqa: E402
from methods.settings import Settings  # noqa: E402

from pytest_fadiag import Guard, Recorder, load_data  # noqa: E402


def repeated(images: int) -> Samples:
    """Fashion-MNIST's test split as both splits, the training split repeated to a number of images."""
    data = load_data(f"fashion-mnist:{ROOT / 'fixtures' / 'fashion-mnist'}")
    x = data.normalised(data.x)
    rows = torch.arange(images) % len(x)
    return Samples(x[rows], data.y[rows], x, data.y, 10, data.name, None, None)


def epoch(training: Training, recorder: Recorder | None) -> tuple[float, float]:
    """The seconds of one epoch with its accuracy and, if there is a recorder, its record; and those of the record alone.

    They are the processor's: two epochs are seconds apart, and what else a machine does meanwhile is more than a record costs.
    """
    progress = Progress("", 1)
    start = _now()
    training._train_epoch(progress)
    accuracy = training._plain_accuracy()
    training.epoch += 1
    before = _now()
    if recorder is not None:
        recorder.record(training.epoch, training.net, acc=accuracy)
    return _now() - start, _now() - before


def guarded(training: Training, recorder: Recorder, guard: Guard, turns: int) -> float:
    """How much longer a guard's record takes than its recorder's, as a ratio: the median over turns."""
    ratios = []
    for turn in range(turns):
        took = {}
        for one in (recorder, guard) if turn % 2 else (guard, recorder):
            start = _now()
            one.record(training.epoch + turn + 1, training.net, acc=0.5)
            took[one] = _now() - start
        ratios.append(took[guard] / took[recorder])
    return statistics.median(ratios)


def _now() -> float:
    return time.process_time() / torch.get_num_threads()


def main() -> None:
    """Print one row a method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=40, help="turns of a recorder and a guard")
    parser.add_argument("--d", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--methods", nargs="+", default=["bp", "dfa"])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    samples = repeated(options.images)
    print(
        f"{options.images:,} images an epoch, d={options.d}, {options.threads} thread(s), median of {options.rounds} turns"
    )
    print(
        f"{'method':12}{'without s':>11}{'with s':>9}{'ratio':>8}{'record s':>10}{'of an epoch':>13}{'guard / recorder':>18}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for method in options.methods:
            settings = Settings(
                method,
                "",
                Path(folder) / f"{method}.pt",
                d=options.d,
                epochs=2 * options.rounds + 1,
            )
            training = Training(settings, samples)
            test = [(samples.test_x, samples.test_y)]
            recorder, under = (
                Recorder(Path(folder, f"{method}-{n}_s42.jsonl"), test, config={"d": options.d})
                for n in (1, 2)
            )
            guard = Guard(
                under, stop="ab", after=options.records + 1
            )  # it judges every record, and never stops
            epoch(training, recorder)  # not counted: what is loaded and allocated once
            turns = [
                (epoch(training, None)[0], *epoch(training, recorder))
                for _ in range(options.rounds)
            ]
            without, with_it, alone = (
                statistics.median(column) for column in zip(*turns, strict=True)
            )
            ratio = statistics.median(b / a for a, b, _ in turns)
            more = guarded(training, recorder, guard, options.records)
            print(
                f"{method:12}{without:>11.3f}{with_it:>9.3f}{ratio:>8.3f}{alone:>10.3f}{alone / without:>13.1%}{more:>18.3f}"
            )


if __name__ == "__main__":
    main()
