"""The scheduler by itself: thousands of sessions played through in this process, with workers that die at any moment."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_fadiag.judge.diagnostics import DIAGNOSTICS
from pytest_fadiag.session.dist import CheckpointScheduling

ITEMS = [f"runs/net_s{seed}.pt::{diagnostic.name}" for seed in range(3) for diagnostic in DIAGNOSTICS]
EACH = len(ITEMS) // 3
OWN = ["tests/test_own.py::test_one", "tests/test_own.py::test_two"]
ITEMS += [*OWN, "net::seed-margin"]
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
    config: Any = SimpleNamespace(getvalue=lambda _: ["popen"] * workers, option=SimpleNamespace(loadscopereorder=True))
    log: Any = SimpleNamespace(loadscopesched=lambda *_: None)
    return CheckpointScheduling(config, log, DIAGNOSTICS)


class Session:
    """The event loop of xdist's controller, with what happens next drawn at random."""

    def __init__(self, seed: int, deaths: int, restarts: int, workers: int = 2, items: list[str] | None = None) -> None:
        self.items = ITEMS if items is None else items
        self.draw, self.deaths, self.restarts, self.shuttingdown = random.Random(seed), deaths, restarts, False
        self.sched = scheduler(workers)
        self.active = [Worker(number) for number in range(workers)]
        self.started = workers
        self.ran: list[str] = []
        self.blamed: list[str] = []

    def play(self) -> None:
        while self.active:
            actions = [(act, worker) for worker in self.active for act in self._possible(worker)]
            assert actions, f"hangs with {self.sched.workqueue or 'nothing'} to do and {[w.queue for w in self.active]} sent"
            act, worker = self.draw.choice(actions)
            act(worker)
            if self.sched.tests_finished:
                self._stop()

    def _possible(self, worker: Worker) -> list[Any]:
        if worker.dead:
            return [self._end_noticed]
        steps: dict[str, list[Any]] = {"starting": [self._ready], "ready": [self._collected], "running": []}
        possible = steps[worker.state]
        if worker.state == "running" and worker.queue[:1] == [STOP]:
            possible = [self._finished]
        elif worker.state == "running" and len(worker.queue) > 1:  # a worker runs a test when it knows the next one
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
            assert self.sched.remove_node(worker) is None, "a worker that ended well has nothing left"
        self.active.remove(worker)

    def _die(self, worker: Worker) -> None:
        self.deaths -= 1
        worker.dead = True

    def _end_noticed(self, worker: Worker) -> None:
        worker.shutting_down = True
        if worker in self.sched.nodes:  # xdist takes a KeyError from inside for a worker that it never met
            crashed = self.sched.remove_node(worker)
            self.blamed += [crashed] if crashed else []
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


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("deaths", [0, 1, 2, 4])
def test_whenever_workers_die_each_test_runs_once_or_is_blamed_once(workers: int, deaths: int) -> None:
    for seed in range(100):
        session = Session(seed, deaths, restarts=deaths, workers=workers)
        session.play()
        assert sorted([*session.ran, *session.blamed]) == sorted(ITEMS), f"seed {seed}"
        assert len(session.blamed) <= deaths


@pytest.mark.parametrize("items", [ITEMS[:EACH], ITEMS[3 * EACH - 1 :]], ids=["one checkpoint", "single tests"])
def test_more_workers_than_work_end_too(items: list[str]) -> None:
    for seed in range(100):
        session = Session(seed, deaths=2, restarts=2, workers=6, items=items)
        session.play()
        assert sorted([*session.ran, *session.blamed]) == sorted(items), f"seed {seed}"


def test_without_restarts_a_session_ends_too_and_nothing_runs_twice() -> None:
    for seed in range(200):
        session = Session(seed, deaths=2, restarts=0)
        session.play()
        seen = [*session.ran, *session.blamed]
        assert len(seen) == len(set(seen)), f"seed {seed}"


def collected(sched: CheckpointScheduling, *workers: Worker) -> None:
    for worker in workers:
        worker.state = "running"
        sched.add_node(worker)
        sched.add_node_collection(worker, ITEMS)


def test_the_tests_of_a_checkpoint_stay_together_and_others_are_single() -> None:
    sched = scheduler(2)
    one, two = Worker(0), Worker(1)
    collected(sched, one, two)
    sched.schedule()
    assert [[ITEMS[index] for index in worker.queue] for worker in (one, two)] == [ITEMS[:EACH], ITEMS[EACH : 2 * EACH]]
    assert {scope: len(unit) for scope, unit in sched.workqueue.items()} == {
        "runs/net_s2.pt": EACH,
        **dict.fromkeys(OWN, 1),
        "net": 1,
    }


def test_a_worker_that_has_not_collected_yet_is_given_nothing_when_another_dies() -> None:
    sched = scheduler(2)
    one, two, replacement = Worker(0), Worker(1), Worker(2)
    collected(sched, one, two)
    sched.schedule()
    assert sched.remove_node(one) == ITEMS[0]
    sched.add_node(replacement)
    assert sched.remove_node(two) == ITEMS[EACH]
    assert replacement.queue == [] and not replacement.shutting_down
    sched.add_node_collection(replacement, ITEMS)
    sched.schedule()
    assert replacement.queue


def test_a_death_before_anything_was_given_out_stops_nobody() -> None:
    sched = scheduler(2)
    one, two, replacement = Worker(0), Worker(1), Worker(2)
    sched.add_node(one)
    collected(sched, two)
    assert sched.remove_node(one) is None
    assert not two.shutting_down
    collected(sched, replacement)
    sched.schedule()
    assert two.queue and replacement.queue


def test_what_cannot_be_sent_to_a_worker_goes_to_another() -> None:
    sched = scheduler(2)
    one, two = Worker(0), Worker(1)
    collected(sched, one, two)
    one.dead = True
    sched.schedule()
    assert sched.remove_node(one) is None
    assert set(sched.workqueue) == {"runs/net_s0.pt", "runs/net_s2.pt", *OWN, "net"}
