"""Many small jobs on all cores, with a line of progress for each."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any


def run(
    title: str, jobs: Sequence[tuple[str, Callable[..., Any], tuple[Any, ...]]], workers: int
) -> Iterator[tuple[str, Any]]:
    """The results of the jobs as they come: each has a name, a function and its arguments."""
    if not jobs:
        return
    began = time.monotonic()
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    try:
        futures = {
            pool.submit(_timed, function, arguments): name for name, function, arguments in jobs
        }
        for number, future in enumerate(as_completed(futures), 1):
            result, seconds = future.result()
            elapsed = time.monotonic() - began
            left = elapsed / number * (len(jobs) - number)
            _say(
                f"{title} {number:3}/{len(jobs)}  {futures[future]:32} {seconds:5.1f} s   about {left / 60:.0f} min left"
            )
            yield futures[future], result
    finally:
        pool.shutdown(cancel_futures=True)


def _timed(function: Callable[..., Any], arguments: Iterable[Any]) -> tuple[Any, float]:
    began = time.monotonic()
    return function(*arguments), time.monotonic() - began


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
