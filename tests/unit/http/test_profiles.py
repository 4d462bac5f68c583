"""Profiles in the HTTP process: kept by request, waited for a moment, and told with the request."""

import asyncio

import pytest

from walkserve import messages as m
from walkserve.http.profiles import Profiles

pytestmark = pytest.mark.anyio

HOST, RANK0 = "parrot.host.1", "parrot.rank0.1"


def traced(tag):
    return m.Traced(tag, (HOST, RANK0), (("submitted", 1), ("ended", 2)), ())


def profiled(tag, address):
    return m.Profiled(tag, address.rpartition(".")[0], address, (), (), (), (), b"", b"", 0)


async def test_a_profile_is_complete_when_everybody_has_told_theirs():
    profiles = Profiles()
    profiles.start("req-1", 1)
    (notes,) = await profiles.of("req-1", wait=False)
    for message in (profiled(1, HOST), traced(1), profiled(1, RANK0)):
        assert not notes.is_complete
        profiles.hear(message)
    assert notes.is_complete


async def test_what_is_on_its_way_after_the_end_is_waited_for():
    profiles = Profiles()
    profiles.start("req-1", 1)
    asking = asyncio.ensure_future(profiles.of("req-1", wait=True))
    for message in (traced(1), profiled(1, HOST), profiled(1, RANK0)):
        await asyncio.sleep(0)
        assert not asking.done()
        profiles.hear(message)
    assert (await asking)[0].is_complete


async def test_a_worker_that_was_lost_is_not_waited_for_and_its_part_is_missing(monkeypatch):
    monkeypatch.setattr("walkserve.http.profiles.SETTLE_S", 60)
    profiles = Profiles()
    profiles.start("req-1", 1)
    for message in (traced(1), profiled(1, HOST)):
        profiles.hear(message)
    asking = asyncio.ensure_future(profiles.of("req-1", wait=True))
    await asyncio.sleep(0)
    profiles.lost(RANK0)
    (notes,) = await asking
    assert notes.is_settled and not notes.is_complete


async def test_who_asks_does_not_wait_for_ever(monkeypatch):
    monkeypatch.setattr("walkserve.http.profiles.SETTLE_S", 0.02)
    profiles = Profiles()
    profiles.start("req-1", 1)
    (notes,) = await profiles.of("req-1", wait=True)
    assert not notes.is_complete


async def test_the_oldest_are_forgotten_and_what_comes_of_them_late_does_nothing():
    profiles = Profiles(keep=1)
    profiles.start("req-1", 1)
    profiles.start("req-2", 2)
    profiles.hear(traced(1))
    assert await profiles.of("req-1", wait=False) is None
    assert len(await profiles.of("req-2", wait=False)) == 1


async def test_several_calls_of_one_request_are_kept_side_by_side():
    profiles = Profiles()
    profiles.start("req-1", 1)
    profiles.start("req-1", 2)
    profiles.hear(traced(2))
    first, second = await profiles.of("req-1", wait=False)
    assert first.traced is None and second.traced == traced(2)


async def test_a_request_has_a_profile_only_where_they_are_on(stage):
    def answer(mailbox, submit):
        mailbox.say(stage.emitted(submit.tag, 0, stage.sound(0.1)), stage.ended(submit.tag, 1))
        mailbox.say(traced(submit.tag), profiled(submit.tag, HOST), profiled(submit.tag, RANK0))

    told = []
    for is_on in (False, True):
        async with stage.serving(answer, profiles=is_on) as server:
            answered = await server.client.post(
                "/v1/audio/speech", json={"model": "parrot:toy", "input": "hello"}
            )
            described = await server.client.get(f"/v1/requests/{answered.headers['x-request-id']}")
            told.append(described.json())
    assert told[0]["profile"] is None
    assert told[1]["profile"]["complete"] is True
    assert [mark["what"] for mark in told[1]["profile"]["calls"][0]["marks"]] == ["submitted", "ended"]
