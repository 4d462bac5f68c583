"""``walkserve profile``: where the time of one request went, drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import rich_click as click

if TYPE_CHECKING:
    from walkserve.profiles.report import ProfiledRequest

TIMEOUT_S = 30


@click.command("profile")
@click.argument("request_id", metavar="ID")
@click.option(
    "--url", default="http://127.0.0.1:8000", show_default=True, metavar="URL", help="Where the server is."
)
@click.option(
    "--api-key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A file with the server's key, if it asks for one.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.svg",
    help="Where the time line goes; ID.svg unless you say so.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the profile instead, for programs.")
def command(request_id: str, url: str, api_key_file: Path | None, out: Path | None, as_json: bool) -> None:
    """Draw where the time of one request went.

    ID is the x-request-id of its response. The server has to run with --profile.
    """
    body = _fetch(url, request_id, api_key_file)
    request = _read(body)
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(request.profile), indent=2))
        return
    from walkserve.profiles.drawing import draw

    out = out if out is not None else Path(f"{request_id}.svg")
    try:
        out.write_text(draw(request), "utf-8")
    except OSError as error:
        raise click.FileError(str(out), f"it cannot be written: {error.strerror}") from error
    click.echo(out)


def _fetch(url: str, request_id: str, api_key_file: Path | None) -> bytes:
    """What the server says of the request.

    Raises:
        click.ClickException: There is no such server or request, or the key is wrong.
    """
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    if not url.startswith(("http://", "https://")):
        raise click.BadParameter(
            f"{url!r} is no URL of a server, as in http://127.0.0.1:8000", param_hint="--url"
        )
    asked = Request(f"{url.rstrip('/')}/v1/requests/{quote(request_id, safe='')}")
    if api_key_file is not None:
        asked.add_header("authorization", f"Bearer {api_key_file.read_text('utf-8').strip()}")
    try:
        with urlopen(asked, timeout=TIMEOUT_S) as answer:
            body: bytes = answer.read()
            return body
    except HTTPError as error:
        raise click.ClickException(f"{url} answers {error.code}: {_message(error.read())}") from error
    except (OSError, HTTPException, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise click.ClickException(f"{url} cannot be reached: {why}") from error


def _message(body: bytes) -> str:
    import msgspec

    try:
        return str(msgspec.json.decode(body)["error"]["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace")


def _read(body: bytes) -> ProfiledRequest:
    import msgspec

    from walkserve.profiles.report import ProfiledRequest

    try:
        request = msgspec.json.decode(body, type=ProfiledRequest)
    except msgspec.DecodeError as error:
        raise click.ClickException(f"this is no answer of walkserve: {error}") from error
    if request.profile is None:
        raise click.ClickException(
            f"nothing is noted of {request.id}: serve with --profile; the newest requests have one"
        )
    return request
