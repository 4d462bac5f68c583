"""Two families in one server: each has its own workers, and what happens to one is nothing to the other."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from tests.families import trial
from tests.soak.asks import Ask, good_asks, trial_fields
from tests.soak.clients import ask_once
from tests.system.conftest import RunningServer

GOOD = {ask.name: ask for ask in good_asks()}
SOUND, WORDS = GOOD["socket sound"], GOOD["trial socket"]
SLOW_WORDS = Ask(
    "slow words",
    "trial",
    "generate",
    trial_fields("on and on", ["words", "total"], max_tokens=60, turn_ms=50, seed=4),
)
LONG_SOUND = Ask(
    "long sound",
    "orpheus",
    "generate",
    {"model": "orpheus", "text": "1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0", "options": {"temperature": 0}},
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("both")
    arguments = ("orpheus:toy", "trial", "--port", "0", "--deterministic")
    environ = {"PYTHONPATH": trial.install(folder / "site")}
    server = RunningServer(*arguments, log=folder / "log", environ=environ)
    try:
        yield server.wait_until_ready()
    finally:
        code = server.stop()
    assert code == 0, server.printed


def test_each_has_workers_of_its_own_and_models_tells_of_both(both):
    workers = {model["id"]: {each["name"] for each in model["workers"]} for model in both.state()["models"]}
    assert workers == {
        "orpheus:toy": {"orpheus-toy.host", "orpheus-toy.rank0"},
        "trial": {"trial.host", "trial.rank0"},
    }
    assert len({each["pid"] for model in both.state()["models"] for each in model["workers"]}) == 4
    cards = httpx.get(f"{both.url}/v1/models").json()["data"]
    assert {card["id"]: sorted(card["outputs"]) for card in cards} == {
        "orpheus:toy": ["speech"],
        "trial": ["marks", "total", "weight", "words"],
    }


def test_a_request_goes_to_the_model_it_names_and_to_a_family_by_its_name(both):
    async def asked() -> list[object]:
        short = Ask(**{**vars(SOUND), "fields": SOUND.fields | {"model": "orpheus"}})
        seen = await asyncio.gather(*(ask_once(both.url, ask) for ask in (SOUND, short, WORDS)))
        return [one.given for one in seen]

    sound, same, words = asyncio.run(asked())
    assert sound == same
    assert set(sound) == {"finish_reason", "usage", "speech"}
    assert set(words) == {"finish_reason", "usage", "words", "marks", "total", "weight"}
    for route, fields in (
        ("/v1/audio/speech", {"model": "trial", "input": "hi"}),
        ("/v1/generate", {"model": "trail", "text": "hi"}),
    ):
        refused = httpx.post(both.url + route, json=fields)
        assert refused.status_code in (400, 404) and "trial" in refused.json()["error"]["message"]


def test_a_killed_worker_of_one_fails_what_it_held_and_disturbs_nothing_of_the_other(both):
    asyncio.run(_kill_one_and_go_on(both, "trial.host", SLOW_WORDS, SOUND))


@pytest.mark.slow
def test_the_same_with_the_families_in_each_others_place(both):
    asyncio.run(_kill_one_and_go_on(both, "orpheus-toy.rank0", LONG_SOUND, SLOW_WORDS))


async def _kill_one_and_go_on(both: RunningServer, worker: str, held: Ask, other: Ask) -> None:
    alone = await ask_once(both.url, other)
    others = [asyncio.create_task(ask_once(both.url, other)) for _ in range(3)]
    asked = asyncio.create_task(ask_once(both.url, held))
    await _until(lambda: _model(both, held)["running"] == 1)
    os.kill(_pid(both, worker), signal.SIGKILL)
    lost = await asked
    assert (lost.end, lost.code) == ("error", "worker_lost")
    await _until(lambda: _reserved(_model(both, held)) == 0)
    while not await asyncio.to_thread(both.is_ready):  # until it is back, requests of the other
        others.append(asyncio.create_task(ask_once(both.url, other)))
        await asyncio.sleep(0.2)
    seen = await asyncio.gather(*others)
    assert {(one.end, one.given == alone.given) for one in seen} == {("done", True)}
    assert (await ask_once(both.url, held)).end == "done"


def _model(server: RunningServer, ask: Ask) -> dict[str, Any]:
    return next(model for model in server.state()["models"] if model["family"] == ask.family)


def _reserved(model: dict[str, Any]) -> int:
    return sum(pool["reserved"] for worker in model["workers"] for pool in worker["pools"].values())


def _pid(server: RunningServer, worker: str) -> int:
    workers = [each for model in server.state()["models"] for each in model["workers"]]
    return next(each["pid"] for each in workers if each["name"] == worker)


async def _until(wanted: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not await asyncio.to_thread(wanted):
        assert time.monotonic() < deadline, "never came about"
        await asyncio.sleep(0.01)
