"""A process's pulse: eight bytes from who lives to who watches."""

import os
from pathlib import Path
from time import monotonic_ns

import pytest

from walkserve.transport.pulse import Pulse, PulseReader, pulse_path


@pytest.fixture
def reader(tmp_path: Path):
    reader = PulseReader(tmp_path, "toy.rank0.1")
    yield reader
    reader.close()


def test_a_process_that_is_not_there_yet_or_still_loads_has_no_pulse(tmp_path, reader):
    assert reader.read() == 0
    with Pulse(tmp_path, "toy.rank0.1"):
        assert reader.read() == 0


def test_every_beat_is_seen_and_is_the_time_it_was_made(tmp_path, reader):
    with Pulse(tmp_path, "toy.rank0.1") as pulse:
        before = monotonic_ns()
        for _ in range(3):
            pulse.beat()
            assert before <= reader.read() <= monotonic_ns()
            before = reader.read()


def test_one_that_is_only_just_being_made_is_none_yet(tmp_path, reader):
    pulse_path(tmp_path, "toy.rank0.1").touch()
    assert reader.read() == 0


def test_nothing_is_left_of_it_and_a_reader_keeps_what_it_saw_last(tmp_path, reader):
    descriptors = len(os.listdir("/proc/self/fd"))
    with Pulse(tmp_path, "toy.rank0.1") as pulse:
        pulse.beat()
        last = reader.read()
    assert reader.read() == last
    reader.close()
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_two_processes_cannot_have_the_same_one(tmp_path):
    with Pulse(tmp_path, "conductor"), pytest.raises(FileExistsError):
        Pulse(tmp_path, "conductor")
