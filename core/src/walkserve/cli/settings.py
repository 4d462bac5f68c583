"""Every setting, declared once: its flag, its variable, its key in a file and its help follow from here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import rich_click as click

from walkserve.config import CACHE_TOKENS, DRAIN_TIMEOUT_S, STUCK_AFTER_S
from walkserve.http.settings import HttpSettings
from walkserve.logs import FORMATS, LEVELS

F = TypeVar("F", bound=Callable[..., Any])

PREFIX = "WALKSERVE_"
MODELS = "models"
"""The one setting that has no flag: names stand on the command line as they are."""
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


class CountOrAuto(click.ParamType[int | str]):
    """A whole number of at least 1, or "auto"."""

    name = "count or auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        text = str(value).strip()
        if text == "auto":
            return text
        if not text.isdecimal() or int(text) < 1:
            self.fail(f"{text!r} is neither auto nor a whole number of at least 1", param, ctx)
        return int(text)


@dataclass(frozen=True)
class Setting:
    """One thing that can be set.

    Args:
        name: Its key in a file. Its variable is this in capitals, its flag this with hyphens.
        type: What text is made of; what a file may hold follows from it.
        default: Where nobody sets it. An empty one is shown as nothing.
        help: One sentence.
        metavar: As the flag's value is shown.
        also: A variable of somebody else's that means the same, where its own is not set.
        is_many: Its value is a list: a flag given several times, a variable with commas. Its name is plural.
        is_own: It may also be chosen for one of several models, in a file.
        check: What else a value has to be; raises SettingError.
    """

    name: str
    type: click.ParamType[Any]
    default: Any
    help: str
    metavar: str | None = None
    also: str | None = None
    is_many: bool = False
    is_own: bool = False
    check: Callable[[Any], None] = lambda value: None

    @property
    def flag(self) -> str:
        name = self.name.removesuffix("s") if self.is_many else self.name
        return f"--{name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()

    @property
    def variables(self) -> tuple[str, ...]:
        """Where the environment may have it, the first that is set."""
        return (self.variable, self.also) if self.also is not None else (self.variable,)

    @property
    def is_switch(self) -> bool:
        return self.type is click.BOOL

    def option(self) -> Callable[[F], F]:
        """The flag. Its value is None, or empty, where it is not given: then others are asked."""
        default = "" if self.is_switch else shown(self.default)
        return click.option(
            f"{self.flag}/--no-{self.flag[2:]}" if self.is_switch else self.flag,
            self.name,
            type=None if self.is_switch else self.type,
            default=None,
            multiple=self.is_many,
            metavar=self.metavar,
            help=f"{self.help} Default: {default}." if default else self.help,
        )


def shown(value: Any) -> str:
    """A value as a table has it; nothing for what is not set."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:g}"
        case tuple():
            return ", ".join(map(str, value))
        case _:
            return str(value)


def _check_device(device: str) -> None:
    from walkserve.resolve import check_device

    check_device(device)


def _check_dtype(dtype: str) -> None:
    from walkserve.resolve import check_dtype

    check_dtype(dtype)


def _check_origin(origin: str) -> None:
    from walkserve.http.cors import check_origin

    check_origin(origin)


# The words that device and dtype may be are checked in walkserve.resolve, which says why float16 is none.
MODEL_SETTINGS: tuple[Setting, ...] = (
    Setting(
        "device",
        click.STRING,
        "auto",
        "Where the model runs.",
        metavar="auto|cpu|cuda",
        is_own=True,
        check=_check_device,
    ),
    Setting(
        "dtype",
        click.STRING,
        "auto",
        "Of weights and arithmetic; auto is float32 on a CPU, bfloat16 on a GPU.",
        metavar="auto|float32|bfloat16",
        is_own=True,
        check=_check_dtype,
    ),
    Setting(
        "deterministic",
        click.BOOL,
        False,
        "A request gives the same whatever it is batched with; slower.",
        is_own=True,
    ),
    Setting(
        "cache_tokens",
        click.IntRange(min=1),
        CACHE_TOKENS,
        "Tokens each cached component's pool holds, on a CPU.",
        metavar="N",
        is_own=True,
    ),
    Setting(
        "token_budget",
        CountOrAuto(),
        "auto",
        "Tokens of prompts in one batch; auto keeps a step that others listen to under twice its time.",
        metavar="N|auto",
        is_own=True,
    ),
    Setting(
        "revision",
        click.STRING,
        None,
        "Branch, tag or commit of the hub's repository; for one model.",
        metavar="REVISION",
        is_own=True,
    ),
    Setting(
        "offline",
        click.BOOL,
        False,
        "Take only what is in the hub's local cache.",
        also="HF_HUB_OFFLINE",
    ),
    Setting(
        "hub_token_file",
        FILE,
        None,
        "A file with the hub's token, for gated and private repositories; HF_TOKEN has it else.",
        metavar="FILE",
    ),
    Setting(
        "plugins",
        click.STRING,
        (),
        "The only plugin that may be loaded, or one of several.",
        metavar="DISTRIBUTION",
        is_many=True,
    ),
    Setting(
        "log_level",
        click.Choice(LEVELS),
        "info",
        "What is logged; debug also shows where an error came from.",
    ),
)
"""What every command takes that serves or runs a model."""

_HTTP = HttpSettings(created=0)

SERVE_SETTINGS: tuple[Setting, ...] = (
    Setting("host", click.STRING, "127.0.0.1", "Address to listen on.", metavar="ADDRESS"),
    Setting("port", click.IntRange(0, 65535), 8000, "Port to listen on; 0 takes a free one.", metavar="N"),
    Setting(
        "api_key_file",
        FILE,
        None,
        "A file with API keys, one a line; every route but /health then wants one.",
        metavar="FILE",
    ),
    Setting(
        "cors_origins",
        click.STRING,
        _HTTP.cors_origins,
        "An origin whose pages may call this server, as in https://example.org, or * for all.",
        metavar="ORIGIN",
        is_many=True,
        check=_check_origin,
    ),
    Setting(
        "max_body_bytes",
        click.IntRange(min=1),
        _HTTP.body_bytes,
        "The largest body that is read; a larger one is a 413.",
        metavar="N",
    ),
    Setting(
        "max_media_bytes",
        click.IntRange(min=1),
        _HTTP.media_bytes,
        "The most media of one request: of a form, or of the frames on a WebSocket.",
        metavar="N",
    ),
    Setting(
        "max_image_pixels",
        click.IntRange(1, _HTTP.image_pixels),
        _HTTP.image_pixels,
        "The most pixels of an image; one with more is a 413.",
        metavar="N",
    ),
    Setting(
        "max_frame_pixels",
        click.IntRange(1, _HTTP.frame_pixels),
        _HTTP.frame_pixels,
        "The most pixels of a frame of a video; one with more is a 413.",
        metavar="N",
    ),
    Setting(
        "max_video_s",
        click.FloatRange(0, _HTTP.video_s, min_open=True),
        _HTTP.video_s,
        "Seconds that a video may take; a longer one is a 413.",
        metavar="SECONDS",
    ),
    Setting(
        "remote_media",
        click.BOOL,
        _HTTP.remote_media,
        "Fetch images and videos from the public addresses that clients name; without it none is opened.",
    ),
    Setting(
        "max_socket_requests",
        click.IntRange(min=1),
        _HTTP.socket_requests,
        "Requests that may be open on one WebSocket.",
        metavar="N",
    ),
    Setting(
        "max_open_requests",
        click.IntRange(min=1),
        _HTTP.max_open_requests,
        "Requests that may run or wait at once; one more is a 429.",
        metavar="N",
    ),
    Setting(
        "timeout",
        click.FloatRange(min=0, min_open=True),
        _HTTP.timeout_s,
        "Seconds that a request may take, and may ask for; then it is a 504.",
        metavar="SECONDS",
    ),
    Setting(
        "receive_timeout_s",
        click.FloatRange(min=0, min_open=True),
        _HTTP.receive_timeout_s,
        "Seconds that a client may take to send its headers, and each MiB of its body.",
        metavar="SECONDS",
    ),
    Setting(
        "drain_timeout",
        click.FloatRange(min=0),
        DRAIN_TIMEOUT_S,
        "Seconds that running requests have to finish when the server is told to stop.",
        metavar="SECONDS",
    ),
    Setting(
        "stuck_after",
        click.FloatRange(min=0),
        STUCK_AFTER_S,
        "Seconds after which a process that does not move is killed and started again; 0 for never.",
        metavar="SECONDS",
    ),
    Setting(
        "placement",
        FILE,
        None,
        "A YAML or TOML file: which component is on which rank.",
        metavar="FILE",
    ),
    Setting(
        "overcommit",
        click.FloatRange(min=1),
        1.0,
        "How many times its pages a cache may be promised; what is too much moves to host memory.",
        metavar="X",
        is_own=True,
    ),
    Setting("profile", click.BOOL, False, "Note where the time of each request goes; see walkserve profile."),
    Setting(
        "journal",
        FOLDER,
        None,
        "A folder for a journal of each request, with what its client sent; see walkserve replay.",
        metavar="DIR",
    ),
    Setting("strict", click.BOOL, False, "Do not start next to a plugin that is broken."),
    *MODEL_SETTINGS,
    Setting("log_format", click.Choice(FORMATS), "text", "json writes each line as a JSON object."),
)
"""What ``walkserve serve`` takes."""


def options(settings: Sequence[Setting]) -> Callable[[F], F]:
    """Give a command the flags of these settings."""

    def decorate(command: F) -> F:
        for setting in reversed(settings):
            command = setting.option()(command)
        return command

    return decorate
