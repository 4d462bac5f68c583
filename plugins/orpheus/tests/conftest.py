"""The golden checkpoint, served in this process, with an ear on what passes between its parts."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from walkserve import Engine
from walkserve.worker.loop import WorkerLoop

GOLDEN = Path(__file__).parent / "data" / "golden"


class Tap:
    """Hears what the worker's runs write and emit, in order, and how large its batches are."""

    def __init__(self, engine: Engine) -> None:
        self.tokens: dict[int, list[int]] = defaultdict(list)
        self.tokens_at_first_sound: dict[int, int] = {}
        self.batches: list[int] = []
        self._heard = threading.Condition()
        writer, speaker = (_loop(engine, component) for component in ("llama", "snac"))
        push, emit, submit = writer.state.push, speaker.state.emit, writer.engine.submit

        def heard_push(run, stream, value):
            with self._heard:
                self.tokens[run.live.opened.tag].append(value)
                self._heard.notify_all()
            push(run, stream, value)

        def heard_emit(run, output, value, index):
            tag = run.live.opened.tag
            self.tokens_at_first_sound.setdefault(tag, len(self.tokens[tag]))
            emit(run, output, value, index)

        def heard_submit(key, rows):
            if key == ("llama", "next"):
                self.batches.append(len(rows))
            return submit(key, rows)

        writer.state.push, speaker.state.emit, writer.engine.submit = heard_push, heard_emit, heard_submit

    def clear(self) -> None:
        self.tokens.clear()
        self.tokens_at_first_sound.clear()
        self.batches.clear()

    def wait_for_tokens(self, tag: int, count: int) -> None:
        """Until a request has written so many."""
        with self._heard:
            assert self._heard.wait_for(lambda: len(self.tokens[tag]) >= count, timeout=60)

    @property
    def last(self) -> list[int]:
        """The tokens of the newest request."""
        return self.tokens[max(self.tokens)]


def _loop(engine: Engine, component: str) -> WorkerLoop:
    """Of the worker that holds a component."""
    name = engine.config.ranks[component]
    loop = next(worker.loop for worker in engine.workers if worker.name == name)
    assert loop is not None
    return loop


@pytest.fixture(scope="session")
def golden() -> dict[str, torch.Tensor]:
    """What the reference made of this checkpoint."""
    return load_file(GOLDEN / "golden.safetensors")


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """The golden checkpoint, batched equal to alone."""
    with Engine(f"orpheus={GOLDEN}", device="cpu", dtype="float32", deterministic=True) as engine:
        yield engine


@pytest.fixture(scope="session")
def _tap(engine: Engine) -> Tap:
    return Tap(engine)


@pytest.fixture(scope="session")
def make_tap() -> type[Tap]:
    """An ear on another engine."""
    return Tap


@pytest.fixture
def tap(_tap: Tap) -> Tap:
    _tap.clear()
    return _tap
