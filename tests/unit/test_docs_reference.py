"""The reference pages say all there is: commands, routes, names and options; links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest
from litestar.routes import WebSocketRoute
from msgspec import structs

import walkserve
import walkserve_sdk
from walk_plugin_bagel import Bagel
from walk_plugin_orpheus import Orpheus
from walkserve.cli import COMMANDS
from walkserve.cli.settings import SERVE_SETTINGS, shown
from walkserve.http.app import create_app
from walkserve.http.callers import BUFFER_BYTES, Caller
from walkserve.http.chat_reading import ChatFields
from walkserve.http.generate_accept import OFFERED
from walkserve.http.generate_ask import AskFields
from walkserve.http.image_reading import EditFields
from walkserve.http.metrics import Runtime
from walkserve.http.settings import HttpSettings
from walkserve.http.speech_reading import SpeechBody
from walkserve.http.stream_frames import FRAMES, OpenText
from walkserve_sdk.events import ToSocket
from walkserve_sdk.requests import option_paths

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(part.startswith(".") or part in ("build", "dist") for part in path.relative_to(ROOT).parts)
)


def _page(name: str) -> str:
    return (DOCS / name).read_text()


def _section(page: str, heading: str) -> str:
    """From the heading that begins with this to the next of its level."""
    lines = page.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(heading))
    level = heading.split(" ")[0] + " "
    stop = next((n for n in range(start + 1, len(lines)) if lines[n].startswith(level)), len(lines))
    return "\n".join(lines[start:stop])


def _rows(text: str) -> dict[str, str]:
    """Tables: what stands in the first column's code -> the second column."""
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]*) \|", text, re.M)
    return {name: second.strip() for first, second in rows for name in re.findall(r"`([^`]+)`", first)}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_every_flag_is_in_the_reference(command):
    section = _section(_page("reference/cli.md"), f"## `walkserve {command}")
    flags = {flag for each in import_module(COMMANDS[command]).command.params for flag in each.opts}
    flags = {flag for flag in flags if flag.startswith("--")}
    told = set(re.findall(r"`(--[a-z-]+)", section))
    assert {flag for flag in told if not flag.startswith("--no-")} == flags


def test_every_setting_is_told_in_its_three_spellings_with_its_default():
    table = _section(_page("reference/configuration.md"), "## Settings")
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in re.findall(r"^\| `.*", table, re.M)]
    told = [[re.findall(r"`([^`]+)`", cell) for cell in row[:4]] for row in cells]
    assert told == [
        [
            [setting.name],
            [setting.flag],
            list(setting.variables),
            [shown(setting.default)] if shown(setting.default) else [],
        ]
        for setting in SERVE_SETTINGS
    ]


def test_what_one_model_may_choose_for_itself_is_told():
    text = _section(_page("reference/configuration.md"), "## Models").split("```")[0]
    own = [setting.name for setting in SERVE_SETTINGS if setting.is_own]
    assert re.findall(r"`(\w+)`", text[text.index("may choose") :]) == own


class _NoPost:
    """A mailbox for an application that is only looked at."""

    def send(self, to, messages): ...

    async def receive(self):
        return []

    def forget(self, to): ...


def test_every_route_is_in_the_reference_and_no_other():
    app = create_app(Caller(_NoPost()), {})
    routes = {
        f"{method} {re.sub(r':[a-z]+}', '}', route.path)}"
        for route in app.routes
        for method in ({"WS"} if isinstance(route, WebSocketRoute) else route.methods) - {"OPTIONS", "HEAD"}
        if not route.path.startswith("/schema")
    }
    told = {
        name for name in _rows(_page("reference/http.md")) if name.startswith(("GET /", "POST /", "WS /"))
    }
    assert told == routes


def test_every_field_of_a_native_request_and_every_form_of_its_answer_are_in_the_reference():
    section = _section(_page("reference/http.md"), "## `POST /v1/generate`")
    told = _rows(section)
    assert set(AskFields.__struct_fields__) <= set(told)
    assert set(OFFERED) <= set(told)


def test_every_frame_of_a_socket_is_in_the_reference_with_its_fields():
    page = _page("reference/websocket.md")
    said = _section(page, "## What a client says")
    for name, frame in FRAMES.items():
        assert f"| `{name}` |" in said
        assert all(f"`{field}`" in said for field in frame.__struct_fields__)
    assert all(f"`{field}`" in said for field in (*AskFields.__struct_fields__, *OpenText.__struct_fields__))
    heard = _section(page, "## What the server says")
    for event in get_args(ToSocket):
        assert f"| `{event.__struct_config__.tag}` |" in heard
        fields = {each.encode_name for each in structs.fields(event)} - {"id", "data"}
        assert [field for field in fields if f"`{field}`" not in heard] == []


def test_the_limits_of_a_socket_are_those_of_the_settings():
    limits = _section(_page("reference/websocket.md"), "## Limits")
    settings = HttpSettings()
    assert f"| {settings.socket_requests} requests open" in limits
    assert f"| {settings.body_bytes >> 20} MiB in a text frame" in limits
    assert f"| {settings.media_bytes >> 20} MiB of media" in limits
    assert f"| {BUFFER_BYTES >> 20} MiB of output" in limits


def test_every_metric_is_in_the_reference_with_its_kind_and_its_labels_and_no_other():
    caller = Caller(_NoPost())
    there = {}
    for metric in caller.meters.registry._collector_to_names:
        there[metric._name] = (metric._type, metric._labelnames)
    for metric in Runtime(caller).describe():
        there[metric.name] = (metric.type, metric._labelnames)
    there = {
        name + ("_total" if kind == "counter" else ""): (kind, labels)
        for name, (kind, labels) in there.items()
    }
    page = _page("reference/metrics.md")
    rows = re.findall(r"^\| `(walkserve_\w+)` \| (\w+) \|([^|]*)\|", page, re.M)
    told = {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert told == there


def test_every_field_of_a_speech_request_is_in_the_reference():
    told = _rows(_section(_page("reference/http.md"), "## `POST /v1/audio/speech`"))
    assert set(SpeechBody.__struct_fields__) <= set(told)


def test_every_field_of_images_and_of_an_answer_is_in_the_reference():
    page = _page("reference/http.md")
    images = _rows(_section(page, "## `POST /v1/images/generations`"))
    chat = _rows(_section(page, "## `POST /v1/chat/completions`"))
    assert {"model", *(field.encode_name for field in structs.fields(EditFields))} == set(images)
    assert {field.encode_name for field in structs.fields(ChatFields)} == set(chat)


def _generator():
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_the_documentation_takes_from_the_code_is_as_the_code_has_it():
    stale = [path.name for path, text in _generator().generated() if path.read_text() != text]
    assert stale == [], "run: python docs/generate.py"


def test_the_readme_has_every_command_and_every_route_and_no_other():
    tables = _rows((ROOT / "README.md").read_text())
    assert {f"walkserve {command}" for command in COMMANDS} == {
        name for name in tables if name.startswith("walkserve ")
    }
    told = {name for name in tables if name.startswith(("GET /", "POST /", "WS /"))}
    assert told == set(_generator().route_summaries())
    assert all(tables[name] for name in told)


@pytest.mark.parametrize("family", [Bagel, Orpheus])
def test_every_option_is_explained(family):
    rows = list(_generator().options_of(family))[2:]
    names = {path[-1] for path in option_paths(family.Options).values()}
    assert {re.findall(r"`(\w+)`", row)[0] for row in rows} == names
    assert all(cell.strip() for row in rows for cell in row.strip("|").split("|"))


def test_the_long_names_of_options_are_in_the_reference():
    page = _page("reference/http.md")
    assert [name for name in option_paths(Orpheus.Options) if f"`{name}`" not in page] == []


@pytest.mark.parametrize("module", ["walkserve_sdk", "walkserve_sdk.nn", "walkserve_sdk.testing"])
def test_every_exported_name_is_in_the_authoring_reference(module):
    page = _page("reference/authoring.md")
    page = page if module == "walkserve_sdk" else _section(page, f"## `{module}`")
    told = {
        name for row in re.findall(r"^\| (`[^|]+) \|", page, re.M) for name in re.findall(r"`(\w+)`", row)
    }
    assert set(import_module(module).__all__) <= told


def test_what_the_authoring_reference_lists_as_attributes_exists():
    page = _page("reference/authoring.md")
    overridden = re.findall(r"^\| `(\w+)\(", _section(page, "## A family"), re.M)
    assert overridden
    assert [name for name in overridden if not hasattr(walkserve_sdk.Model, name)] == []


def test_every_file_of_the_server_is_in_the_architecture():
    page = _page("explanation/architecture.md")
    source = Path(walkserve.__file__).parent
    files = {path.name for path in source.rglob("*.py") if not path.name.startswith("__")}
    commands = {path.name for path in (source / "cli").glob("*.py")}
    attention = {path.name for path in (source / "engine/attention").glob("*.py")}
    assert sorted(name for name in files - commands - attention if f"`{name}`" not in page) == []


@pytest.mark.parametrize("page", ["README.md", "docs/explanation/architecture.md"])
def test_files_that_are_named_with_their_folder_exist(page):
    source = Path(walkserve.__file__).parent
    folders = "|".join(path.name for path in source.iterdir() if path.is_dir())
    named = re.findall(rf"`((?:{folders})/[\w/]+\.py)`", (ROOT / page).read_text())
    assert named
    assert [name for name in named if not (source / name).is_file()] == []


def test_the_layers_that_contributors_are_told_are_those_that_hold():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["id"] == "layers"]
    source = Path(walkserve.__file__).parent
    there = [
        [name for name in re.findall(r"\w+", layer) if list(source.glob(f"{name}*"))] for layer in layers
    ]
    page = (ROOT / "CONTRIBUTING.md").read_text()
    block = page[page.index("imports go downwards only:") :].split("\n\n")[1]
    assert [line.strip().split(", ") for line in block.splitlines()] == there


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or (anchor and anchor not in _anchors(path)):
            broken.append(target)
    assert broken == []


def _anchors(path: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
