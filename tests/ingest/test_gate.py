"""How much is parsed at once is bounded, whatever the senders do."""

from __future__ import annotations

import threading

import pytest

from lakebed.ingest.gate import ByteGate


def test_never_more_inside_than_there_is_room_for() -> None:
    gate, lock = ByteGate(100), threading.Lock()
    inside = most = 0

    def enter(size: int) -> None:
        nonlocal inside, most
        for _ in range(50):
            with gate.room_for(size):
                with lock:
                    inside += size
                    most = max(most, inside)
                with lock:
                    inside -= size

    threads = [threading.Thread(target=enter, args=(size,)) for size in (10, 30, 60, 90) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()
    assert 0 < most <= 100


def test_what_is_larger_than_the_gate_goes_in_alone() -> None:
    gate, entered = ByteGate(100), threading.Event()

    def enter_huge() -> None:
        with gate.room_for(10_000):
            entered.set()

    with gate.room_for(1):
        thread = threading.Thread(target=enter_huge)
        thread.start()
        assert not entered.wait(0.05)
    thread.join(300)
    assert entered.is_set()


def test_an_error_inside_gives_the_room_back() -> None:
    gate = ByteGate(100)
    with pytest.raises(RuntimeError), gate.room_for(100):
        raise RuntimeError
    with gate.room_for(100):
        pass
