"""The soak's own judgement: what it would say of a server that was wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from tests.soak.asks import failing_asks, good_asks
from tests.soak.judge import Outage, check_counts, judge
from tests.soak.seen import Seen, SeveralEnds, seen_of_answer, seen_of_frames
from tests.soak.standing import Process, Standing
from tests.soak.wire import Answer

GOOD = next(ask for ask in good_asks() if ask.family == "trial" and ask.route == "socket")
FAILING = next(ask for ask in failing_asks() if ask.code == "plan_failed")
ALONE = {GOOD.name: b"as alone"}
DONE = Seen(GOOD, "done", "req-1", b"as alone", 200, began=1.0, ended=2.0)
LOST = Seen(GOOD, "error", "req-2", None, 503, "worker_lost", began=1.0, ended=2.0)
OUTAGE = Outage("trial.rank0", "trial", killed=1.5, noticed=1.6, ready=4.0)


def test_a_good_one_that_is_not_as_alone_is_wrong():
    assert judge([DONE], ALONE, []).wrong == []
    assert judge([DONE], ALONE, []).equal == 1
    assert "not what it is alone" in judge([replace(DONE, given=b"else")], ALONE, []).wrong[0]


def test_a_failing_one_has_to_fail_as_it_was_asked_to():
    failed = Seen(FAILING, "error", "req-3", code="plan_failed")
    assert judge([failed], ALONE, []).wrong == []
    for other in (
        replace(failed, code="internal_error"),
        replace(failed, end="done"),
        replace(failed, end="cut"),
    ):
        assert judge([other], ALONE, []).wrong != []


def test_a_worker_is_lost_only_to_those_that_it_held():
    assert judge([LOST], ALONE, [OUTAGE]).lost == 1
    assert judge([LOST], ALONE, [OUTAGE]).wrong == []
    for outages in (
        [],
        [replace(OUTAGE, family="orpheus")],
        [replace(OUTAGE, killed=3.0, noticed=3.1)],
        [replace(OUTAGE, killed=0.1, noticed=0.2)],
    ):
        assert judge([LOST], ALONE, outages).wrong != []


def test_a_call_that_is_in_two_outcomes_or_in_none_is_counted():
    assert check_counts([DONE, LOST], {"done": 1, "failed": 1}) == []
    assert check_counts([DONE, LOST], {"done": 2, "failed": 1}) != []
    assert check_counts([DONE, LOST], {"done": 1}) != []
    left = Seen(GOOD, "left")  # nobody knows whether it had been accepted
    assert check_counts([left], {}) == check_counts([left], {"cancelled": 1}) == []
    assert check_counts([left], {"cancelled": 2}) != []


def test_a_second_end_and_anything_after_an_end_is_found():
    started = {"type": "started", "request_id": "req-1"}
    done = {"type": "done", "finish_reason": "stop", "usage": {}, "emitted": {}}
    piece = {"type": "output", "output": "words", "index": 0, "text": "ba "}
    assert seen_of_frames(GOOD, [started, done]).end == "done"
    for events in ([started, done, done], [started, done, piece], [started, done, {"type": "cancelled"}]):
        with pytest.raises(SeveralEnds):
            seen_of_frames(GOOD, events)


def test_a_body_that_is_not_complete_is_cut_and_events_without_an_end_are_wrong():
    headers = {"x-request-id": "req-1", "content-type": "application/x-ndjson"}
    body = bytearray(b'{"type":"started","request_id":"req-1"}\n{"type":"outp')
    answer = Answer(200, headers, body)
    assert seen_of_answer(GOOD, answer).end == "cut"
    with pytest.raises(AssertionError, match="ended without an end"):
        seen_of_answer(GOOD, replace(answer, is_complete=True))


def test_what_is_left_behind_is_named():
    process = Process(1, threads=3, kinds=Counter(socket=5), resident_bytes=100)
    before = Standing(0, 0, 0, 0, {"trial.host": process}, {"walkserve-1-a/lock": 1}, ("walkserve-1-a",), ())
    assert before.is_idle and before.differs(before, growth=1.5) == []
    for change, said in (
        ({"reserved": 2}, "reserved pages: 0 before, 2 now"),
        ({"shared": {"walkserve-1-a/lock": 1, "left.arena": 1}}, "names in shared memory"),
        ({"temporary": ("tmp1",)}, "temporary files"),
        (
            {"processes": {"trial.host": replace(process, threads=4)}},
            "threads of trial.host: 3 before, 4 now",
        ),
        (
            {"processes": {"trial.host": replace(process, kinds=Counter(socket=6))}},
            "file descriptors of trial.host: 5 before, 6 now, {'socket': 1}",
        ),
        ({"processes": {"trial.host": replace(process, resident_bytes=151)}}, "memory of trial.host"),
    ):
        (found,) = replace(before, **change).differs(before, growth=1.5)
        assert said in found
