"""Forms (``multipart/form-data``): their parts, read up to limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from litestar import Request
from multipart import MultipartError, MultipartSegment, ParserLimitReached, PushMultipartParser

from walkserve.http.bodies import body_pieces
from walkserve.http.problems import BodyTooLarge
from walkserve_sdk.errors import BadRequest

FORM = "multipart/form-data"
MOST_PARTS = 1024


@dataclass(slots=True)
class Entry:
    """One part of a form, as its bytes come.

    Args:
        is_file: Whether it came with a file's name.
    """

    name: str
    data: bytearray
    is_file: bool

    @property
    def text(self) -> str:
        """Raises BadRequest where it is none."""
        try:
            return self.data.decode()
        except UnicodeDecodeError:
            raise BadRequest(f"{self.name}: it is not UTF-8", param=self.name) from None


async def read_entries(
    request: Request[Any, Any, Any],
    check: Callable[[str], None],
    *,
    limit_bytes: int,
    most_bytes: Callable[[Entry], int],
) -> list[Entry]:
    """The parts of a form, in their order.

    Args:
        check: Raises BadRequest for a name that no part may have.
        limit_bytes: What the whole body may be; the rest is not read.
        most_bytes: What one part may be.

    Raises:
        BadRequest: It is no form, too large, or has a part nobody knows.
        Cancelled: The client left before it was complete.
    """
    boundary = request.content_type[1].get("boundary", "")
    entries: list[Entry] = []
    try:
        parser = PushMultipartParser(boundary, max_segment_count=MOST_PARTS)
        async for piece in body_pieces(request, limit_bytes):
            for event in parser.parse(piece) if piece else ():  # it takes an empty one for the end
                if isinstance(event, MultipartSegment):
                    check(event.name or "")
                    entries.append(Entry(event.name or "", bytearray(), event.filename is not None))
                elif event:  # None: a part has ended
                    entry = entries[-1]
                    entry.data += event
                    _check_size(entry, most_bytes(entry))
        parser.close()
    except ParserLimitReached as error:
        raise BodyTooLarge(f"the form is beyond its limits, {MOST_PARTS:,} parts for one: {error}") from None
    except MultipartError as error:
        raise BadRequest(f"the body is no valid form: {error}", code="invalid_form") from None
    return entries


def _check_size(entry: Entry, most_bytes: int) -> None:
    if len(entry.data) > most_bytes:
        raise BodyTooLarge(f"{entry.name}: it is longer than {most_bytes:,} bytes, the most a field may be")


def is_form(request: Request[Any, Any, Any]) -> bool:
    """Whether a body says that it is a form."""
    return request.content_type[0].lower() == FORM
