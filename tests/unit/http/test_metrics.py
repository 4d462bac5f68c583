"""``GET /metrics``: what is counted of requests and errors, and what conductor and workers are asked for."""

import asyncio
import time

import httpx
import pytest
from msgspec.structs import replace
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from walkserve import messages as m
from walkserve_sdk import SpeechAsk

pytestmark = pytest.mark.anyio

MODEL = {"model": "parrot:toy", "family": "parrot"}
ASK = {"model": "parrot:toy", "input": "hello"}
TALLIED = m.Tallied("speaker", "say", 4, 1, 7, 30, 5_000_000, (3, 0, 1, *[0] * 8), (0, 0, 0, 4, *[0] * 14))

MOVED = m.Moved("speaker", caches_out=5, caches_back=4, pages_out=15, pages_back=11)
HELD = m.Held("speaker", pages=2, most=9)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """Where no worker answers, a scrape need not wait a second for it."""
    monkeypatch.setattr("walkserve.http.metrics.SCRAPE_S", 0.1)


def samples(text, parser=parse):
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for each in parser(text)
        for one in each.samples
    }


class Figures:
    """What one scrape said."""

    def __init__(self, text, parser=parse):
        self.values = samples(text, parser)

    def __call__(self, name, **labels):
        return self.values[name, tuple(sorted(labels.items()))]

    def of_model(self, name, **labels):
        return self(name, **MODEL, **labels)


async def scrape(server):
    answer = await server.client.get("/metrics")
    assert answer.status_code == 200
    return Figures(answer.text)


def speaking(stage, *, after=(), fault=None):
    """A conductor whose every request says so many samples, each after so many seconds, and then ends."""

    async def say(mailbox, tag):
        for n, (wait_s, count) in enumerate(after):
            await asyncio.sleep(wait_s)
            mailbox.say(stage.emitted(tag, n, stage.sound(*[0.1] * count)))
        mailbox.say(m.RequestFailed(tag, fault) if fault else stage.ended(tag, len(after)))

    tasks = set()

    def on_submit(mailbox, submit):
        tasks.add(asyncio.ensure_future(say(mailbox, submit.tag)))

    return on_submit


async def answering(server, tallied=TALLIED):
    """The worker, as long as the test lasts: it answers every ``Report``."""
    for n in range(1, 100):
        await server.mailbox.wait_for(m.Report, n)
        server.mailbox.say(m.Reported("parrot.rank0", "parrot.rank0.1", (tallied,), (MOVED,), (HELD,)))


async def test_a_request_is_counted_when_it_ends_with_its_tokens_and_its_sound(stage):
    async with stage.serving(speaking(stage, after=[(0, 4000), (0, 4000)])) as server:
        before = await scrape(server)
        assert before.of_model("walkserve_requests_total", outcome="done") == 0  # it is there from the start
        assert (await server.client.post("/v1/audio/speech", json=ASK)).status_code == 200
        now = await scrape(server)
    assert now.of_model("walkserve_requests_total", outcome="done") == 1
    assert now.of_model("walkserve_request_duration_seconds_count", outcome="done") == 1
    assert now.of_model("walkserve_time_to_first_output_seconds_count") == 1
    assert now.of_model("walkserve_input_tokens_total") == 3
    assert now.of_model("walkserve_output_tokens_total") == 21
    assert now.of_model("walkserve_audio_seconds_total", output="speech") == 1.0
    assert now.of_model("walkserve_audio_speed_ratio_count", output="speech") == 1
    assert now.of_model("walkserve_stream_underruns_total", output="speech") == 0


async def test_a_failed_request_is_counted_by_the_errors_code_and_status(stage):
    fault = m.Fault("lost a worker", 503, "unavailable", "worker_lost")
    async with stage.serving(speaking(stage, fault=fault)) as server:
        assert (await server.client.post("/v1/audio/speech", json=ASK)).status_code == 503
        now = await scrape(server)
    assert now.of_model("walkserve_requests_total", outcome="failed") == 1
    assert now.of_model("walkserve_request_errors_total", code="worker_lost", status="503") == 1
    assert now("walkserve_http_errors_total", code="worker_lost", status="503") == 1


async def test_what_is_refused_before_it_is_a_request_is_counted_among_responses_only(stage):
    async with stage.serving() as server:
        await server.client.post("/v1/audio/speech", json=ASK | {"model": "nobody"})
        await server.client.post("/v1/audio/speech", json=ASK | {"input": "a bug"})
        await server.client.get("/nowhere")
        now = await scrape(server)
    errors = {
        (dict(labels)["code"], dict(labels)["status"]): value
        for (name, labels), value in now.values.items()
        if name == "walkserve_http_errors_total"
    }
    assert errors == {("model_not_found", "404"): 1, ("internal_error", "500"): 1, ("not_found", "404"): 1}
    assert now.of_model("walkserve_requests_total", outcome="failed") == 0


async def test_a_client_that_leaves_makes_a_cancelled_request(stage):
    async with stage.serving() as server:
        with pytest.raises(httpx.ReadTimeout):
            await server.client.post("/v1/audio/speech", json=ASK, timeout=0.2)
        await server.mailbox.wait_for(m.Cancel)
        now = await scrape(server)
    assert now.of_model("walkserve_requests_total", outcome="cancelled") == 1
    assert now("walkserve_requests_open") == 0


async def test_a_client_that_is_cut_is_counted_as_such(stage):
    async with stage.serving(buffer_bytes=100) as server:
        call = server.caller.submit("parrot:toy", stage.Parrot().speech_request(SpeechAsk("hello")))
        with call:
            for n in range(3):
                server.mailbox.say(stage.emitted(call.tag, n, stage.sound(*[0.1] * 50)))
            async with asyncio.timeout(5):
                while not call.is_over:
                    await asyncio.sleep(0.002)
            now = await scrape(server)
    assert now.of_model("walkserve_slow_clients_cut_total") == 1
    assert now.of_model("walkserve_request_errors_total", code="too_slow", status="503") == 1


async def test_streamed_sound_that_comes_too_late_is_an_underrun_and_whole_sound_never_is(stage):
    late = [
        (0, 80),
        (0.2, 80),
        (0, 8000),
        (0.05, 80),
    ]  # 10 ms of sound, 200 ms of silence, then more than enough
    async with stage.serving(speaking(stage, after=late)) as server:
        await server.client.post("/v1/audio/speech", json=ASK)
        assert (await scrape(server)).of_model("walkserve_stream_underruns_total", output="speech") == 0
        answer = await server.client.post("/v1/audio/speech", json=ASK | {"stream": True})
        now = await scrape(server)
        status = (await server.client.get(f"/v1/requests/{answer.headers['x-request-id']}")).json()
    assert now.of_model("walkserve_stream_underruns_total", output="speech") == 1
    assert 0.15 < now.of_model("walkserve_stream_silence_seconds_total", output="speech") < 1
    assert status["underruns"] == 1 and status["audio_s"] == {"speech": 8240 / 8000}


async def test_what_the_conductor_and_the_workers_say_is_told(stage):
    async with stage.serving() as server:
        worker = asyncio.ensure_future(answering(server))
        now = await scrape(server)
        worker.cancel()
        assert [to for to, said in server.mailbox.sent if isinstance(said, m.Report)] == ["parrot.rank0.1"]
    assert now("walkserve_ready") == 1
    assert now.of_model("walkserve_requests_running") == 1 and now.of_model("walkserve_requests_waiting") == 0
    assert now.of_model("walkserve_cache_pages", component="speaker") == 9
    assert now.of_model("walkserve_cache_pages_reserved", component="speaker") == 2
    budgets = {
        (method, context): now.of_model(
            "walkserve_token_budget", component="speaker", method=method, context=context
        )
        for method, context in (("read", "0"), ("read", "+Inf"), ("say", "+Inf"))
    }
    assert budgets == {("read", "0"): 64, ("read", "+Inf"): 16, ("say", "+Inf"): 96}
    assert now.of_model("walkserve_worker_ready", worker="parrot.rank0") == 1
    assert now.of_model("walkserve_worker_scrape_stale", worker="parrot.rank0") == 0
    assert now("walkserve_conductor_scrape_stale") == 0
    for direction, caches, pages in (("out", 5, 15), ("back", 4, 11)):
        moved = {"component": "speaker", "direction": direction}
        assert now.of_model("walkserve_cache_moves_total", **moved) == caches
        assert now.of_model("walkserve_cache_pages_moved_total", **moved) == pages
    assert now.of_model("walkserve_cache_pages_held", component="speaker") == 2
    assert now.of_model("walkserve_cache_pages_held_most", component="speaker") == 9
    method = {"component": "speaker", "method": "say"}
    rows = {
        le: now.of_model("walkserve_batch_rows_bucket", le=le, **method)
        for le in ("1", "2", "4", "512", "+Inf")
    }
    assert rows == {"1": 3, "2": 3, "4": 4, "512": 4, "+Inf": 4}
    assert now.of_model("walkserve_batch_rows_sum", **method) == 7
    assert now.of_model("walkserve_batch_duration_seconds_count", **method) == 4
    assert now.of_model("walkserve_batch_duration_seconds_sum", **method) == 0.005
    assert now.of_model("walkserve_batch_duration_seconds_bucket", le="0.0004", **method) == 0
    assert now.of_model("walkserve_batch_duration_seconds_bucket", le="0.0008", **method) == 4
    assert now.of_model("walkserve_batch_tokens_total", **method) == 30
    assert now.of_model("walkserve_batches_broken_total", **method) == 1


async def test_a_worker_in_a_long_step_is_not_waited_for_and_its_last_figures_are_told(stage):
    async with stage.serving() as server:
        worker = asyncio.ensure_future(answering(server))
        await scrape(server)
        worker.cancel()
        began = time.monotonic()
        now = await scrape(server)
        assert time.monotonic() - began < 1
    assert now.of_model("walkserve_worker_scrape_stale", worker="parrot.rank0") == 1
    assert now.of_model("walkserve_batch_tokens_total", component="speaker", method="say") == 30


async def test_a_worker_that_was_lost_is_counted_and_its_last_figures_stay(stage):
    async with stage.serving() as server:
        worker = asyncio.ensure_future(answering(server))
        await scrape(server)
        worker.cancel()
        (model,) = stage.READY.models
        lost = replace(model, workers=(replace(model.workers[0], state="lost"),))
        server.mailbox.say(replace(stage.READY, phase="starting", models=(lost,)))
        await server.caller.wait_until(lambda: server.caller.state.phase == "starting")
        figures = Figures((await server.client.get("/metrics")).text)
    assert figures.of_model("walkserve_worker_losses_total", worker="parrot.rank0") == 1
    assert figures.of_model("walkserve_batch_tokens_total", component="speaker", method="say") == 30


async def test_who_accepts_openmetrics_gets_it(stage):
    async with stage.serving() as server:
        plain = await server.client.get("/metrics")
        accept = {"accept": "application/openmetrics-text; version=1.0.0"}
        open_metrics = await server.client.get("/metrics", headers=accept)
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert open_metrics.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert Figures(open_metrics.text, parse_openmetrics)("walkserve_ready") == 1
    names = {name for name, _ in samples(plain.text)}
    assert "process_resident_memory_bytes" in names and "process_open_fds" in names
    assert not any(name.endswith("_created") for name in names)
