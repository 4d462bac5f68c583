"""Extensions: loaded one by one, each reported that cannot be, and no path that two of them claim."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from walkserve.errors import SettingError
from walkserve.extensions import CORE_PATHS, load_extensions
from walkserve.http.app import create_app
from walkserve.http.callers import Caller
from walkserve.plugins import find_models, list_models
from walkserve_sdk import PluginError

HEAD = """
from msgspec import Struct
from walkserve_sdk.hooks import hookimpl
from walkserve_sdk.serving import Route

class Body(Struct):
    text: str

async def handle(exchange): ...

def route(path):
    return Route(path=path, surface="notes", handle=handle, fields=Body, answer=Body, summary="Note it",
                 example={"text": "x"}, example_answer={"text": "x"})
"""
GOOD = """
@hookimpl
def walkserve_extend_app():
    return [route("/v1/notes")]
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a distribution with one extension, as pip would leave it, on a sys.path of its own."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def add(name: str, source: str, *, point: str | None = None, descriptor: str | None = None) -> None:
        package = f"walk_plugin_{name}"
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: walk-plugin-{name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[walkserve]\n{point or name} = {package}\n")
        if descriptor is not None:
            (info / "walkserve.json").write_text(descriptor)
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(HEAD + dedent(source))

    yield add
    for name in set(sys.modules) - before:
        del sys.modules[name]


def loaded(*plugins: str) -> dict[str, list[str]]:
    """Extension -> its routes, of those installed here."""
    return {each.name: list(map(str, each.routes)) for each in load_extensions(plugins).loaded}


def test_an_extension_is_asked_for_its_routes(install: Install) -> None:
    install("notes", GOOD)
    assert loaded("walk-plugin-notes") == {"notes": ["POST /v1/notes"]}
    assert load_extensions(("walk-plugin-notes",)).surfaces == {"notes": ("POST /v1/notes",)}


@pytest.mark.parametrize(
    ("source", "descriptor", "said"),
    [
        ("import not_there", None, "install what it needs: pip install --upgrade walk-plugin-bad"),
        ("raise SystemExit", None, "this is the plugin's mistake"),
        ("API_LEVEL = 99" + GOOD, None, "it is written for API level 99"),
        (GOOD, '{"api": 99}', "it is written for API level 99"),
        (GOOD, "{", "its descriptor walkserve.json cannot be read"),
        ("def walkserve_extend_app(): return []", None, "has no hook; mark a function with"),
        ("@hookimpl\ndef walkserve_extend_ap(): return []", None, "unknown hook 'walkserve_extend_ap'"),
        ("@hookimpl\ndef walkserve_extend_app(router): return []", None, "walkserve_extend_app"),
        ("@hookimpl\ndef walkserve_extend_app(): raise KeyError('x')", None, "raised KeyError: 'x'"),
        ("@hookimpl\ndef walkserve_extend_app(): return [route('v1')]", None, "'v1' is no path of a route"),
        ("@hookimpl\ndef walkserve_extend_app(): return route('/v1/x')", None, "a list of routes, not Route"),
        ("@hookimpl\ndef walkserve_extend_app(): return [1]", None, "Routes and SocketRoutes"),
    ],
)
def test_a_broken_extension_is_reported_and_the_others_are_loaded(
    install: Install, source: str, descriptor: str | None, said: str
) -> None:
    install("bad", source, descriptor=descriptor)
    install("notes", GOOD)  # comes after it
    install("also", GOOD.replace("/v1/notes", "/v1/also"))
    found = load_extensions()
    (wrong,) = [error for each, error in found.broken if each.name == "bad"]
    assert str(wrong).startswith("bad (walk-plugin-bad 1.0)")
    assert said in str(wrong)
    names = {each.name for each in found.loaded}
    assert {"notes", "also"} <= names and "bad" not in names


def test_only_plugins_that_may_be_loaded_are_imported(install: Install) -> None:
    install("notes", GOOD)
    install("also", "raise SystemExit")
    assert loaded("walk_plugin.notes") == {"notes": ["POST /v1/notes"]}
    assert load_extensions(("walk-plugin-notes",)).broken == ()
    assert "walk_plugin_also" not in sys.modules


def test_a_plugin_that_brings_an_extension_and_no_model_may_be_named(install: Install) -> None:
    install("notes", GOOD)
    assert find_models(("walk-plugin-notes",)).names == ()
    assert "walk-plugin-notes" not in {each.distribution for each in list_models()}
    with pytest.raises(SettingError, match="did you mean 'walk-plugin-notes'"):
        find_models(("walk-plugin-note",))


def test_two_that_add_one_path_are_an_error_that_names_both(install: Install) -> None:
    install("notes", GOOD)
    install("other", GOOD)
    with pytest.raises(PluginError) as raised:
        load_extensions().check()
    assert "walk-plugin-notes 1.0 adds POST /v1/notes, and walk-plugin-other 1.0 adds" in str(raised.value)


@pytest.mark.parametrize(
    "path", ["/v1/models", "/v1/models/mine", "/v1/requests/x", "/schema/x", "/v1/stream"]
)
def test_a_path_of_the_servers_own_is_an_error_that_names_both(install: Install, path: str) -> None:
    install("notes", GOOD.replace("/v1/notes", path))
    with pytest.raises(PluginError, match=rf"walk-plugin-notes 1.0 adds POST {path}, and .* walkserve's own"):
        load_extensions(("walk-plugin-notes",)).check()


def test_two_extensions_of_one_name_are_an_error_that_names_both(install: Install) -> None:
    install("notes", GOOD)
    install("other", GOOD.replace("/v1/notes", "/v1/other"), point="notes")
    with pytest.raises(PluginError, match="walk-plugin-notes 1.0 and walk-plugin-other 1.0 both have"):
        load_extensions().check()


def test_extensions_that_claim_nothing_twice_are_in_order(install: Install) -> None:
    install("notes", GOOD)
    install("other", GOOD.replace("/v1/notes", "/v1/other"))
    load_extensions(("walk-plugin-notes", "walk-plugin-other")).check()


def test_the_paths_that_are_the_servers_own_are_those_of_its_application() -> None:
    class NoPost:
        def send(self, to, messages): ...

        async def receive(self):
            return []

        def forget(self, to): ...

    there = {route.path for route in create_app(Caller(NoPost()), {}).routes}
    assert {path for path in there if not path.startswith("/schema")} == {
        path for path in CORE_PATHS if not path.startswith("/schema")
    }
