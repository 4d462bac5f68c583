"""What is remembered of requests."""

from __future__ import annotations

import pytest

from walkserve.http.requests import NoSuchRequest, RequestLog
from walkserve.messages import Fault, RequestEnded


def ended(reason: str, tokens: int) -> RequestEnded:
    return RequestEnded(1, reason, 7, {}, {"input_tokens": 2, "output_tokens": tokens}, {"dropped": 1})


def test_a_request_runs_until_its_call_ends_and_then_tells_how():
    log = RequestLog()
    record = log.start("req-1", "beeper", seed=7)
    assert record.status().state == "running" and record.status().took_s is None
    record.gave()
    record.ended(ended("length", 5))
    status = log.find("req-1").status()
    assert (status.state, status.finish_reason, status.seed) == ("done", "length", 7)
    assert status.usage == {"input_tokens": 2, "output_tokens": 5} and status.counts == {"dropped": 1}
    assert 0 <= status.first_output_s <= status.took_s


def test_several_calls_of_one_request_are_added_up():
    log = RequestLog()
    for reason, tokens in (("stop", 3), ("length", 4), ("stop", 5)):
        log.start("req-1", "beeper", seed=7).ended(ended(reason, tokens))
    status = log.find("req-1").status()
    assert status.usage["output_tokens"] == 12 and status.finish_reason == "length"


def test_a_failure_and_a_cancellation_are_told():
    log = RequestLog()
    log.start("req-1", "beeper", seed=7).failed(Fault("it broke", 500, "server_error", "component_failed"))
    log.start("req-2", "beeper", seed=7).cancelled()
    failed = log.find("req-1").status()
    assert failed.state == "failed" and failed.error.code == "component_failed"
    assert log.find("req-2").status().state == "cancelled"


def test_the_oldest_that_has_ended_is_forgotten_and_what_runs_never_is():
    log = RequestLog(keep=2)
    log.start("req-1", "beeper", seed=1)
    log.start("req-2", "beeper", seed=2).ended(ended("stop", 1))
    log.start("req-3", "beeper", seed=3).ended(ended("stop", 1))
    assert log.find("req-1").is_running and log.find("req-3").state == "done"
    with pytest.raises(NoSuchRequest, match="no request 'req-2' is remembered"):
        log.find("req-2")
