"""The scheduler by itself: thousands of sessions played in this process, with workers that die at
any moment.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_fadiag.session.dist import CheckpointScheduling

NAMES = ("residual-growth", "gradient-floor", "direction-drift", "frozen-margin")
CHECKPOINTS = [f"runs/net_s{seed}.pt::{name}" for seed in range(3) for name in NAMES]
OWN = ["tests/test_own.py::test_one", "tests/test_own.py::test_two"]
ITEMS = [*CHECKPOINTS, *OWN, "net::seed-margin"]
STOP = -1


class Worker:
    """As much of a worker, and of the controller's end of it, as a scheduler meets."""

    def __init__(self, number: int) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.state = "starting"
        self.queue: list[int] = []
        self.dead = self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        if self.dead:
            raise OSError("cannot send (already closed?)")
        assert not self.shutting_down, "a worker that was told to stop runs nothing more"
        self.queue += indices

    def shutdown(self) -> None:
        if not self.dead and not self.shutting_down:
            self.queue.append(STOP)
        self.shutting_down = True


def scheduler(workers: int) -> CheckpointScheduling:
    config: Any = SimpleNamespace(
        getvalue=lambda _: ["popen"] * workers, option=SimpleNamespace(loadscopereorder=True)
    )
    log: Any = SimpleNamespace(loadscopesched=lambda *_: None)
    return CheckpointScheduling(config, log, {*NAMES, "seed-margin"})


class Session:
    """The event loop of xdist's controller, with what happens next drawn at random."""

    def __init__(
        self, seed: int, deaths: int, restarts: int, workers: int, items: list[str]
    ) -> None:
        self.items, self.deaths, self.restarts, self.shuttingdown = items, deaths, restarts, False
        self.draw, self.sched = random.Random(seed), scheduler(workers)
        self.active = [Worker(number) for number in range(workers)]
        self.started = workers
        self.ran: list[str] = []
        self.blamed: list[str] = []

    def play(self) -> None:
        while self.active:
            actions = [(act, worker) for worker in self.active for act in self._possible(worker)]
            assert actions, (
                f"hangs: {self.sched.workqueue}, {[worker.queue for worker in self.active]}"
            )
            act, worker = self.draw.choice(actions)
            act(worker)
            if self.sched.tests_finished:
                self._stop()

    def _possible(self, worker: Worker) -> list[Any]:
        if worker.dead:
            return [self._end_noticed]
        possible: list[Any] = {
            "starting": [self._ready],
            "ready": [self._collected],
            "running": [],
        }[worker.state]
        if worker.state == "running" and worker.queue[:1] == [STOP]:
            possible = [self._finished]
        elif (
            worker.state == "running" and len(worker.queue) > 1
        ):  # it runs a test when it knows the next one
            possible = [self._run_one]
        return [*possible, self._die] if self.deaths else possible

    def _ready(self, worker: Worker) -> None:
        worker.state = "ready"
        if self.shuttingdown:
            worker.shutdown()
        else:
            self.sched.add_node(worker)

    def _collected(self, worker: Worker) -> None:
        worker.state = "running"
        if self.shuttingdown:
            return
        self.sched.add_node_collection(worker, self.items)
        if self.sched.collection_is_completed:
            self.sched.schedule()

    def _run_one(self, worker: Worker) -> None:
        index = worker.queue.pop(0)
        self.ran.append(self.items[index])
        self.sched.mark_test_complete(worker, index)

    def _finished(self, worker: Worker) -> None:
        if worker in self.sched.nodes:
            assert self.sched.remove_node(worker) is None, (
                "a worker that ended well has nothing left"
            )
        self.active.remove(worker)

    def _die(self, worker: Worker) -> None:
        self.deaths -= 1
        worker.dead = True

    def _end_noticed(self, worker: Worker) -> None:
        worker.shutting_down = True
        if (
            worker in self.sched.nodes
        ):  # xdist takes a KeyError from inside for a worker that it never met
            self.blamed += filter(None, [self.sched.remove_node(worker)])
        if self.restarts:
            self.restarts -= 1
            self.shuttingdown = False
            self.active.append(Worker(self.started))
            self.started += 1
        else:
            self._stop()
        self.active.remove(worker)

    def _stop(self) -> None:
        if not self.shuttingdown:
            self.shuttingdown = True
            for node in self.sched.nodes:
                node.shutdown()


@pytest.mark.parametrize(
    "items", [ITEMS, ITEMS[:4], ITEMS[11:]], ids=["all", "one checkpoint", "single tests"]
)
@pytest.mark.parametrize(
    ("workers", "deaths"), [(1, 0), (2, 0), (1, 1), (2, 1), (2, 2), (3, 4), (6, 2)]
)
def test_whenever_workers_die_each_test_runs_once_or_is_blamed_once(
    workers: int, deaths: int, items: list[str]
) -> None:
    for seed in range(60):
        session = Session(seed, deaths, restarts=deaths, workers=workers, items=items)
        session.play()
        assert sorted([*session.ran, *session.blamed]) == sorted(items), f"seed {seed}"
        assert len(session.blamed) <= deaths


def test_without_restarts_a_session_ends_too_and_nothing_runs_twice() -> None:
    for seed in range(200):
        session = Session(seed, deaths=2, restarts=0, workers=2, items=ITEMS)
        session.play()
        seen = [*session.ran, *session.blamed]
        assert len(seen) == len(set(seen)), f"seed {seed}"


def collected(sched: CheckpointScheduling, *workers: Worker) -> None:
    for worker in workers:
        sched.add_node(worker)
        sched.add_node_collection(worker, ITEMS)


def test_the_tests_of_a_checkpoint_stay_together_and_others_are_single() -> None:
    sched, one, two = scheduler(2), Worker(0), Worker(1)
    collected(sched, one, two)
    sched.schedule()
    assert (one.queue, two.queue) == (list(range(4)), list(range(4, 8)))
    queued = {scope: len(unit) for scope, unit in sched.workqueue.items()}
    assert queued == {"runs/net_s2.pt": 4, **dict.fromkeys(OWN, 1), "net": 1}


def test_a_death_before_anything_was_given_out_stops_no_other_worker() -> None:
    sched, one, two, replacement = scheduler(2), Worker(0), Worker(1), Worker(2)
    sched.add_node(one)
    collected(sched, two)
    assert sched.remove_node(one) is None and not two.shutting_down
    collected(sched, replacement)
    sched.schedule()
    assert two.queue and replacement.queue


def test_what_cannot_be_sent_to_a_worker_goes_to_another() -> None:
    sched, one, two = scheduler(2), Worker(0), Worker(1)
    collected(sched, one, two)
    one.dead = True
    sched.schedule()
    assert sched.remove_node(one) is None
    assert set(sched.workqueue) == {"runs/net_s0.pt", "runs/net_s2.pt", *OWN, "net"}
