"""SIGINT, SIGTERM and SIGHUP: one exception, at places where it is safe to stop."""

# ruff: noqa: PT012  # at which line of a block the exception comes is the question here

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from raybench.errors import Interrupted
from raybench.launch import signals as interrupt


@pytest.fixture(autouse=True)
def nothing_waits() -> Iterator[None]:
    """Handlers as they were, and no signal left over; a hangup is not ignored, as it is under ``nohup``."""
    hangup = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    before = {number: signal.getsignal(number) for number in interrupt.SIGNALS}
    yield
    assert {number: signal.getsignal(number) for number in interrupt.SIGNALS} == before
    interrupt.check()
    signal.signal(signal.SIGHUP, hangup)


def send(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", interrupt.SIGNALS)
def test_a_signal_raises_with_its_name(number):
    with pytest.raises(Interrupted, match=number.name), interrupt.raising():
        send(number)


def test_handlers_are_back_after_an_error():
    before = {number: signal.getsignal(number) for number in interrupt.SIGNALS}
    with pytest.raises(KeyError), interrupt.raising():
        assert all(signal.getsignal(number) is not before[number] for number in interrupt.SIGNALS)
        raise KeyError
    # whatever they were: a shell's background jobs start with SIGINT ignored
    assert {number: signal.getsignal(number) for number in interrupt.SIGNALS} == before


@pytest.mark.parametrize("number", interrupt.SIGNALS)
def test_held_back_until_the_end(number):
    done = []
    with pytest.raises(Interrupted, match=number.name), interrupt.raising():
        with interrupt.held():
            send(number)
            done.append("went on")
        done.append("not reached")
    assert done == ["went on"]


def test_check_raises_what_waits_once():
    with interrupt.raising():
        with pytest.raises(Interrupted, match="SIGTERM"), interrupt.held():
            send(signal.SIGTERM)
            interrupt.check()
        interrupt.check()


def test_check_without_a_signal_does_nothing():
    done = []
    with interrupt.raising(), interrupt.held():
        interrupt.check()
        done.append("went on")
    assert done == ["went on"]


def test_held_inside_held_waits_for_the_outer_one():
    with interrupt.raising(), pytest.raises(Interrupted), interrupt.held():
        with interrupt.held():
            send()
        reached = True
    assert reached


def test_a_second_signal_while_held_is_one_interrupt():
    with interrupt.raising():
        with pytest.raises(Interrupted), interrupt.held():
            send()
            send()
        interrupt.check()


def test_a_second_signal_is_raised_at_once_where_it_is_asked_for():
    with interrupt.raising():
        with pytest.raises(Interrupted), interrupt.held(second_raises=True):
            send()
            waited = True
            send()
            waited = False
        interrupt.check()  # and nothing is left
    assert waited


def test_signals_are_raised_at_once_again_after_held():
    with interrupt.raising():
        with interrupt.held():
            pass
        with pytest.raises(Interrupted):
            send()


def test_a_signal_that_waited_through_an_error_is_not_lost():
    """The error comes out first; the next safe place finds the signal."""
    with interrupt.raising():
        with pytest.raises(OSError, match="disk"), interrupt.held():
            send()
            raise OSError("disk")
        with pytest.raises(Interrupted):
            interrupt.check()


def test_under_nohup_a_hangup_changes_nothing():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with interrupt.raising():
        send(signal.SIGHUP)
    assert signal.signal(signal.SIGHUP, signal.SIG_DFL) is signal.SIG_IGN


def test_a_run_asks_for_its_own_end_once():
    interrupt.ask(Interrupted("nobody reads"))
    interrupt.ask(Interrupted("still nobody"))
    with pytest.raises(Interrupted, match="nobody reads"):
        interrupt.check()
    interrupt.check()


def test_outside_of_the_main_thread_signals_stay_as_they_are():
    """There Python takes no handlers: what runs in a notebook's thread runs to its end."""
    before, seen = signal.getsignal(signal.SIGINT), []

    def run() -> None:
        with interrupt.raising(), interrupt.hangup_ignored():
            interrupt.take_back()
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [before]
