"""The command line. A command is one file of this folder, imported when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import rich_click as click

from walkserve import __version__

COMMANDS = {
    "describe": "walkserve.cli.describe",
    "doctor": "walkserve.cli.doctor",
    "generate": "walkserve.cli.generate",
    "graph": "walkserve.cli.graph",
    "list-models": "walkserve.cli.list_models",
    "profile": "walkserve.cli.profile",
    "replay": "walkserve.cli.replay",
    "serve": "walkserve.cli.serve",
}


class LazyGroup(click.RichGroup):
    """Finds its commands by name; each module has its own in ``command``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name]).command
        return command


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="What a command takes: walkserve COMMAND --help",
)
@click.version_option(__version__, message="walkserve %(version)s")
def walkserve() -> None:
    """A server for composite multimodal models."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code: 2 for what cannot be asked, 1 for what went wrong."""
    try:
        code: Any = walkserve.main(args=arguments, prog_name="walkserve", standalone_mode=False)
    except click.ClickException as error:
        hint = ""
        if isinstance(error, click.UsageError) and error.ctx is not None:
            hint = f" (see {error.ctx.command_path} --help)"
        return _complain(error.format_message().rstrip(".") + hint, error, error.exit_code)
    except click.Abort:
        return 130  # as a shell says it of a command that Ctrl-C ended
    except Exception as error:
        from walkserve.errors import SettingError
        from walkserve_sdk.errors import BadRequest, WalkserveError

        if isinstance(error, WalkserveError):
            return _complain(str(error), error, 2 if isinstance(error, SettingError | BadRequest) else 1)
        what = f"{type(error).__name__}: {error}"
        return _complain(f"{what} (this should not happen; --log-level debug shows where)", error, 1)
    return code if isinstance(code, int) else 0


def _complain(message: str, error: Exception, code: int) -> int:
    """One line in red; with ``--log-level debug`` also where it came from."""
    import logging

    from rich.console import Console

    from walkserve.logs import is_json

    is_debug = logging.getLogger("walkserve").isEnabledFor(logging.DEBUG)
    if is_json():
        logging.getLogger("walkserve").error("%s", message, exc_info=error if is_debug else None)
        return code
    console = Console(stderr=True)
    if is_debug:
        import traceback

        console.print(
            "".join(traceback.format_exception(error)), markup=False, highlight=False, soft_wrap=True
        )
    console.print(f"walkserve: {message}", style="red", markup=False, highlight=False, soft_wrap=True)
    return code
