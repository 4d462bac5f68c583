"""``walkserve serve``: one server for one or several models."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import rich_click as click

from walkserve.cli.config_file import ConfigFile, NamedModel, read_config
from walkserve.cli.options import choices
from walkserve.cli.settings import FILE, MODELS, PREFIX, SERVE_SETTINGS, options
from walkserve.cli.settle import Settled, Source, settle, unknown_variables
from walkserve.logs import start_logging
from walkserve_sdk.errors import PluginError

if TYPE_CHECKING:
    from walkserve.extensions import Extensions
    from walkserve.http.keys import ApiKeys
    from walkserve.resolve import OwnChoices

log = logging.getLogger(__name__)

CONFIG = f"{PREFIX}CONFIG"


@click.command("serve")
@click.argument("names", metavar="NAME[:VARIANT][=CHECKPOINT]...", nargs=-1)
@click.option(
    "--config",
    type=FILE,
    envvar=CONFIG,
    metavar="FILE",
    help=f"A YAML or TOML file with settings and models; {CONFIG} names it else.",
)
@click.option("--show-config", is_flag=True, help="Print every setting and where it came from, and end.")
@click.option("--json", "as_json", is_flag=True, help="With --show-config: print JSON, for programs.")
@options(SERVE_SETTINGS)
def command(
    names: tuple[str, ...], config: Path | None, show_config: bool, as_json: bool, **flags: Any
) -> int:
    """Serve models over HTTP.

    A CHECKPOINT is a folder, or a hub id as owner/name@revision; without one, the family's own is taken.

    Every option may also stand in a file, or in a variable: --max-body-bytes is the key max_body_bytes and
    the variable WALKSERVE_MAX_BODY_BYTES. A flag wins over a variable, and that over the file.
    """
    if as_json and not show_config:
        raise click.UsageError("--json belongs to --show-config")
    file = read_config(config, SERVE_SETTINGS) if config is not None else ConfigFile()
    settled = settle(SERVE_SETTINGS, file=file.settings, environ=os.environ, flags=flags)
    models = _models(names, file, os.environ)
    if show_config:
        from walkserve.cli.show_config import show

        show(settled, models, as_json=as_json)
        return 0
    return _serve(settled, models)


def _models(names: Sequence[str], file: ConfigFile, environ: Mapping[str, str]) -> tuple[NamedModel, ...]:
    """The models that whoever comes last names; they take the place of all that others name."""
    variable = PREFIX + MODELS.upper()
    words = tuple(word.strip() for word in environ.get(variable, "").split(",") if word.strip())
    if names:
        return tuple(NamedModel(name, "the command line") for name in names)
    if words:
        return tuple(NamedModel(word, variable) for word in words)
    return file.models


def _serve(settled: Mapping[str, Settled], models: Sequence[NamedModel]) -> int:
    value = {name: each.value for name, each in settled.items()}
    start_logging("http", value["log_level"], value["log_format"])
    for line in unknown_variables(SERVE_SETTINGS, os.environ, also=(CONFIG,)):
        log.warning("%s", line)
    if not models:
        raise click.UsageError(
            "no model is named; name one, as in walkserve serve orpheus:toy, or list some in a --config FILE"
        )
    from walkserve.http.settings import HttpSettings

    http = HttpSettings(
        body_bytes=value["max_body_bytes"],
        media_bytes=value["max_media_bytes"],
        image_pixels=value["max_image_pixels"],
        frame_pixels=value["max_frame_pixels"],
        video_s=value["max_video_s"],
        remote_media=value["remote_media"],
        socket_requests=value["max_socket_requests"],
        max_open_requests=value["max_open_requests"],
        timeout_s=value["timeout"],
        receive_timeout_s=value["receive_timeout_s"],
        keys=_keys(settled["api_key_file"]),
        cors_origins=value["cors_origins"],
    )
    _check_plugins(value["plugins"], [model.name for model in models], is_strict=value["strict"])
    extensions = _extensions(value["plugins"], is_strict=value["strict"])
    from walkserve.resolve import AskedModel, resolve_models

    asked = [AskedModel(model.name, _own(model, settled)) for model in models]
    resolved = resolve_models(
        asked,
        placement=value["placement"],
        overcommit=value["overcommit"],
        profile=value["profile"],
        journal=value["journal"],
        **choices(settled),
    )
    from walkserve.supervisor import serve

    return serve(
        resolved,
        host=value["host"],
        port=value["port"],
        http=http,
        extensions=extensions,
        log_level=value["log_level"],
        log_format=value["log_format"],
        drain_timeout_s=value["drain_timeout"],
        stuck_after_s=value["stuck_after"],
    )


def _own(model: NamedModel, settled: Mapping[str, Settled]) -> OwnChoices:
    """What a file sets for one model; a variable or a flag, which are for all, come after the file."""
    own = {key: each.value for key, each in model.own.items() if settled[key].source <= Source.FILE}
    return cast("OwnChoices", own)


def _keys(file: Settled) -> ApiKeys | None:
    if file.value is None:
        return None
    from walkserve.http.keys import is_read_by_all, read_keys

    if is_read_by_all(file.value):
        log.warning(
            "%s: every user of this machine may read these API keys; chmod 600 mends that", file.value
        )
    return read_keys(file.value)


def _check_plugins(plugins: Sequence[str], names: Sequence[str], *, is_strict: bool) -> None:
    """Say which plugins are broken that nobody asked for, and go on; strictly, do not start next to one."""
    from walkserve.model_names import parse_model_name
    from walkserve.plugins import problems

    broken = problems(plugins, imports=is_strict)
    if is_strict and broken:
        raise PluginError(f"{'; '.join(broken.values())} (--strict)")
    asked = {parse_model_name(name).family for name in names}
    for model, line in broken.items():
        if model not in asked:  # what is asked for fails with its own error
            log.warning("a plugin is broken: %s", line)


def _extensions(plugins: Sequence[str], *, is_strict: bool) -> Extensions:
    """Say which extensions are broken, and go on without them; strictly, do not start."""
    from walkserve.extensions import load_extensions

    extensions = load_extensions(plugins)
    if is_strict and extensions.broken:
        raise PluginError(f"{'; '.join(str(error) for _, error in extensions.broken)} (--strict)")
    for _, error in extensions.broken:
        log.warning("an extension is broken, and its routes are missing: %s", error)
    extensions.check()
    return extensions
