"""What is printed in the documentation runs, and does what it is said to do."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import walk_plugin_orpheus

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs/tutorials/first-plugin.md"


def _blocks(page: Path, language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.M | re.S)
    return [block for kind, block in fenced if kind == language]


def _one(page: Path, language: str, having: str) -> str:
    found = [block for block in _blocks(page, language) if having in block]
    assert len(found) == 1, f"{page.name}: {len(found)} blocks have {having!r}"
    return found[0]


def _run(program: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = compile(program, "snippet", "exec", dont_inherit=True)  # without this file's __future__
        exec(code, {"__name__": "snippet"})
    return printed.getvalue()


def test_the_smallest_family_of_the_readme_prints_what_is_printed_below_it():
    page = ROOT / "README.md"
    assert _run(_one(page, "python", "class Beeper")) in _blocks(page, "")


def test_the_declaration_in_the_readme_is_the_one_that_is_served():
    shown = _one(ROOT / "README.md", "python", "llama = Component(")
    source = Path(walk_plugin_orpheus.__file__).read_text()
    for part in shown.split("\n\n"):
        assert part.strip("\n") in source


def test_the_fakes_of_the_guide_hold():
    _run(_one(ROOT / "docs/how-to/test-a-plan.md", "python", "ToyRuntime("))


@pytest.mark.parametrize(("having", "route"), [("Route[", "POST /v1/summaries"), ("SocketRoute", "WS /v1/")])
def test_the_routes_of_the_guide_are_routes(having, route):
    program = _one(ROOT / "docs/how-to/add-a-route.md", "python", f"list[{having}")
    assert _run(f"{program}\nprint(*walkserve_extend_app())").startswith(route)


def test_the_family_of_the_guide_has_the_routes_of_images_and_of_chat():
    program = _one(ROOT / "docs/how-to/paint-and-chat.md", "python", "class Sketcher")
    asks = (
        "print(*Sketcher.surfaces())",
        "print(Sketcher().edit_request(ImageAsk('red', (b'1',), size=(64, 32))).outputs)",
        "print(Sketcher().chat_request(ChatAsk(())).outputs)",
    )
    said = _run("\n".join([program, *asks]))
    assert said.splitlines() == [
        "images.generations images.edits chat.completions",
        "('drawing', 'previews')",
        "('said',)",
    ]


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """The tutorial's files, and the metadata that installing them would leave."""
    found = re.findall(r"^`([\w./]+)`\n\n```\w+\n(.*?)^```$", TUTORIAL.read_text(), re.M | re.S)
    for name, text in found:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert {name for name, _ in found} >= {"pyproject.toml", "walkserve.json", "tests/test_plan.py"}
    metadata = tmp_path / "src/walk_plugin_morse-0.1.0.dist-info"
    (metadata / "extra_metadata").mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: walk-plugin-morse\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text("[walkserve.models]\nmorse = walk_plugin_morse:Morse\n")
    (tmp_path / "walkserve.json").rename(metadata / "extra_metadata/walkserve.json")
    return tmp_path


def _python(plugin: Path, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(plugin / "src")}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=plugin, env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_tutorials_plan_passes_its_test_and_is_listed(plugin):
    _python(plugin, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    listed = _python(plugin, "-m", "walkserve", "list-models")
    assert "Text in, Morse code out" in listed and "broken" not in listed


def test_the_tutorials_mistakes_are_told_as_it_says(plugin):
    declaration = (plugin / "src/walk_plugin_morse/__init__.py").read_text()
    program = declaration.replace(', each={"signal": "signals"}', "")
    assert program != declaration
    with pytest.raises(TypeError) as told:
        _run(program)
    assert f"{told.value}\n" in _blocks(TUTORIAL, "")


@pytest.mark.slow
def test_the_tutorials_family_sounds(plugin):
    (plugin / "try.py").write_text(_one(TUTORIAL, "python", "Engine("))
    assert _python(plugin, "try.py").strip() == "14400 8000 stop"


@pytest.mark.slow
def test_the_engine_of_the_readme_speaks():
    printed = _run(_one(ROOT / "README.md", "python", "with Engine("))
    assert printed.startswith("(20480,) 24000 stop\nspeech ")
