"""What is made is taken away before a signal ends the process."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.run_once import cleaning_up


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_comes_after_what_was_made_is_gone(number: signal.Signals) -> None:
    order: list[str] = []
    kept = signal.signal(number, lambda *_told: order.append("ended"))
    try:
        with cleaning_up():
            try:
                os.kill(os.getpid(), number)
                signal.sigtimedwait([signal.SIGUSR1], 1)
                order.append("went on")
            finally:
                os.kill(os.getpid(), number)  # a second one changes nothing
                order.append("taken away")
        assert order == ["taken away", "ended"]
    finally:
        signal.signal(number, kept)


def test_without_a_signal_and_in_a_thread_nothing_is_changed() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with cleaning_up():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
    seen: list[object] = []

    def look() -> None:
        with cleaning_up():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]


def test_an_error_is_an_error_still() -> None:
    with pytest.raises(ValueError, match="so it is"), cleaning_up():
        raise ValueError("so it is")
