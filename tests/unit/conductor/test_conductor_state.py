"""What the conductor says to what it hears: lists of messages in, lists of messages out."""

from collections.abc import Callable
from typing import Any

import pytest

from walkserve import messages as m

HOST, RANK0 = "speaker.host.1", "speaker.rank0.1"
CLIENT = "http"
Desk = Any
Said = dict[str, list[m.Message]]


def ended(
    number: int, track: str, walk: int = 0, ended_by: str = "end", turns: int = 0, **more: Any
) -> m.WalkEnded:
    filled = {"sampled": turns, "values": {}, "wrote": {}, "emitted": {}, "counts": {}} | more
    return m.WalkEnded(number=number, track=track, walk=walk, ended_by=ended_by, turns=turns, **filled)


def encoded(number: int, length: int = 3) -> m.WalkEnded:
    return ended(number, "prepare", values={"ids": list(range(length)), "length": length})


def broke(number: int, track: str, walk: int = 0, status: int = 500) -> m.WalkBroke:
    return m.WalkBroke(
        number, track, walk, m.Fault("lm.next failed", status, "server_error", "component_failed")
    )


def closed(number: int) -> list[m.Message]:
    return [m.RequestClosed(number, "speaker.host", HOST), m.RequestClosed(number, "speaker.rank0", RANK0)]


def finish(desk: Desk, number: int) -> Said:
    """Both tracks of a running request come to their end."""
    desk.hear(ended(number, "writing", ended_by="stop", turns=5, wrote={"codes": 5}))
    return desk.hear(ended(number, "sounding", ended_by="stream", turns=6, emitted={"speech": 6}))


CLOSE_0 = {HOST: [m.CloseRequest(0)], RANK0: [m.CloseRequest(0)]}


def only(said: Said, *kinds: type) -> list[tuple[str, m.Message]]:
    return [(to, message) for to, sent in said.items() for message in sent if isinstance(message, kinds)]


# --- a request's life ----------------------------------------------------------------------------------


def test_a_request_is_opened_everywhere_and_prepared_before_it_is_admitted(desk: Callable[..., Desk]) -> None:
    options = desk().served["speaker"].model.Options(max_tokens=6)
    opened = m.OpenRequest(0, CLIENT, 7, options, 3, ("speech",))
    assert desk().submit(7, max_tokens=6) == {
        HOST: [opened, m.StartWalk(0, "prepare", 0, "encode", {"text": "hello"})],
        RANK0: [opened],
    }


def test_once_it_is_prepared_it_is_given_its_pages_and_its_tracks_start(desk: Callable[..., Desk]) -> None:
    it = desk()
    it.submit(7, max_tokens=4)
    assert it.hear(encoded(0, length=3)) == {
        HOST: [m.CloseRequest(0)],  # no track calls it
        CLIENT: [m.Admitted(7, 3)],
        RANK0: [
            m.StartWalk(0, "writing", 0, "write", {"ids": [0, 1, 2], "max_tokens": 4}),
            m.StartWalk(0, "sounding", 0, "vocode", {}),
        ],
    }
    assert it.reserved == {"lm": 4}  # 7 tokens are two pages of 4, on two branches


def test_a_stream_ends_with_its_writer_and_a_request_with_its_last_track(desk: Callable[..., Desk]) -> None:
    it = desk()
    it.submit(7, max_tokens=4)
    it.hear(encoded(0))
    assert it.hear(
        ended(0, "writing", ended_by="times", turns=4, wrote={"codes": 4}, counts={"repaired": 1})
    ) == {RANK0: [m.EndStream(0, "codes", 4)]}
    said = it.hear(
        ended(0, "sounding", ended_by="stream", sampled=0, emitted={"speech": 2}, counts={"repaired": 2})
    )
    usage = {"input_tokens": 3, "output_tokens": 4}
    assert said == {
        CLIENT: [m.RequestEnded(7, "length", 3, {"speech": 2}, usage, {"repaired": 3})],
        HOST: [m.CloseRequest(0)],
        RANK0: [m.DiscardStream(0, "codes"), m.CloseRequest(0)],
    }
    assert it.reserved == {"lm": 4}
    assert it.hear(*closed(0)) == {}
    assert it.reserved == {} and it.state.open_requests == 0


def test_items_are_counted_over_all_walks_of_a_writer(desk: Callable[..., Desk]) -> None:
    it = desk()
    it.submit(7, "careful")
    it.hear(encoded(0), broke(0, "writing"))
    said = it.hear(ended(0, "writing", 1, "stop", wrote={"codes": 2}))
    assert said == {RANK0: [m.EndStream(0, "codes", 2)]}


def test_a_reader_that_ends_first_has_what_is_still_written_discarded(desk: Callable[..., Desk]) -> None:
    it = desk()
    it.submit(7)
    it.hear(encoded(0))
    assert it.hear(ended(0, "sounding", ended_by="enough")) == {RANK0: [m.DiscardStream(0, "codes")]}


def test_a_track_that_returns_at_once_is_one_the_request_does_not_need(desk: Callable[..., Desk]) -> None:
    it = desk()
    it.submit(7, "silence")
    said = it.hear(encoded(0))
    assert only(said, m.StartWalk) == [
        (RANK0, m.StartWalk(0, "writing", 0, "write", {"ids": [0, 1, 2], "max_tokens": 8}))
    ]
    assert only(said, m.DiscardStream) == [(RANK0, m.DiscardStream(0, "codes"))]
    (end,) = only(it.hear(ended(0, "writing", ended_by="stop")), m.RequestEnded)
    assert end[1].finish_reason == "stop"


def test_a_fork_is_a_step_like_a_walk(desk: Callable[..., Desk]) -> None:
    it = desk()
    it.submit(7, "fork")
    said = it.hear(encoded(0))
    assert only(said, m.ForkBranch) == [(RANK0, m.ForkBranch(0, "writing", 0, "lm", "main", "other"))]
    assert it.hear(m.BranchForked(0, "writing", 0)) == {
        RANK0: [m.StartWalk(0, "writing", 0, "write", {"ids": [0, 1, 2], "max_tokens": 8})]
    }


def test_a_model_without_prepare_pays_no_hop_for_it(desk: Callable[..., Desk]) -> None:
    it = desk(plain=True)
    (to, warm) = only(it.ready("plain.rank0"), m.StartWalk)[0]
    it.hear(ended(warm.number, "looking"))
    it.hear(m.RequestClosed(warm.number, "plain.rank0", to))
    said = it.submit(7, "cat", model="plain")
    number = warm.number + 1
    assert said == {
        to: [
            m.OpenRequest(number, CLIENT, 7, it.served["plain"].model.Options(), 3, ("words",)),
            m.StartWalk(number, "looking", 0, "look", {"text": "cat"}),
        ],
        CLIENT: [m.Admitted(7)],
    }
    said = it.hear(ended(number, "looking", emitted={"words": 1}))
    usage = {"input_tokens": 0, "output_tokens": 0}
    assert said == {
        CLIENT: [m.RequestEnded(7, "stop", 3, {"words": 1}, usage, {})],
        to: [m.CloseRequest(number)],
    }


def test_the_reason_is_that_of_the_first_declared_track_that_has_one(desk: Callable[..., Desk]) -> None:
    it = desk()
    model = it.served["speaker"].model
    sounding = model.spec.tracks["sounding"]

    def says_why(self: Any, request: Any, prepared: Any) -> Any:
        yield self.vocode()
        return "sounded"

    declared = sounding.function
    object.__setattr__(sounding, "function", says_why)
    try:
        it.submit(7)
        it.hear(encoded(0), ended(0, "sounding", ended_by="enough"))
        (end,) = only(it.hear(ended(0, "writing", ended_by="stop")), m.RequestEnded)
    finally:
        object.__setattr__(sounding, "function", declared)  # the family is everybody's
    assert end[1].finish_reason == "stop"


# --- refused -------------------------------------------------------------------------------------------


def test_a_model_that_is_not_served_is_refused_by_name(desk: Callable[..., Desk]) -> None:
    ((_, failed),) = only(desk().submit(7, model="nobody"), m.RequestFailed)
    assert failed == m.RequestFailed(
        7,
        m.Fault(
            "the model 'nobody' is not served here", 404, "invalid_request_error", "model_not_found", "model"
        ),
    )


def test_before_all_workers_are_there_a_request_is_refused(desk: Callable[..., Desk]) -> None:
    it = desk(ready=False)
    it.ready("speaker.host")
    said = it.submit(7)
    assert list(said) == [CLIENT]
    assert said[CLIENT][0].fault.status == 503
    assert it.state.open_requests == 0
    it.ready("speaker.rank0")
    assert list(it.submit(8)) == [HOST, RANK0]


def test_what_its_prepare_refuses_is_refused_in_its_words(desk: Callable[..., Desk]) -> None:
    it = desk()
    said = it.submit(7, "refuse")
    fault = m.Fault("this cannot be said", 400, "invalid_request_error", None, "text")
    assert said[CLIENT] == [m.RequestFailed(7, fault)]
    assert said[HOST][-1] == said[RANK0][-1] == m.CloseRequest(0)
    it.hear(*closed(0))
    assert it.state.open_requests == 0


def test_an_explicit_length_that_can_never_fit_is_refused_with_both_numbers(
    desk: Callable[..., Desk],
) -> None:
    it = desk(pages=8)  # of four tokens, for two branches
    it.submit(7, max_tokens=30)
    said = it.hear(encoded(0, length=5))
    ((_, failed),) = only(said, m.RequestFailed)
    assert failed.fault == m.Fault(
        "this needs 35 tokens of lm (5 to begin with, 30 to come), but one request may have 16; "
        "shorten the input or max_tokens",
        400,
        "invalid_request_error",
        "context_length_exceeded",
        "max_tokens",
    )
    assert {to: sent for to, sent in said.items() if to != CLIENT} == CLOSE_0
    assert it.reserved == {}


def test_a_default_length_is_cut_to_what_fits(desk: Callable[..., Desk]) -> None:
    it = desk(pages=40)
    it.submit(7)
    said = it.hear(encoded(0, length=60))
    assert only(said, m.StartWalk)[0][1].inputs["max_tokens"] == 4


def test_workers_are_told_of_a_length_that_is_cut_before_the_first_walk_of_a_track(
    desk: Callable[..., Desk],
) -> None:
    it = desk(pages=40)
    it.submit(7)
    said = it.hear(encoded(0, length=60))
    cut = it.served["speaker"].model.Options(max_tokens=4)
    assert said[RANK0][0] == m.SetOptions(0, cut)
    assert isinstance(said[RANK0][1], m.StartWalk)
    assert said[HOST] == [m.CloseRequest(0)]  # no track calls it


def test_workers_are_told_nothing_of_a_length_that_fits(desk: Callable[..., Desk]) -> None:
    it = desk(pages=40)
    it.submit(7)
    assert not only(it.hear(encoded(0, length=3)), m.SetOptions)


def test_what_can_never_be_reserved_is_refused_and_does_not_hold_up_the_others(
    desk: Callable[..., Desk],
) -> None:
    it = desk(pages=4)
    it.submit(7, max_tokens=6)
    said = it.hear(encoded(0, length=3))  # 9 tokens, three pages, on two branches
    assert only(said, m.RequestFailed)


def test_options_that_cannot_be_read_fail_their_request(desk: Callable[..., Desk]) -> None:
    it = desk()
    parts = (m.SentPart("text", b"hello"),)
    said = it.hear(m.Submit(CLIENT, 7, "speaker", parts, ("speech",), {"max_tokens": "many"}, 3))
    assert only(said, m.RequestFailed)


# --- waiting -------------------------------------------------------------------------------------------


def test_who_finds_no_pages_waits_and_is_admitted_in_order(desk: Callable[..., Desk]) -> None:
    it = desk(pages=4)
    for tag in range(4):
        it.submit(tag, max_tokens=4)
    assert only(it.hear(encoded(0)), m.Admitted)
    for number in (2, 1, 3):  # in the order in which they are prepared
        assert it.hear(encoded(number)) == {HOST: [m.CloseRequest(number)]}
    assert it.states()[0].models[0].waiting == 3
    finish(it, 0)
    assert only(it.hear(closed(0)[0]), m.Admitted) == []
    assert only(it.hear(closed(0)[1]), m.Admitted) == [(CLIENT, m.Admitted(2, 3))]
    for number, following in ((2, 1), (1, 3)):
        finish(it, number)
        assert only(it.hear(*closed(number)), m.Admitted) == [(CLIENT, m.Admitted(following, 3))]
    finish(it, 3)
    it.hear(*closed(3))
    assert it.reserved == {} and it.state.open_requests == 0


def test_under_overcommit_more_is_promised_than_there_is_but_no_more_than_that(
    desk: Callable[..., Desk],
) -> None:
    it = desk(pages=6)  # each needs four
    it.served["speaker"].overcommit = 2.0
    admitted = []
    for tag in range(4):
        it.submit(tag, max_tokens=4)
        admitted += only(it.hear(encoded(tag)), m.Admitted)
    assert [message.tag for _, message in admitted] == [0, 1, 2]
    assert it.reserved == {"lm": 12}
    it.submit(9, max_tokens=10)  # 13 tokens on two branches are eight pages
    (refused,) = only(it.hear(encoded(4)), m.RequestFailed)
    assert refused[1].fault.code == "context_length_exceeded"


def test_a_worker_that_no_track_calls_is_done_with_a_prepared_request(desk: Callable[..., Desk]) -> None:
    """So that its loss costs only requests that are being prepared."""
    it = desk()
    it.submit(7)
    it.hear(encoded(0), closed(0)[0])
    it.submit(8)
    failed = only(it.hear(m.WorkerLost("speaker.host", HOST, "is gone")), m.RequestFailed)
    assert [message.tag for _, message in failed] == [8]


def test_a_small_request_does_not_overtake_a_large_one_that_waits(desk: Callable[..., Desk]) -> None:
    it = desk(pages=6)
    for tag, most in enumerate((4, 8, 1)):
        it.submit(tag, max_tokens=most)
    it.hear(encoded(0))
    assert it.reserved == {"lm": 4}
    assert only(it.hear(encoded(1)), m.Admitted) == []  # six pages
    assert only(it.hear(encoded(2)), m.Admitted) == []  # two would be there


def test_several_are_admitted_at_once_when_there_is_room_for_them(desk: Callable[..., Desk]) -> None:
    it = desk(pages=4)
    for tag, most in enumerate((4, 1, 1)):
        it.submit(tag, max_tokens=most)
    it.hear(encoded(0), encoded(1), encoded(2))
    finish(it, 0)
    assert [message.tag for _, message in only(it.hear(*closed(0)), m.Admitted)] == [1, 2]


# --- cancelled -----------------------------------------------------------------------------------------


def cancel(desk: Desk, tag: int = 7) -> Said:
    return desk.hear(m.Cancel(CLIENT, tag))


def test_it_can_be_cancelled_while_it_is_prepared(desk: Callable[..., Desk]) -> None:
    it = desk()
    it.submit(7)
    assert cancel(it) == CLOSE_0
    assert it.hear(encoded(0)) == {}  # was on its way
    it.hear(*closed(0))
    assert it.reserved == {} and it.state.open_requests == 0


def test_it_can_be_cancelled_while_it_waits(desk: Callable[..., Desk]) -> None:
    it = desk(pages=6)
    it.submit(6)
    it.submit(7)
    it.hear(encoded(0), encoded(1))
    assert cancel(it) == {HOST: [m.CloseRequest(1)], RANK0: [m.CloseRequest(1)]}
    it.hear(*closed(1))
    assert it.reserved == {"lm": 6}
    assert it.states()[0].models[0].waiting == 0
    assert it.state.open_requests == 1


def test_it_can_be_cancelled_while_it_runs(desk: Callable[..., Desk]) -> None:
    it = desk()
    it.submit(7, max_tokens=4)
    it.hear(encoded(0))
    assert cancel(it) == CLOSE_0
    assert it.hear(ended(0, "writing"), broke(0, "sounding")) == {}
    assert it.reserved == {"lm": 4}  # until the workers have let go
    it.hear(closed(0)[0])
    assert it.reserved == {"lm": 4}
    it.hear(closed(0)[1])
    assert it.reserved == {} and it.state.open_requests == 0


def test_cancelling_what_has_ended_or_never_was_changes_nothing(desk: Callable[..., Desk]) -> None:
    it = desk()
    it.submit(7, max_tokens=4)
    it.hear(encoded(0))
    finish(it, 0)
    assert cancel(it) == {}
    assert cancel(it, 99) == {}
    it.hear(*closed(0))
    assert cancel(it) == {}
    assert it.reserved == {}


def test_a_cancelled_tag_may_be_used_again(desk: Callable[..., Desk]) -> None:
    it = desk()
    it.submit(7)
    cancel(it)
    assert it.submit(7)[RANK0][0].number == 1
    assert cancel(it) == {HOST: [m.CloseRequest(1)], RANK0: [m.CloseRequest(1)]}


def test_who_waited_behind_a_cancelled_request_is_admitted_at_once(desk: Callable[..., Desk]) -> None:
    it = desk(pages=6)
    for tag, most in ((5, 4), (6, 8), (7, 1)):
        it.submit(tag, max_tokens=most)
    it.hear(encoded(0), encoded(1), encoded(2))
    assert only(cancel(it, 6), m.Admitted) == [(CLIENT, m.Admitted(7, 3))]


def test_a_track_that_raises_when_it_is_cancelled_is_closed_all_the_same(desk: Callable[..., Desk]) -> None:
    it = desk()
    it.submit(7, "cling", max_tokens=4)
    it.hear(encoded(0))
    assert cancel(it) == CLOSE_0


# --- expired -------------------------------------------------------------------------------------------

LATE = m.Fault("the request did not end within 1.5 s", 504, "timeout", "deadline_exceeded")


def expire(desk: Desk, number: int) -> Said:
    return desk.hear_of(lambda state: state.expire(number))


def test_whoever_has_the_clock_is_given_the_requests_that_have_a_deadline(desk: Callable[..., Desk]) -> None:
    it = desk()
    it.submit(6)
    it.submit(7, timeout_s=1.5)
    parts, options = (m.SentPart("text", b"hello"),), it.served["speaker"].model.Options()
    it.hear(m.Submit(CLIENT, 8, "speaker", parts, ("speech",), options, 3, timeout_s=1.5, passed_s=0.5))
    assert it.state.lives.due == [(1, 1.5), (2, 1.0)]


def test_it_may_expire_while_it_is_prepared(desk: Callable[..., Desk]) -> None:
    it = desk()
    it.submit(7, timeout_s=1.5)
    assert expire(it, 0) == {CLIENT: [m.RequestFailed(7, LATE)], **CLOSE_0}
    assert it.hear(encoded(0)) == {}
    it.hear(*closed(0))
    assert it.state.open_requests == 0


def test_it_may_expire_while_it_waits_and_who_stood_behind_it_is_admitted(desk: Callable[..., Desk]) -> None:
    it = desk(pages=6)
    for tag, most in ((5, 4), (6, 8), (7, 1)):
        it.submit(tag, max_tokens=most, timeout_s=1.5)
    it.hear(encoded(0), encoded(1), encoded(2))
    said = expire(it, 1)
    assert said[CLIENT] == [m.RequestFailed(6, LATE), m.Admitted(7, 3)]
    it.hear(*closed(1))
    assert it.reserved == {"lm": 6}


def test_it_may_expire_while_it_runs_and_its_pages_come_back(desk: Callable[..., Desk]) -> None:
    it = desk()
    it.submit(7, max_tokens=4, timeout_s=1.5)
    it.hear(encoded(0))
    assert expire(it, 0) == {CLIENT: [m.RequestFailed(7, LATE)], **CLOSE_0}
    assert it.reserved == {"lm": 4}  # until the workers have let go
    it.hear(*closed(0))
    assert it.reserved == {} and it.state.open_requests == 0


def test_what_has_ended_or_is_gone_does_not_expire(desk: Callable[..., Desk]) -> None:
    it = desk()
    it.submit(7, max_tokens=4, timeout_s=1.5)
    it.hear(encoded(0))
    finish(it, 0)
    assert expire(it, 0) == {}
    it.hear(*closed(0))
    assert expire(it, 0) == {} and it.reserved == {}


def test_a_server_that_drains_stops_when_the_last_request_has_expired(desk: Callable[..., Desk]) -> None:
    it = desk(plain=True)
    (to, warm) = only(it.ready("plain.rank0"), m.StartWalk)[0]
    it.hear(ended(warm.number, "looking"), m.RequestClosed(warm.number, "plain.rank0", to))
    it.submit(7, "cat", model="plain", timeout_s=1.5)
    it.hear(m.Drain())
    expire(it, warm.number + 1)
    it.hear(m.RequestClosed(warm.number + 1, "plain.rank0", to))
    assert it.state.phase == "stopped"


# --- what breaks ---------------------------------------------------------------------------------------


def test_a_walk_that_breaks_fails_the_request_with_its_fault(desk: Callable[..., Desk]) -> None:
    it = desk()
    it.submit(7, max_tokens=4)
    it.hear(encoded(0))
    assert it.hear(broke(0, "writing")) == {
        CLIENT: [m.RequestFailed(7, m.Fault("lm.next failed", 500, "server_error", "component_failed"))],
        **CLOSE_0,
    }
    it.hear(*closed(0))
    assert it.reserved == {} and it.state.open_requests == 0


def test_a_preparation_that_breaks_fails_the_request_with_its_fault(desk: Callable[..., Desk]) -> None:
    it = desk()
    it.submit(7)
    ((_, failed),) = only(it.hear(broke(0, "prepare", status=400)), m.RequestFailed)
    assert failed.fault.status == 400


def test_what_cannot_happen_fails_its_request_and_no_other(
    desk: Callable[..., Desk], caplog: pytest.LogCaptureFixture
) -> None:
    it = desk(pages=6)
    it.submit(6)
    it.submit(7)
    it.hear(encoded(0), encoded(1))  # the second waits: nobody has asked for a Walk of it
    ((_, failed),) = only(it.hear(ended(1, "writing")), m.RequestFailed)
    assert failed.tag == 7 and failed.fault.status == 500
    assert "WALKED happened to request 1 while it was WAITING, which cannot be" in caplog.text
    it.hear(*closed(1))
    assert only(finish(it, 0), m.RequestEnded)


def test_a_request_that_a_worker_cannot_open_fails_in_any_phase(desk: Callable[..., Desk]) -> None:
    it = desk(pages=6)
    for tag in range(3):
        it.submit(tag)
    it.hear(encoded(0), encoded(1))
    for number in range(3):
        ((_, failed),) = only(it.hear(broke(number, "")), m.RequestFailed)
        assert failed.tag == number


def test_a_track_may_take_the_failure_and_go_on(desk: Callable[..., Desk]) -> None:
    it = desk()
    it.submit(7, "careful", max_tokens=4)
    it.hear(encoded(0))
    assert it.hear(broke(0, "writing", status=507)) == {
        RANK0: [m.StartWalk(0, "writing", 1, "write", {"ids": [0, 1, 2], "max_tokens": 1})]
    }
    it.hear(ended(0, "writing", 1, "stop"))
    ((_, end),) = only(it.hear(ended(0, "sounding")), m.RequestEnded)
    assert end.finish_reason == "507 stop"


def test_a_second_fact_about_one_walk_is_not_told_to_the_next(desk: Callable[..., Desk]) -> None:
    it = desk()
    it.submit(7, "careful", max_tokens=4)
    it.hear(encoded(0), broke(0, "writing", 0))
    assert it.hear(broke(0, "writing", 0)) == {}


@pytest.mark.parametrize("text", ["trip before", "trip at once", "trip later"])
def test_a_plan_that_raises_fails_its_request_and_no_other(desk: Callable[..., Desk], text: str) -> None:
    it = desk(pages=40)
    it.submit(6)
    it.hear(encoded(0))
    said = it.submit(7, text)
    if text != "trip before":
        said = it.hear(encoded(1))
    if text == "trip later":
        assert not only(said, m.RequestFailed)
        said = it.hear(ended(1, "writing"))
    assert only(said, m.RequestFailed) == [
        (
            CLIENT,
            m.RequestFailed(
                7,
                m.Fault(
                    "the plan of speaker raised ZeroDivisionError; the server's log has the details",
                    code="plan_failed",
                ),
            ),
        )
    ]
    it.hear(*closed(1))
    (end,) = only(finish(it, 0), m.RequestEnded)
    assert end[1].tag == 6
    it.hear(*closed(0))
    assert it.reserved == {} and it.state.open_requests == 0


def test_a_plan_that_would_end_the_process_ends_its_request_only(desk: Callable[..., Desk]) -> None:
    it = desk(pages=40)
    it.submit(6, "leave")
    ((_, failed),) = only(it.hear(encoded(0)), m.RequestFailed)
    assert failed.fault.code == "plan_failed" and "SystemExit" in failed.fault.message
    it.submit(7, "leave when cancelled")
    it.hear(encoded(1), m.Cancel(CLIENT, 7))
    it.hear(*closed(0), *closed(1))
    assert it.reserved == {} and it.state.open_requests == 0


def test_an_input_that_no_message_can_hold_fails_the_request(desk: Callable[..., Desk]) -> None:
    it = desk()
    it.submit(7, "ask for nonsense", max_tokens=4)
    it.hear(encoded(0))
    ((_, failed),) = only(it.hear(ended(0, "writing")), m.RequestFailed)
    assert failed.fault.message == "write: its input 'ids' is a object, which no Walk can take"


def test_facts_about_a_request_that_is_gone_are_not_heard(desk: Callable[..., Desk]) -> None:
    assert desk().hear(ended(9, "writing"), broke(9, "writing"), *closed(9)) == {}


# --- workers -------------------------------------------------------------------------------------------


def lost(worker: str = "speaker.rank0", incarnation: int = 1) -> m.WorkerLost:
    return m.WorkerLost(worker, f"{worker}.{incarnation}", "was killed")


def test_a_lost_worker_fails_its_requests_and_the_server_is_not_ready(desk: Callable[..., Desk]) -> None:
    it = desk(pages=4)
    for tag in (5, 6, 7):
        it.submit(tag, max_tokens=4)
    it.hear(encoded(0), encoded(1))  # one runs, one waits, one is prepared
    said = it.hear(lost())
    assert [(one.tag, one.fault.status, one.fault.code) for _, one in only(said, m.RequestFailed)] == [
        (tag, 503, "worker_lost") for tag in (5, 6, 7)
    ]
    assert said[HOST] == [m.CloseRequest(number) for number in range(3)]
    assert it.states()[0].phase == "starting"
    assert it.submit(8)[CLIENT][0].fault.status == 503
    for number in range(3):
        it.hear(m.RequestClosed(number, "speaker.host", HOST))
    assert it.reserved == {} and it.state.open_requests == 0


def test_a_worker_that_is_there_again_makes_the_server_ready(desk: Callable[..., Desk]) -> None:
    it = desk(pages=4)
    it.hear(lost())
    addresses = {"speaker.host": HOST, "speaker.rank0": "speaker.rank0.2"}
    assert it.ready("speaker.rank0", 2) == {
        HOST: [m.PeersChanged(addresses)],
        "speaker.rank0.2": [m.PeersChanged(addresses)],
    }
    assert it.states()[0].phase == "ready"
    assert list(it.submit(8)) == [HOST, "speaker.rank0.2"]


def test_a_family_with_a_warm_up_is_ready_once_it_has_passed_through(desk: Callable[..., Desk]) -> None:
    it = desk(warm=True, ready=False)
    it.ready("speaker.host")
    said = it.ready("speaker.rank0")
    assert only(said, m.StartWalk) == [(HOST, m.StartWalk(0, "prepare", 0, "encode", {"text": "warm"}))]
    assert it.submit(7)[CLIENT][0].fault.status == 503
    assert it.hear(encoded(0, length=1)).keys() == {HOST, RANK0}  # nothing is said to nobody
    assert it.states()[0].phase == "starting"
    finish(it, 0)
    assert it.states()[0].phase == "ready"
    it.hear(*closed(0))
    assert it.reserved == {}


def test_after_a_loss_it_warms_up_again(desk: Callable[..., Desk]) -> None:
    it = desk(warm=True)
    it.hear(encoded(0, length=1))
    finish(it, 0)
    it.hear(*closed(0), lost())
    assert it.states()[0].phase == "starting"
    assert only(it.ready("speaker.rank0", 2), m.StartWalk)
    it.hear(encoded(1, length=1))
    finish(it, 1)
    assert it.states()[0].phase == "ready"


def test_a_warm_up_that_fails_stops_the_server_and_says_why(desk: Callable[..., Desk]) -> None:
    it = desk(warm=True)
    it.hear(broke(0, "prepare"))
    (state,) = it.states()
    assert (state.phase, state.detail) == ("stopped", "speaker: its warm-up failed: lm.next failed")


def test_a_worker_that_cannot_start_stops_the_server_and_says_why(desk: Callable[..., Desk]) -> None:
    it = desk(ready=False)
    it.hear(m.WorkerFailed("speaker.rank0", RANK0, m.Fault("no room for the weights")))
    (state,) = it.states()
    assert (state.phase, state.detail) == ("stopped", "speaker.rank0 cannot start: no room for the weights")


def test_the_only_worker_of_a_model_may_be_lost(desk: Callable[..., Desk]) -> None:
    it = desk(plain=True)
    (to, warm) = only(it.ready("plain.rank0"), m.StartWalk)[0]
    it.hear(ended(warm.number, "looking"), m.RequestClosed(warm.number, "plain.rank0", to))
    it.submit(6, "cat", model="plain")
    it.submit(7, "dog", model="plain")
    said = it.hear(m.WorkerLost("plain.rank0", to, "was killed"))
    assert [one.tag for _, one in only(said, m.RequestFailed)] == [6, 7]
    assert it.state.open_requests == 0


def test_other_families_go_on_when_a_worker_is_lost(desk: Callable[..., Desk]) -> None:
    it = desk(plain=True)
    (to, warm) = only(it.ready("plain.rank0"), m.StartWalk)[0]
    it.hear(ended(warm.number, "looking"), m.RequestClosed(warm.number, "plain.rank0", to))
    it.hear(lost())
    assert only(it.submit(7, "cat", model="plain"), m.StartWalk)


def test_the_loss_of_an_earlier_incarnation_that_is_heard_late_changes_nothing(
    desk: Callable[..., Desk],
) -> None:
    it = desk()
    it.ready("speaker.rank0", 2)
    it.hear(lost(incarnation=1))
    assert it.states()[0].phase == "ready"


# --- the server ----------------------------------------------------------------------------------------


def test_a_client_is_told_the_state_when_it_attaches_and_when_it_changes(desk: Callable[..., Desk]) -> None:
    it = desk(ready=False)
    it.state.hear(m.Attach(CLIENT))
    for worker in ("speaker.host", "speaker.rank0"):
        it.state.hear(m.WorkerReady(worker, f"{worker}.1", 1, {}, {}))
    phases = [message.phase for message in it.state.outbox[CLIENT]]
    assert phases[0] == "starting" and phases[-1] == "ready"


def test_what_is_loading_is_passed_on_to_every_client(desk: Callable[..., Desk]) -> None:
    it = desk(ready=False)
    it.hear(m.Attach(CLIENT), m.Attach("cli"))
    loading = m.Loading("speaker.rank0", "lm", done=False)
    assert it.hear(loading) == {CLIENT: [loading], "cli": [loading]}


def test_a_server_that_drains_takes_nothing_new_and_stops_when_it_is_empty(desk: Callable[..., Desk]) -> None:
    it = desk(pages=40)
    it.submit(7)
    it.hear(encoded(0), m.Drain())
    assert it.submit(8)[CLIENT][0].fault.status == 503
    assert it.state.phase == "draining"
    finish(it, 0)
    assert it.state.phase == "draining"
    it.hear(*closed(0))
    assert it.state.phase == "stopped"


def test_a_server_without_requests_is_drained_at_once(desk: Callable[..., Desk]) -> None:
    it = desk()
    it.hear(m.Drain())
    assert it.state.phase == "stopped"


def test_a_server_may_be_told_to_stop_now(desk: Callable[..., Desk]) -> None:
    it = desk()
    it.submit(7)
    it.hear(m.Halt())
    assert it.state.phase == "stopped"


def test_whoever_watches_is_told_at_once_that_the_server_drains(desk: Callable[..., Desk]) -> None:
    it = desk()
    it.hear(m.Attach(CLIENT))
    it.submit(7)
    it.state.hear(m.Drain())
    (told,) = it.state.outbox[CLIENT]
    assert isinstance(told, m.ServerState) and told.phase == "draining"
