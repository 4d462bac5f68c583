"""Write the parts of the documentation that the code knows: ``python docs/generate.py``.

In a page they stand between ``<!-- NAME: docs/generate.py -->`` and ``<!-- end -->``. A test holds every page
to what this would write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path

from walk_plugin_bagel import Bagel
from walk_plugin_orpheus import Orpheus
from walkserve.cli import COMMANDS
from walkserve.conductor.life_table import TABLE, Phase
from walkserve.graph.drawing import draw_svg
from walkserve.http.app import create_app
from walkserve.http.callers import Caller
from walkserve_sdk import Model
from walkserve_sdk.option_notes import option_notes

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/reference/http.md", "docs/explanation/semantics.md", "plugins/bagel/README.md")
_PART = re.compile(r"(<!-- ([\w -]+): docs/generate\.py -->\n).*?(<!-- end -->)", re.DOTALL)


def options_of(family: type[Model]) -> Iterator[str]:
    """What a request may set, from the declaration."""
    yield "| option | default | range | is |"
    yield "|---|---|---|---|"
    for note in option_notes(family.Options):
        default = "none" if note.default is None else f"`{json.dumps(note.default).removesuffix('.0')}`"
        allowed = re.sub(r'("\w+")', r"`\1`", note.range)
        about = note.about.replace("``", "`")
        yield f"| `{note.name}` | {default} | {allowed or note.type} | {about} |"


def commands() -> Iterator[str]:
    """Every command, with the first sentence of its help."""
    yield "| command | does |"
    yield "|---|---|"
    for name, module in COMMANDS.items():
        told = (import_module(module).command.help or "").strip().split("\n\n")[0]
        yield f"| `walkserve {name}` | {' '.join(told.split()).removesuffix('.')} |"


def routes() -> Iterator[str]:
    """Every route, with its summary."""
    yield "| route | does |"
    yield "|---|---|"
    for name, told in sorted(route_summaries().items(), key=lambda each: each[0].split()[1]):
        yield f"| `{name}` | {told} |"


def route_summaries() -> dict[str, str]:
    """``GET /v1/models/{model_id}`` -> what it is for."""
    found: dict[str, str] = {}
    for route in create_app(Caller(_NoPost()), {}).routes:
        path = re.sub(r":[a-z]+}", "}", route.path)
        if path.startswith("/schema"):
            continue
        if hasattr(route, "route_handler_map"):
            for method, (handler, _) in route.route_handler_map.items():
                if method not in ("OPTIONS", "HEAD"):
                    found[f"{method} {path}"] = handler.summary or ""
        else:
            found[f"WS {path}"] = (route.route_handler.fn.__doc__ or "").strip().splitlines()[0].rstrip(".")
    return found


def life_of_a_request() -> Iterator[str]:
    """What happens to a request in each phase, and what is then done."""
    events = list(dict.fromkeys(event for _, event in TABLE))
    phases = [phase for phase in Phase if phase is not Phase.GONE]
    yield f"| | {' | '.join(f'`{phase.name}`' for phase in phases)} |"
    yield f"|---|{'---|' * len(phases)}"
    for event in events:
        cells = []
        for phase in phases:
            after, acts = TABLE.get((phase, event), (None, ()))
            told = [
                *(act.value for act in acts),
                *([f"→ `{after.name}`"] if after not in (None, phase) else []),
            ]
            cells.append("" if after is None else ", ".join(told) or "nothing")
        yield f"| {event.value} | {' | '.join(cells)} |"


class _NoPost:
    """A mailbox for an application that is only looked at."""

    def send(self, to: str, messages: object) -> None: ...

    async def receive(self) -> list[object]:
        return []

    def forget(self, to: str) -> None: ...


PARTS: dict[str, Callable[[], Iterator[str]]] = {
    "options of bagel": partial(options_of, Bagel),
    "options of orpheus": partial(options_of, Orpheus),
    "commands": commands,
    "routes": routes,
    "life of a request": life_of_a_request,
}


def generated() -> Iterator[tuple[Path, str]]:
    """Every file that has something generated, as it should be."""
    for name in PAGES:
        path = ROOT / name
        yield path, _PART.sub(lambda found: found[1] + _table(found[2]) + found[3], path.read_text())
    for family in (Bagel, Orpheus):
        yield ROOT / f"docs/graph-{family.__name__.lower()}.svg", draw_svg(family)


def _table(name: str) -> str:
    return "".join(f"{line}\n" for line in PARTS[name]())


if __name__ == "__main__":
    for path, text in generated():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}")
