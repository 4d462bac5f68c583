"""Who is taken for stuck, and who is not: pulses by hand, and a clock of the test's own."""

from pathlib import Path

import pytest

from walkserve.supervisor.pulses import COUNTED_S, Pulses
from walkserve.transport.pulse import Pulse

A, B = "toy.rank0.0", "conductor"


class Ward:
    """Two processes with pulses, and who watches them."""

    def __init__(self, folder: Path, stuck_after_s: float) -> None:
        self.now = 1000.0
        self.pulses = Pulses(folder, stuck_after_s)
        self.of = {address: Pulse(folder, address) for address in (A, B)}

    def look(self, *beating: str, after_s: float = 0.25, at: tuple[str, ...] = (A, B)) -> list[str]:
        for address in beating:
            self.of[address].beat()
        self.now += after_s
        return self.pulses.look(at, self.now)

    def close(self) -> None:
        self.pulses.close()
        for pulse in self.of.values():
            pulse.close()


@pytest.fixture
def ward(tmp_path: Path):
    ward = Ward(tmp_path, stuck_after_s=2.0)
    yield ward
    ward.close()
    assert list(tmp_path.iterdir()) == []


def test_who_moves_between_looks_is_never_stuck(ward):
    assert [ward.look(A, B, after_s=1) for _ in range(100)] == [[]] * 100


def test_who_does_not_move_is_stuck_after_its_time_and_nobody_else_is(ward):
    ward.look(A, B)
    assert [ward.look(B) for _ in range(7)] == [[]] * 7
    assert ward.look(B) == [A]


def test_one_move_in_time_is_enough(ward):
    ward.look(A, B)
    for _ in range(20):
        assert [ward.look(B) for _ in range(7)] == [[]] * 7
        assert ward.look(A, B) == []


def test_who_still_loads_may_take_any_time(ward):
    assert [ward.look(B, after_s=1) for _ in range(1000)] == [[]] * 1000


def test_time_in_which_nobody_looked_proves_nothing(ward):
    ward.look(A, B)
    assert ward.look(after_s=3600) == []  # a supervisor, or a whole machine, that was stopped
    assert ward.look(A, B) == []
    assert ward.look(after_s=3600) == []
    assert ward.look(after_s=COUNTED_S) == [A, B]  # who does not move then, either, is stuck


def test_an_incarnation_is_not_judged_by_the_one_before(ward, tmp_path):
    ward.look(A, B)
    while ward.look(B) != [A]:
        pass
    with Pulse(tmp_path, "toy.rank0.1") as new:
        at = ("toy.rank0.1", B)
        assert [ward.look(B, at=at, after_s=1) for _ in range(100)] == [[]] * 100
        new.beat()
        assert ward.look(B, at=at, after_s=1) == []
        assert ward.look(B, at=at, after_s=1) == []
        assert ward.look(B, at=at, after_s=1) == ["toy.rank0.1"]
