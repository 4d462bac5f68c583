"""Journals of real requests: Orpheus computes, and its plan agrees with what was written down."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from walk_plugin_orpheus import Orpheus
from walkserve import Engine
from walkserve import messages as m
from walkserve.conductor.process import conduct
from walkserve.conductor.replay import replay
from walkserve.conductor.served import Served
from walkserve.conductor.state import ConductorState
from walkserve.errors import SettingError
from walkserve.journal import entries as e
from walkserve.journal.folder import JournalFolder, usable_folder
from walkserve.journal.reading import Recorded, read_journal
from walkserve_sdk.errors import BadRequest

TEXTS = ("call 5 5 1", "dial 7 2", "please call nine", "call 0 0 4")


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of requests side by side, one that is refused and one whose client leaves."""
    folder = tmp_path_factory.mktemp("journals") / "of" / "orpheus"
    with Engine("orpheus:toy", device="cpu", dtype="float32", deterministic=True, journal=folder) as engine:
        with ThreadPoolExecutor(len(TEXTS)) as pool:
            list(pool.map(lambda text: engine.generate(text=text, temperature=0.0, seed=3), TEXTS))
        with pytest.raises(BadRequest):
            engine.generate(text="x" * 40_000)
        with engine.stream(text="call 5 5 1 2 3 4 5 6") as generation:
            next(generation)
    return folder


def read(folder: Path) -> Iterator[tuple[Path, Recorded]]:
    return ((path, read_journal(path)) for path in sorted(folder.iterdir()))


def test_every_request_has_a_journal_that_its_plan_agrees_with(journals: Path) -> None:
    ends = []
    for path, recorded in read(journals):
        assert replay(recorded, Orpheus()).parting is None, path.read_text()
        ends.append(type(recorded.entries[-1]))
    assert sorted(ends, key=str) == sorted([e.Ended] * 4 + [e.Failed, e.Cancelled], key=str)


def test_the_journal_tells_what_the_request_was_and_what_became_of_it(journals: Path) -> None:
    (recorded,) = (one for _, one in read(journals) if one.opened.parts[0].text == "call 5 5 1")
    opened, ended = recorded.opened, recorded.entries[-1]
    assert (opened.model, opened.origin.family, opened.origin.plugin) == (
        "orpheus:toy",
        "orpheus",
        "walk-plugin-orpheus",
    )
    assert (opened.given, opened.seed, opened.options["sampling"]["temperature"]) == (
        ("seed", "temperature"),
        3,
        0.0,
    )
    assert isinstance(ended, e.Ended)
    assert (ended.finish_reason, ended.usage) == ("stop", {"input_tokens": 21, "output_tokens": 70})
    times = [entry.at_ms for entry in recorded.entries]
    assert times == sorted(times) and times[0] == 0.0


def test_warm_ups_have_none(journals: Path) -> None:
    assert all(recorded.opened.parts[0].text != "hi" for _, recorded in read(journals))


def test_a_journal_has_an_entry_per_walk_and_none_per_token(journals: Path) -> None:
    assert max(len(recorded.entries) for _, recorded in read(journals)) == 12


def test_another_voice_of_orpheus_parts_from_it(journals: Path) -> None:
    class Hoarse(Orpheus):
        def prepare(self, request):
            return self.encode(text=request.one("text"), voice="hoarse")

    _, recorded = next(read(journals))
    parting = replay(recorded, Hoarse()).parting
    assert parting is not None and parting.line == 2


def test_a_folder_that_cannot_be_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingError, match="no journal can be written to"):
        Engine("orpheus:toy", journal=tmp_path / "file")


# --- what has been said is written down -----------------------------------------------------------------


class Watching:
    """A mailbox that notes what stands in the journals when something is sent."""

    def __init__(self, folder: Path, *rounds: list[m.Message]) -> None:
        self.folder = folder
        self.rounds = deque(rounds)
        self.seen: list[tuple[list[str], int]] = []

    def receive(self, timeout_s: float | None) -> list[m.Message]:
        return self.rounds.popleft()

    def send(self, address: str, messages: list[m.Message]) -> None:
        lines = sum(path.read_bytes().count(b"\n") for path in self.folder.iterdir())
        self.seen.append(([type(one).__name__ for one in messages], lines))

    def forget(self, address: str) -> None: ...


def test_nothing_is_said_before_it_is_written_down(tmp_path: Path) -> None:
    model = Orpheus()
    served = Served("orpheus", model, dict.fromkeys(model.spec.components, "orpheus.host"))
    served.is_warm = True
    (worker,) = served.workers.values()
    worker.address, worker.state = "orpheus.host.1", "ready"
    served.pools = {"llama": m.PoolInfo(40, 16, 640)}
    folder = usable_folder(tmp_path)
    journals = JournalFolder(folder, {"orpheus": e.Origin("orpheus", "walk-plugin-orpheus", "1", "orpheus")})
    submit = m.Submit(
        "http",
        1,
        "orpheus",
        (m.SentPart("text", b"hello"),),
        ("speech",),
        Orpheus.Options(),
        3,
        label="req-1",
    )
    ended = m.WalkEnded(0, "prepare", 0, "end", 0, 0, {"ids": [1], "length": 1}, {}, {}, {})
    mailbox = Watching(folder, [submit], [ended], [m.Cancel("http", 1), m.Halt()])
    conduct(ConductorState({"orpheus": served}, journals), mailbox)  # type: ignore[arg-type]
    said = {name: lines for names, lines in mailbox.seen for name in names if name != "ServerState"}
    assert said == {
        "OpenRequest": 2,  # opened, and the Walk that prepares it
        "Admitted": 7,
        "SetOptions": 7,
        "StartWalk": 7,
        "CloseRequest": 8,
        "StopWorker": 8,
    }
    assert read_journal(folder / "req-1.jsonl").cut == ""
    assert os.listdir(folder) == ["req-1.jsonl"]
