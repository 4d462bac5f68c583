"""Placement: by default, by file, and what a file may not say, each with its line."""

from pathlib import Path
from typing import Any

import pytest

from walkserve.conductor.placement import Placed, place, read_placement
from walkserve.errors import SettingError
from walkserve_sdk import (
    Component,
    DeclarationError,
    Fixed,
    Loop,
    Model,
    Node,
    Output,
    PagedKV,
    Stream,
    Text,
    WalkGraph,
    track,
)


class Speaker(Model):
    reader = Component("nowhere:Reader", device="cpu")
    trunk = Component("nowhere:Trunk")
    head = Component("nowhere:Head")
    codec = Component("nowhere:Codec")
    codes = Stream(Fixed(1))
    words = Output(Text())
    read = WalkGraph(Node(reader, "read", takes="text", gives="ids"))
    write = WalkGraph(
        Node(trunk, "run", takes="ids", gives="hidden"),
        Node(head, "draw", takes="hidden", gives="code", to=codes),
    )
    sound = WalkGraph(Loop(Node(codec, "decode", takes=codes, gives="out", to=words)))

    @track(writes=codes)
    def writing(self, request: Any, prepared: Any) -> Any:
        read = yield self.read(text=request.one("text"))
        yield self.write(ids=read["ids"])

    @track
    def sounding(self, request: Any, prepared: Any) -> Any:
        yield self.sound()


def written(folder: Path, text: str, name: str = "p.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_by_default_a_family_has_one_host_worker_and_one_rank() -> None:
    assert place("speaker:toy", Speaker) == {
        "reader": "speaker-toy.host",
        "trunk": "speaker-toy.rank0",
        "head": "speaker-toy.rank0",
        "codec": "speaker-toy.rank0",
    }


def test_on_a_cpu_what_shares_no_graph_with_rank_0_works_beside_it_on_the_host() -> None:
    assert place("speaker", Speaker, on_cpu=True) == {
        "reader": "speaker.host",
        "trunk": "speaker.rank0",
        "head": "speaker.rank0",
        "codec": "speaker.host",
    }


def test_what_has_a_cache_stays_on_rank_0_with_all_that_its_graphs_call() -> None:
    class Talker(Model):
        ear = Component("nowhere:Ear")
        mouth = Component("nowhere:Mouth", kv=PagedKV())
        lips = Component("nowhere:Lips")
        eye = Component("nowhere:Eye")
        words = Output(Text())
        hear = WalkGraph(Node(ear, "run", takes="text", gives="heard"))
        see = WalkGraph(Node(eye, "run", takes="text", gives="seen"))
        talk = WalkGraph(
            Node(mouth, "run", takes="heard", gives="word"),
            Node(lips, "move", takes="word", gives="said", to=words),
        )

        @track
        def talking(self, request: Any, prepared: Any) -> Any:
            heard = yield self.hear(text=request.one("text"))
            yield self.see(text=request.one("text"))
            yield self.talk(heard=heard["heard"])

    workers = place("talker", Talker, on_cpu=True)
    assert {name for name, worker in workers.items() if worker.endswith("host")} == {"eye"}


def test_a_placement_file_is_obeyed_on_a_cpu_as_well() -> None:
    entries = [Placed("trunk", 1, "")]
    assert place("speaker", Speaker, entries, on_cpu=True) == place("speaker", Speaker, entries)


def test_components_are_on_the_ranks_they_are_placed_on() -> None:
    entries = [Placed("trunk", 0, ""), Placed("head", 0, ""), Placed("codec", 3, "")]
    assert place("speaker", Speaker, entries) == {
        "reader": "speaker.host",
        "trunk": "speaker.rank0",
        "head": "speaker.rank0",
        "codec": "speaker.rank3",
    }


def test_what_is_not_placed_is_on_the_lowest_rank_that_is() -> None:
    assert place("speaker", Speaker, [Placed("codec", 2, "")])["trunk"] == "speaker.rank2"


def test_the_name_of_a_worker_is_safe_as_that_of_a_file() -> None:
    assert set(place("a/b:c d", Speaker).values()) == {"a-b-c-d.host", "a-b-c-d.rank0"}


YAML = """\
models:
  speaker:
    - {components: [trunk, head], ranks: [0]}
    - components:
        - codec
      ranks: [1]
"""
TOML = """
[[models.speaker]]
components = ["trunk", "head"]
ranks = [0]
[[models.speaker]]
components = ["codec"]
ranks = [1]
"""


def test_yaml_and_toml_say_the_same(tmp_path: Path) -> None:
    yaml = read_placement(written(tmp_path, YAML)).entries("speaker:toy", "speaker")
    toml = read_placement(written(tmp_path, TOML, "p.toml")).entries("speaker:toy", "speaker")
    said = [("trunk", 0), ("head", 0), ("codec", 1)]
    assert [(entry.component, entry.rank) for entry in yaml] == said
    assert [(entry.component, entry.rank) for entry in toml] == said
    assert [entry.where for entry in yaml] == [f"{tmp_path}/p.yaml, line {line}" for line in (3, 3, 5)]
    assert toml[2].where == f"{tmp_path}/p.toml, models.speaker[1].components[0]"


def test_what_is_said_of_a_served_name_goes_before_what_is_said_of_its_family(tmp_path: Path) -> None:
    placement = read_placement(
        written(tmp_path, "models: {speaker: [{components: [codec], ranks: [1]}], 'speaker:toy': []}")
    )
    assert placement.entries("speaker:toy", "speaker") == ()
    assert [entry.rank for entry in placement.entries("speaker:big", "speaker")] == [1]
    assert placement.entries("other", "other") == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "p.yaml, line 1: the file is empty; it has the key 'models'"),
        ("- a", "p.yaml, line 1: a placement file has the key 'models', not a list"),
        ("\nmodels: {}\nmodel: {}", "p.yaml, line 3: unknown key 'model'; did you mean 'models'?"),
        ("{}", "p.yaml, line 1: the key 'models' is missing"),
        ("models:", "p.yaml, line 1: 'models' maps names of models to lists, not nothing"),
        (
            "models:\n  a:\n    components: [x]",
            "p.yaml, line 2: 'a' has a list of entries {components: [...], ranks: [...]}, not a mapping",
        ),
        ("models:\n  a:\n  - x", "p.yaml, line 3: an entry of 'a' has a list of entries"),
        ("models:\n  a: []\n  a: []", "p.yaml, line 3: the key 'a' is there a second time; it is also in"),
        ("models:\n  a:\n  - {ranks: [0]}", "p.yaml, line 3: this entry lacks the key 'components'"),
        ("models:\n  a:\n  - {components: [x]}", "p.yaml, line 3: this entry lacks the key 'ranks'"),
        (
            "models:\n  a:\n  - components: [x]\n    ranks: [0]\n    gpus: 1",
            "p.yaml, line 5: unknown key 'gpus'; known: components, ranks",
        ),
        (
            "models:\n  a:\n  - components: x\n    ranks: [0]",
            "p.yaml, line 3: 'components' is a list of names, not 'x'",
        ),
        ("models:\n  a:\n  - components: []\n    ranks: [0]", "p.yaml, line 3: 'components' is empty"),
        (
            "models:\n  a:\n  - components:\n    - 3\n    ranks: [0]",
            "p.yaml, line 4: a component is named by a word, not by 3",
        ),
        (
            "models:\n  a:\n  - components: [x]\n    ranks: 0",
            "p.yaml, line 4: 'ranks' is a list of one rank, not 0",
        ),
        ("models:\n  a:\n  - components: [x]\n    ranks: []", "p.yaml, line 4: 'ranks' is empty"),
        (
            "models:\n  a:\n  - components: [x]\n    ranks: [-1]",
            "p.yaml, line 4: a rank is a whole number from 0 up, not -1",
        ),
        ("models:\n  a:\n  - components: [x]\n    ranks: [one]", "p.yaml, line 4: a rank is a whole number"),
        ("models:\n  a:\n  - components: [x]\n    ranks: [true]", "from 0 up, not True"),
        ("models:\n  a:\n  - components: [x]\n    ranks:\n    - 0.5", "p.yaml, line 5: a rank is a whole"),
        (
            "models:\n  a:\n  - components: [x]\n    ranks: [0, 1]",
            "p.yaml, line 4: 'ranks' names 2 ranks; replicas and tensor parallelism are not in this version",
        ),
        ("models:\n  a: [", "p.yaml, line 2: this is no YAML: "),
        ("models:\n  a: !!python/object:os.system []", "p.yaml"),
        ("models:\n  ? [a]\n  : []", "p.yaml, line 2: a key is a word"),
        ("models: \x00", "p.yaml: this is no YAML: "),
    ],
)
def test_a_yaml_file_is_refused_with_the_line(tmp_path: Path, text: str, message: str) -> None:
    if "!!python" in text:  # a tag names nothing that is made: the list is a list
        assert read_placement(written(tmp_path, text)).entries("a", "a") == ()
        return
    with pytest.raises(SettingError) as error:
        read_placement(written(tmp_path, text))
    assert f"{tmp_path}/{message}" in str(error.value) or message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models = 3", "p.toml, models: 'models' maps names of models to lists, not 3"),
        (
            "[[models.a]]\ncomponents = ['x']\nranks = [-2]",
            "p.toml, models.a[0].ranks[0]: a rank is a whole number from 0 up, not -2",
        ),
        ("model = {}", "p.toml, model: unknown key 'model'"),
        ("models = {", "p.toml: this is no TOML: "),
    ],
)
def test_a_toml_file_is_refused_with_the_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingError) as error:
        read_placement(written(tmp_path, text, "p.toml"))
    assert message in str(error.value)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="a placement file ends in .yaml, .yml, .toml"):
        read_placement(tmp_path / "p.json")
    with pytest.raises(SettingError, match="this placement file cannot be read: .*No such file"):
        read_placement(tmp_path / "p.yaml")
    (tmp_path / "p.yml").write_bytes(b"\xff")
    with pytest.raises(SettingError, match="this placement file cannot be read: .*utf-8"):
        read_placement(tmp_path / "p.yml")


@pytest.mark.parametrize(
    ("components", "message"),
    [
        (("trunc",), "line 1: speaker has no component 'trunc'; did you mean 'trunk'?"),
        (("zzz",), "line 1: speaker has no component 'zzz'; known: codec, head, reader, trunk"),
        (("codec", "trunk", "codec"), "line 3: 'codec' is placed a second time; it is also in line 1"),
        (("codec", "reader"), "line 2: 'reader' runs on the CPU, on speaker's host worker"),
    ],
)
def test_a_line_that_no_component_fits_is_refused(components: tuple[str, ...], message: str) -> None:
    entries = [Placed(component, 0, f"line {line}") for line, component in enumerate(components, 1)]
    with pytest.raises(SettingError) as error:
        place("speaker", Speaker, entries)
    assert str(error.value).startswith(message)


def test_components_that_one_graph_calls_are_not_parted() -> None:
    with pytest.raises(SettingError) as error:
        place("speaker", Speaker, [Placed("trunk", 0, "line 1"), Placed("head", 1, "line 2")])
    assert str(error.value) == (
        "line 2: 'head' is placed apart from 'trunk', but the graph 'write' calls them all; "
        "this version runs all components of one graph on one rank"
    )


def test_a_graph_of_the_cpu_and_of_a_device_is_served_by_no_placement() -> None:
    class Mixed(Speaker):
        read = WalkGraph(
            Node(Speaker.reader, "read", takes="text", gives="ids"),
            Node(Speaker.trunk, "look", takes="ids", gives="seen"),
        )

    for entries in ([], [Placed("trunk", 1, "line 1"), Placed("head", 1, "line 1")]):
        with pytest.raises(DeclarationError) as error:
            place("mixed", Mixed, entries)
        assert str(error.value) == (
            "Mixed.read: it calls 'reader' on the CPU and 'trunk' on a device; this version runs all "
            "components of one graph on one rank: give each its own graph"
        )


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("orpheus", "line 2: 'orpheus' is placed, but not served; served: speaker:toy"),
        ("orpheus:toy", "line 2: 'orpheus:toy' is placed, but not served; served: speaker:toy"),
        ("speeker", "line 2: unknown model 'speeker'; did you mean 'speaker'?"),
    ],
)
def test_a_model_that_is_not_served_is_not_placed(tmp_path: Path, model: str, message: str) -> None:
    placement = read_placement(written(tmp_path, f"models:\n  '{model}': []"))
    with pytest.raises(SettingError) as error:
        placement.check({"speaker:toy": "speaker"}, installed=("orpheus", "speaker"))
    assert str(error.value) == f"{tmp_path}/p.yaml, {message}"


@pytest.mark.parametrize("model", ["speaker", "speaker:toy"])
def test_a_model_is_placed_by_its_name_or_its_family(tmp_path: Path, model: str) -> None:
    placement = read_placement(written(tmp_path, f"models:\n  '{model}': []"))
    placement.check({"speaker:toy": "speaker"}, installed=("speaker",))
