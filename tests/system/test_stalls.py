"""A family whose plan can wait for ever on its own streams: each such request fails, and the others go on."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from walkserve import Engine
from walkserve_sdk.client import Client
from walkserve_sdk.errors import WalkserveError

SOON_S = 20
TOLD = (
    "all of the request's Walks wait on its own streams: writing for room in 'first', reading for items in "
    "'second'; raise 'first''s limit of 4, or read it without waiting for 'second'"
)
FAMILY = '''
from dataclasses import dataclass

from walkserve_sdk import Component, Loop, Model, Node, Output, Stream, Text, WalkGraph, track


class Pen:
    """Counts."""

    @classmethod
    def load(cls, checkpoint, *, device, dtype):
        return cls()

    def next(self, batch):
        after = [n + 1 for n in batch.values("n")]
        return {"n": after, "m": after}


class Eye(Pen):
    """Says what it reads."""

    def read_first(self, batch):
        return {"word": ["".join(f"1:{n} " for n in one.new) for one in batch.values("first")]}

    def read_second(self, batch):
        return {"word": ["".join(f"2:{n} " for n in one.new) for one in batch.values("second")]}

    def read_both(self, batch):
        pairs = zip(batch.values("first"), batch.values("second"), strict=True)
        return {"word": ["".join(f"{n}{m} " for n, m in zip(a.new, b.new)) for a, b in pairs]}


class Jam(Model):
    """Writes two streams side by side, and reads the second first if it is asked to."""

    @dataclass(frozen=True)
    class Options(Model.Options):
        most: int = 40
        second_first: bool = False

    pen = Component("jam_family:Pen")
    eye = Component("jam_family:Eye")
    first = Stream(limit=4)
    second = Stream(limit=4)
    words = Output(Text())
    write = WalkGraph(
        Loop(
            Node(pen, "next", takes="n", gives=("n", "m"), to={"n": first, "m": second}),
            carry="n",
            times="most",
        )
    )
    read_first = WalkGraph(Loop(Node(eye, "read_first", takes=first, gives="word", to=words)))
    read_second = WalkGraph(Loop(Node(eye, "read_second", takes=second, gives="word", to=words)))
    read_both = WalkGraph(Loop(Node(eye, "read_both", takes=(first, second), gives="word", to=words)))

    @track(writes=(first, second))
    def writing(self, request, prepared):
        yield self.write(n=0, most=request.options.most)
        return None

    @track
    def reading(self, request, prepared):
        if request.options.second_first:
            yield self.read_second()
            yield self.read_first()
        else:
            yield self.read_both()
        return "read"
'''
BOTH = "".join(f"{n}{n} " for n in range(1, 41))
SECOND_FIRST = "2:1 2:2 2:3 2:4 1:1 1:2 1:3 1:4 "


@pytest.fixture
def jam(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The family is installed, here and for whoever is started."""
    info = tmp_path / "walk_plugin_jam-0.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: walk-plugin-jam\nVersion: 0.0.0\n")
    (info / "entry_points.txt").write_text("[walkserve.models]\njam = jam_family:Jam\n")
    (tmp_path / "jam_family.py").write_text(FAMILY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))


def test_in_one_process_a_request_that_could_only_hang_fails_and_the_others_go_on(jam: None) -> None:
    with Engine("jam", device="cpu") as engine:
        assert len(engine.workers) == 2  # the streams lead from one to the other
        for _ in range(10):
            began = time.monotonic()
            with pytest.raises(WalkserveError) as failed:
                engine.generate(text="jam", second_first=True)
            assert (str(failed.value), failed.value.code, failed.value.status) == (TOLD, "stalled", 500)
            assert time.monotonic() - began < SOON_S
            assert engine.generate(text="jam").words == BOTH
            assert engine.generate(text="jam", second_first=True, most=4).words == SECOND_FIRST


def test_in_a_server_a_request_that_could_only_hang_fails_and_the_others_go_on(
    jam: None, start_server
) -> None:
    server = start_server("jam", "--port", "0").wait_until_ready()

    def ask(client: Client, second_first: bool) -> str:
        try:
            return str(client.generate("jam", text="jam", second_first=second_first).words)
        except WalkserveError as failed:
            assert (failed.code, failed.status) == ("stalled", 500)
            return str(failed)

    with Client(server.url) as client, ThreadPoolExecutor(8) as pool:
        asked = [index % 2 == 0 for index in range(32)]
        said = list(pool.map(lambda one: ask(client, one), asked))
    assert said == [TOLD if second_first else BOTH for second_first in asked]
    server.wait_for(lambda state: all(one["running"] == 0 for one in state["models"]))
    assert server.stop() == 0, server.printed
    assert server.printed.count(f"ERROR jam: {TOLD}") == 16
