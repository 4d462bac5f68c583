"""What a client has seen of one request: its end, and what it was given, in a form that can be compared."""

from __future__ import annotations

import base64
import io
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import soundfile
from tests.soak.asks import Ask
from tests.soak.wire import Answer

End = Literal["done", "error", "cut", "left", "cancelled"]
"""All of it came; an error did; a stream that had begun was cut; its client left first; a ``cancel`` was
answered."""
TERMINAL = ("done", "error", "cancelled", "speech.audio.done")


@dataclass(frozen=True)
class Seen:
    """One request from its client's side.

    Args:
        id: As the server knows it; empty where the client left before it was told.
        given: What came, where all of it did.
        code: Of the error.
        began: When it was sent; seconds of ``time.monotonic``.
        ended: When its client knew of its end, or left.
    """

    ask: Ask
    end: End
    id: str = ""
    given: Any = None
    status: int = 0
    code: str = ""
    began: float = 0.0
    ended: float = 0.0


class SeveralEnds(AssertionError):
    """A request was told of more than one end, or of something after it."""


def seen_of_answer(ask: Ask, answer: Answer) -> Seen:
    """What an HTTP answer comes to, complete or not."""
    id = answer.headers.get("x-request-id", "")
    if answer.status == 0:
        return Seen(ask, "cut")
    if answer.status >= 400:
        assert answer.is_complete, f"{ask.name}: an error response was cut"
        error = json.loads(answer.body)["error"]
        return Seen(ask, "error", id, status=answer.status, code=error["code"] or error["type"])
    if "event-stream" in answer.headers["content-type"] or "ndjson" in answer.headers["content-type"]:
        return _seen_of_events(ask, events_of(answer), id, is_complete=answer.is_complete)
    if not answer.is_complete:
        return Seen(ask, "cut", id, status=answer.status)
    return Seen(ask, "done", id, _file(answer), answer.status)


def seen_of_frames(ask: Ask, events: Sequence[dict[str, Any]]) -> Seen:
    """What the events of one request on a WebSocket come to."""
    id = next((event["request_id"] for event in events if event["type"] == "started"), "")
    return _seen_of_events(ask, events, id, is_complete=False)


def events_of(answer: Answer) -> list[dict[str, Any]]:
    """The events of a body; one that is cut in the middle of the last is left out."""
    text = bytes(answer.body).decode()
    if "ndjson" in answer.headers["content-type"]:
        return [json.loads(line) for line in text.split("\n")[:-1]]
    events = []
    for block in text.split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        event = json.loads(fields["data"])
        events.append({"type": "error"} | event if fields.get("event") == "error" else event)
    return events


def _seen_of_events(ask: Ask, events: Sequence[dict[str, Any]], id: str, *, is_complete: bool) -> Seen:
    ends = [n for n, event in enumerate(events) if event["type"] in TERMINAL]
    if len(ends) > 1 or (ends and ends[0] != len(events) - 1):
        raise SeveralEnds(f"{ask.name}: {[event['type'] for event in events]}")
    if not ends:
        if is_complete:
            raise AssertionError(f"{ask.name}: its events ended without an end")
        return Seen(ask, "cut", id)
    last = events[-1]
    if last["type"] == "error":
        return Seen(ask, "error", id, code=last["error"]["code"] or last["error"]["type"])
    if last["type"] == "cancelled":
        return Seen(ask, "cancelled", id)
    return Seen(ask, "done", id, _joined(events))


def _joined(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Pieces joined: how they were cut depends on time, what they hold does not."""
    joined: dict[str, Any] = defaultdict(bytes)
    count: dict[str, int] = defaultdict(int)
    for event in events:
        if event["type"] == "output":
            name = event["output"]
            assert event["index"] == count[name], f"piece {event['index']} of {name} came out of order"
            count[name] += 1
            if "text" in event:
                joined[name] += event["text"].encode()
            else:
                joined[name] += event.get("numbers") or base64.b64decode(event.get("data", ""))
        elif event["type"] == "speech.audio.delta":
            joined["audio"] += base64.b64decode(event["audio"])
    last: Mapping[str, Any] = events[-1]
    if "emitted" in last:
        assert {name: many for name, many in last["emitted"].items() if many} == dict(count)
    return {"finish_reason": last["finish_reason"], "usage": last["usage"], **joined}


def _file(answer: Answer) -> Any:
    if "ogg" in answer.headers["content-type"]:  # its files have a random number in them
        samples, rate = soundfile.read(io.BytesIO(bytes(answer.body)), dtype="int16")
        return rate, samples.tobytes()
    return answer.headers.get("x-finish-reason"), bytes(answer.body)
