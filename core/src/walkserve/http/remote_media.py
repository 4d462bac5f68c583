"""Media at addresses that clients name, for servers that may fetch them (``--remote-media``).

Only public addresses are connected to: a client may not have the server ask its own network. The address that
was looked at is the one that is connected to, so a name cannot mean another a moment later, and a redirect is
looked at like the first address. What comes is bounded, and read as any other file is.
"""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv6Network, ip_address
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpcore

from walkserve_sdk.errors import BadRequest, MediaTooLarge, shown

MOST = 8
"""Addresses of one request."""
TAKES_S = 10.0
"""Seconds until a file has to be here."""
REDIRECTS = 3

_HEADERS: Mapping[bytes | str, bytes | str] = {
    "accept": "*/*",
    "accept-encoding": "identity",
    "user-agent": "walkserve",
}
_MOVED = (301, 302, 303, 307, 308)
_CARRY_IPV4 = (IPv6Network("64:ff9b::/96"), IPv6Network("2002::/16"), IPv6Network("2001::/32"))
"""IPv6 addresses behind which an IPv4 one is, which may be any."""

Place = tuple[dict[str, Any], str, str]
"""An object of the body, its key, and what the field is called."""


class _NotPublic(Exception):
    """An address that is not to be connected to."""


def is_public(address: str) -> bool:
    """Whether everybody may reach it: not this machine, its network, or what is set aside for one."""
    ip = ip_address(address.partition("%")[0])
    carries = ip.version == 6 and any(ip in network for network in _CARRY_IPV4)
    return ip.is_global and not ip.is_multicast and not carries


class _PublicOnly(httpcore.AsyncNetworkBackend):
    """Connections to public addresses."""

    def __init__(self) -> None:
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [str(where[0]) for *_, where in found]
        if not addresses or not all(map(is_public, addresses)):
            raise _NotPublic
        return await self._network.connect_tcp(addresses[0], port, timeout, local_address, socket_options)

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        raise _NotPublic

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)


async def fetch_messages(body: Mapping[str, Any], limit_bytes: int) -> None:
    """Where the images of a conversation are addresses, put their bytes, as base64. Raises what ``fetch``
    does."""
    await _fetch_all(_in_messages(body), limit_bytes)


async def fetch_inputs(body: Mapping[str, Any], limit_bytes: int) -> None:
    """The same of ``inputs``."""
    await _fetch_all(_in_inputs(body), limit_bytes)


async def _fetch_all(places: Iterator[Place], limit_bytes: int) -> None:
    remote = [each for each in places if is_address(each[0][each[1]])]
    if len(remote) > MOST:
        raise BadRequest(
            f"{remote[MOST][2]}: one request may name {MOST} addresses; send the bytes of the others",
            param=remote[MOST][2],
        )
    for holder, key, place in remote:
        data = await fetch(holder[key], place=place, limit_bytes=limit_bytes)
        limit_bytes -= len(data)  # of all of them together
        holder[key] = base64.b64encode(data).decode()


def is_address(value: Any) -> bool:
    return isinstance(value, str) and value[:8].lower().startswith(("http://", "https://"))


def _in_messages(body: Mapping[str, Any]) -> Iterator[Place]:
    """What is not of the form that a body should have is told by who reads it next."""
    for number, message in enumerate(_list(body.get("messages"))):
        for field in ("content", "images"):
            for at, content in enumerate(_list(message.get(field)) if isinstance(message, dict) else ()):
                image = content.get("image_url") if isinstance(content, dict) else None
                if isinstance(image, dict) and "url" in image:
                    yield image, "url", f"messages[{number}].{field}[{at}].image_url.url"


def _in_inputs(body: Mapping[str, Any]) -> Iterator[Place]:
    for number, entry in enumerate(_list(body.get("inputs"))):
        if isinstance(entry, dict) and "data" in entry:
            yield entry, "data", f"inputs[{number}].data"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


async def fetch(url: str, *, place: str, limit_bytes: int) -> bytes:
    """The file at an address.

    Args:
        place: The field, for messages.

    Raises:
        MediaTooLarge: It has more bytes.
        BadRequest: The address, or one that it redirects to, is not public; or there is no file, in time.
    """
    told = shown(url, 60)
    try:
        async with (
            asyncio.timeout(TAKES_S),
            httpcore.AsyncConnectionPool(network_backend=_PublicOnly()) as pool,
        ):
            for _ in range(1 + REDIRECTS):
                data, url = await _get(pool, url, place, limit_bytes)
                if data is not None:
                    return data
        why = f"redirects more than {REDIRECTS} times"
    except _NotPublic:
        why = "leads to no public address, and no other is connected to"
    except TimeoutError:
        why = f"did not give its file within {TAKES_S:g} s"
    except (OSError, ValueError, httpcore.NetworkError, httpcore.ProtocolError) as error:
        why = f"cannot be fetched: {error or type(error).__name__}"
    raise BadRequest(f"{place}: {told} {why}; send the bytes of the file", param=place)


async def _get(
    pool: httpcore.AsyncConnectionPool, url: str, place: str, limit_bytes: int
) -> tuple[bytes | None, str]:
    """The file, or None and where it is instead."""
    if urlsplit(url).scheme.lower() not in ("http", "https"):
        raise _NotPublic
    async with pool.stream("GET", url, headers=_HEADERS) as answer:
        headers = {name.lower(): value.decode("latin-1") for name, value in answer.headers}
        if answer.status in _MOVED and b"location" in headers:
            return None, urljoin(url, headers[b"location"])
        if answer.status != 200:
            raise ValueError(f"the answer is a {answer.status}")
        data = bytearray()
        async for piece in answer.aiter_stream():
            data += piece
            if len(data) > limit_bytes:
                raise MediaTooLarge(
                    f"{place}: more than {limit_bytes:,} bytes, the most that is left for it", param=place
                )
        return bytes(data), url
