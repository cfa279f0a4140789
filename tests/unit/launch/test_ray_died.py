"""Where Ray has died nothing more is waited for or asked of it; whatever its calls raise is that death."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from raybench.commands.measuring import ending
from raybench.errors import Interrupted, RayDiedError, StoreError
from raybench.launch import signals
from raybench.launch.liveness import CALLS_RAY, await_end, end_callers
from tests.support.planted import FakeRunner


class Ended(FakeRunner):
    """Knows how it was ended."""

    how = ""

    def close(self) -> None:
        self.how += "closed"

    def abandon(self) -> None:
        self.how += "abandoned"


def test_an_error_that_the_death_brought_is_the_death() -> None:
    def run() -> None:
        signals.ask(RayDiedError("Ray's raylet died"))
        raise RuntimeError("the actor is unavailable")

    runner = Ended()
    with pytest.raises(RayDiedError, match=r"^Ray's raylet died$"), ending(runner):
        run()
    assert runner.how == "abandoned"


def test_an_error_of_a_ray_that_lives_is_that_error() -> None:
    def run() -> None:
        raise RuntimeError("the actor is unavailable")

    runner = Ended()
    with pytest.raises(RuntimeError, match="unavailable"), ending(runner):
        run()
    assert runner.how == "closed"


def test_a_full_disk_is_told_though_an_interrupt_waits() -> None:
    def run() -> None:
        signals.ask(Interrupted("nobody reads this output any more"))
        raise StoreError("out: the disk is full")

    runner = Ended()
    with pytest.raises(StoreError, match="full"), ending(runner):
        run()
    assert runner.how == "closed"
    with pytest.raises(Interrupted):
        signals.check()


def test_an_interrupt_while_workers_are_ended_after_an_error_ends_them_at_once() -> None:
    class Impatient(Ended):
        def close(self) -> None:
            super().close()
            raise Interrupted("SIGINT")

    def run() -> None:
        raise StoreError("out: the disk is full")

    runner = Impatient()
    with pytest.raises(StoreError, match="full"), ending(runner):
        run()
    assert runner.how == "closedabandoned"


@pytest.mark.parametrize(
    ("interrupt", "lives_on", "how"),
    [
        (Interrupted("SIGINT"), False, "abandoned"),
        (Interrupted("SIGINT"), True, "closed"),
        (RayDiedError("Ray's raylet died"), True, "abandoned"),
    ],
)
def test_where_the_process_lives_on_ray_ends_in_order(
    interrupt: Interrupted, lives_on: bool, how: str
) -> None:
    """What is left of a Ray that was abandoned would end a notebook's kernel some seconds later."""
    runner = Ended()
    with pytest.raises(type(interrupt)), ending(runner, lives_on=lives_on):
        raise interrupt
    assert runner.how == how


def test_a_second_interrupt_does_not_wait_for_that() -> None:
    class Slow(Ended):
        def close(self) -> None:
            super().close()
            raise Interrupted("SIGINT")

    runner = Slow()
    with pytest.raises(Interrupted), ending(runner, lives_on=True):
        raise Interrupted("SIGINT")
    assert runner.how == "closedabandoned"


def test_the_end_of_a_group_is_not_waited_for() -> None:
    run: Any = SimpleNamespace(done=lambda: False)
    signals.ask(RayDiedError("Ray's raylet died"))
    with pytest.raises(RayDiedError):
        await_end(run, 3600.0)


def test_threads_that_call_ray_end_before_their_next_call() -> None:
    """One that goes on would end the process in the middle of the report."""
    begun, ended = threading.Event(), list[type]()

    def call_ray() -> None:
        try:
            while True:
                begun.set()
        except BaseException as error:
            ended.append(type(error))

    caller = threading.Thread(target=call_ray, daemon=True, name=CALLS_RAY[0])
    caller.start()
    begun.wait()
    end_callers()
    caller.join()
    assert ended == [SystemExit]
