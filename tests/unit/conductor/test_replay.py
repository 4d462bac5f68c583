"""A journal's tracks, walked again: the plan that wrote it agrees, any other parts where it differs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from tests.unit.conductor.conftest import CLIENT, RANK0, Desk, Listener, Speaker
from tests.unit.conductor.test_conductor_machine import Machine, live_a_day

from walkserve import messages as m
from walkserve.conductor.replay import Parting, replay
from walkserve.errors import SettingError
from walkserve.journal import entries as e
from walkserve.journal.folder import JournalFolder, usable_folder
from walkserve.journal.reading import Recorded, read_journal
from walkserve.journal.words import differences, does, place, says
from walkserve_sdk import (
    Budget,
    Component,
    Fork,
    Model,
    Node,
    Outcome,
    Output,
    Request,
    Text,
    Track,
    Walk,
    WalkGraph,
    track,
)

PAGES = 20  # one request may have 40 tokens, on each of two branches
ORIGIN = e.Origin("speaker", "walk-plugin-speaker", "2.0", "speaker")


def ended(number: int, name: str, walk: int = 0, ended_by: str = "end", **more: Any) -> m.WalkEnded:
    filled = {"turns": 3, "sampled": 3, "values": {}, "wrote": {}, "emitted": {}, "counts": {}} | more
    return m.WalkEnded(number=number, track=name, walk=walk, ended_by=ended_by, **filled)


def encoded(number: int, length: int = 3) -> m.WalkEnded:
    return ended(number, "prepare", values={"ids": list(range(length)), "length": length})


def broke(number: int, name: str, walk: int = 0) -> m.WalkBroke:
    return m.WalkBroke(number, name, walk, m.Fault("lm.next failed", 500, "server_error", "component_failed"))


WROTE = ended(0, "writing", ended_by="stop", wrote={"codes": 5}, counts={"frames": 2})
SOUNDED = ended(0, "sounding", ended_by="stream", emitted={"speech": 6})


@pytest.fixture
def folder(tmp_path: Path) -> JournalFolder:
    return JournalFolder(usable_folder(tmp_path / "journals"), {"speaker": ORIGIN})


Journal = Callable[..., Recorded]


@pytest.fixture
def journal(desk: Callable[..., Desk], folder: JournalFolder) -> Journal:
    """What is written down of request 0, whose text is this, while a conductor hears these messages."""

    def written(text: str, *happens: m.Message | Callable[[Desk], object], **options: Any) -> Recorded:
        it = desk(journals=folder, pages=PAGES)
        it.submit(0, text, timeout_s=1.0, **options)
        for one in happens:
            it.hear(one) if isinstance(one, m.Message) else one(it)
        folder.flush()
        return read_journal(folder.folder / "request-0.jsonl")

    return written


# --- the plan that wrote it agrees ----------------------------------------------------------------------

CANCEL = m.Cancel(CLIENT, 0)
LOST = m.WorkerLost(RANK0, f"{RANK0}.1", "was killed")


def crowd(desk: Desk) -> None:
    """Another request takes nearly all the pages; request 0 has to wait."""
    desk.submit(1, "hello", max_tokens=30)
    desk.hear(encoded(1))


def expire(desk: Desk) -> None:
    desk.hear_of(lambda state: state.expire(0))


LIVES: dict[str, tuple[str, tuple[Any, ...], type[e.Entry]]] = {
    "it ends well": ("hello", (encoded(0), WROTE, SOUNDED), e.Ended),
    "it ends the other way round": ("hello", (encoded(0), SOUNDED, WROTE), e.Ended),
    "it forks": ("fork", (encoded(0), SOUNDED, m.BranchForked(0, "writing", 0), WROTE), e.Ended),
    "a track has no Walks": ("silence", (encoded(0), WROTE), e.Ended),
    "a track takes a failure": (
        "careful",
        (encoded(0), broke(0, "writing"), ended(0, "writing", 1, "times"), SOUNDED),
        e.Ended,
    ),
    "no track takes it": ("hello", (encoded(0), broke(0, "writing")), e.Failed),
    "what prepares it breaks": ("hello", (broke(0, "prepare"),), e.Failed),
    "all of it breaks": ("hello", (encoded(0), broke(0, "")), e.Failed),
    "it is refused": ("refuse", (), e.Failed),
    "it can never fit": ("hello", (encoded(0, 99),), e.Failed),
    "its length is cut": ("hello", (encoded(0, 36), WROTE, SOUNDED), e.Ended),
    "its plan trips before": ("trip before", (), e.Failed),
    "its plan trips at once": ("trip at once", (encoded(0),), e.Failed),
    "its plan trips later": ("trip later", (encoded(0), WROTE), e.Failed),
    "its plan asks for nonsense": ("ask for nonsense", (encoded(0), WROTE), e.Failed),
    "it is cancelled at once": ("hello", (CANCEL,), e.Cancelled),
    "it is cancelled while it runs": ("hello", (encoded(0), SOUNDED, CANCEL), e.Cancelled),
    "its plan trips while it is cancelled": ("cling", (encoded(0), CANCEL), e.Cancelled),
    "it expires": ("hello", (encoded(0), WROTE, expire), e.Failed),
    "a worker is lost": ("hello", (encoded(0), LOST), e.Failed),
    "a worker is lost before": ("hello", (LOST,), e.Failed),
    "it cannot be sent": (
        "hello",
        (encoded(0), lambda desk: desk.hear_of(lambda state: state.fail_number(0, m.Fault("too large")))),
        e.Failed,
    ),
    "it waits and is cancelled": ("hello", (crowd, encoded(0), CANCEL), e.Cancelled),
    "it waits and expires": ("hello", (crowd, encoded(0), expire), e.Failed),
    "what comes after its end changes nothing": ("hello", (encoded(0), CANCEL, WROTE, CANCEL), e.Cancelled),
}  # fmt: skip


@pytest.mark.parametrize("life", LIVES)
def test_the_plan_that_wrote_a_journal_agrees_with_it(journal: Journal, life: str) -> None:
    text, happens, end = LIVES[life]
    recorded = journal(text, *happens)
    assert type(recorded.entries[-1]) is end
    result = replay(recorded, Speaker())
    assert (recorded.cut, result.parting, result.agreed) == ("", None, len(recorded.entries))


@pytest.mark.parametrize("life", LIVES)
def test_a_journal_that_is_cut_anywhere_agrees_as_far_as_it_goes(journal: Journal, life: str) -> None:
    text, happens, _ = LIVES[life]
    whole = journal(text, *happens)
    for count in range(1, len(whole.entries)):
        result = replay(Recorded(whole.entries[:count], "it was cut"), Speaker())
        assert (result.parting, result.agreed) == (None, count)


def test_a_journal_that_was_broken_off_agrees_up_to_there(journal: Journal) -> None:
    whole = journal("hello", encoded(0), WROTE, SOUNDED)
    why = e.BrokenOff(at_ms=1.0, why="the disk was full")
    result = replay(Recorded((*whole.entries[:4], why), "the disk was full"), Speaker())
    assert (result.parting, result.agreed) == (None, 4)


def test_what_a_plan_raises_is_kept_for_who_reads_it(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    recorded = journal("trip later", encoded(0), WROTE)
    caplog.clear()
    (error,) = replay(recorded, Speaker()).errors
    assert isinstance(error, ZeroDivisionError)
    assert caplog.records == []


# --- another plan parts from it ---------------------------------------------------------------------------


class Louder(Speaker):
    """It asks for one token more."""

    @track(writes=Speaker.codes)
    def writing(self, request: Request, prepared: Outcome) -> Track:
        wrote = yield self.write(ids=prepared["ids"], max_tokens=request.options.max_tokens + 1)
        return wrote.finish_reason


class Branching(Speaker):
    """It forks first."""

    @track(writes=Speaker.codes)
    def writing(self, request: Request, prepared: Outcome) -> Track:
        yield Fork(self.lm, "main", to="other")
        wrote = yield self.write(ids=prepared["ids"], max_tokens=request.options.max_tokens)
        return wrote.finish_reason


class Longer(Speaker):
    """It asks once more."""

    @track(writes=Speaker.codes)
    def writing(self, request: Request, prepared: Outcome) -> Track:
        wrote = yield self.write(ids=prepared["ids"], max_tokens=request.options.max_tokens)
        wrote = yield self.write(ids=[*prepared["ids"], 9], max_tokens=1)
        return wrote.finish_reason


class Silent(Speaker):
    """It asks for nothing, unless somebody calls out."""

    @track(writes=Speaker.codes)
    def writing(self, request: Request, prepared: Outcome) -> Track:
        if request.one("text") == "hey":
            yield self.write(ids=prepared["ids"], max_tokens=1)
        return None


class Otherwise(Speaker):
    """It returns something else."""

    @track(writes=Speaker.codes)
    def writing(self, request: Request, prepared: Outcome) -> Track:
        yield self.write(ids=prepared["ids"], max_tokens=request.options.max_tokens)
        return "enough"


class Floating(Speaker):
    """Its numbers have points."""

    @track(writes=Speaker.codes)
    def writing(self, request: Request, prepared: Outcome) -> Track:
        ids = [float(one) for one in prepared["ids"]]
        wrote = yield self.write(ids=ids, max_tokens=request.options.max_tokens)
        return wrote.finish_reason


class Tripping(Speaker):
    """It raises."""

    @track(writes=Speaker.codes)
    def writing(self, request: Request, prepared: Outcome) -> Track:
        yield self.write(ids=prepared["nothing"], max_tokens=request.options.max_tokens)
        return None


class Greedy(Speaker):
    """It needs more room."""

    def budget(self, request: Request, prepared: Outcome) -> Budget:
        return {self.lm: (prepared["length"], 2 * request.options.max_tokens)}


class Unprepared(Speaker):
    """It needs no Walk before."""

    def prepare(self, request: Request) -> Walk | None:
        return None

    def budget(self, request: Request, prepared: Outcome) -> Budget:
        return {self.lm: (1, 1)}


WRITE = "write(ids=[0, 1, 2], max_tokens=8)"
PARTINGS = {
    Louder: (6, "writing, Walk 0", WRITE, "asks for write(ids=[0, 1, 2], max_tokens=9)"),
    Branching: (6, "writing, Walk 0", WRITE, "asks for Fork(lm, main -> other)"),
    Longer: (9, "writing, at its end", "returns 'stop'", "asks for write(ids=[0, 1, 2, 9], max_tokens=1)"),
    Silent: (6, "writing, Walk 0", WRITE, "returns"),
    Otherwise: (9, "writing, at its end", "returns 'stop'", "returns 'enough'"),
    Floating: (6, "writing, Walk 0", WRITE, "asks for write(ids=[0.0, 1.0, 2.0], max_tokens=8)"),
    Tripping: (
        6, "writing, Walk 0", WRITE,
        "failed: the plan of speaker raised KeyError; the server's log has the details (500)",
    ),
    Greedy: (4, "the request", "lm 3 + up to 8 tokens", "needs lm 3 + up to 16 tokens"),
    Unprepared: (2, "prepare, Walk 0", "encode(text='hello')", "needs lm 1 + up to 1 tokens"),
}  # fmt: skip


@pytest.mark.parametrize("plan", PARTINGS, ids=lambda plan: plan.__name__)
def test_a_plan_that_was_changed_parts_where_it_does_something_else(
    journal: Journal, plan: type[Speaker]
) -> None:
    recorded = journal("hello", encoded(0), WROTE, SOUNDED)
    parting = replay(recorded, plan()).parting
    assert parting is not None and parting.journal is not None and parting.plan is not None
    assert parting.journal == recorded.entries[parting.line - 1]
    told = (parting.line, place(parting.journal), says(parting.journal), does(parting.plan))
    assert told == PARTINGS[plan]


def test_where_inputs_differ_is_said_to_the_item() -> None:
    def asks(**inputs: Any) -> e.WalkStarted:
        return e.WalkStarted(at_ms=0.0, track="writing", walk=2, graph="decode", inputs=inputs)

    cases: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
        ({"token": 5}, {"token": 7}, ["token is 5 in the journal and 7 in this plan"]),
        ({"token": 1}, {"token": True}, ["token is 1 in the journal and True in this plan"]),
        ({"ids": [1, 2, 3]}, {"ids": [1, 4, 3]}, ["ids[1] is 2 in the journal and 4 in this plan"]),
        ({"ids": [1, 2]}, {"ids": [1]}, ["ids has 2 items in the journal and 1 in this plan"]),
        ({"ids": [1]}, {"ids": [1.0]}, ["ids[0] is 1 in the journal and 1.0 in this plan"]),
        ({"a": 1}, {"b": 1}, ["only the journal has a", "only this plan has b"]),
        ({"a": [1], "b": "x"}, {"a": [1], "b": "x"}, []),
    ]
    for journal, plan, told in cases:
        assert differences(asks(**journal), asks(**plan)) == told


def test_a_plan_that_goes_on_where_its_request_has_ended_parts_after_the_last_line(journal: Journal) -> None:
    whole = journal("hello", encoded(0), WROTE, SOUNDED)
    without_its_end = Recorded(whole.entries[:-1])  # as no server writes it
    parting = replay(without_its_end, Speaker()).parting
    assert parting is not None and (parting.line, parting.journal) == (len(whole.entries), None)
    assert isinstance(parting.plan, e.Ended)


def test_what_no_plan_waits_for_is_a_parting(journal: Journal) -> None:
    whole = journal("hello", encoded(0), WROTE, SOUNDED)
    twice = Recorded((*whole.entries[:9], whole.entries[7], *whole.entries[9:]))
    assert replay(twice, Speaker()).parting == Parting(10, whole.entries[7], None)


# --- what a journal has only described ----------------------------------------------------------------------


class Viewer(Model):
    """Its plan passes an image on, and looks into it if its text says so."""

    inputs = ("text", "image")
    eye = Component("some.where:Eye")
    words = Output(Text())
    see = WalkGraph(Node(eye, "see", takes=("image", "wide"), gives="seen"))
    tell = WalkGraph(Node(eye, "tell", takes="seen", gives="said", to=words))

    @track
    def telling(self, request: Request, prepared: Outcome) -> Track:
        image = request.one("image")
        wide = image[0] > 0 if request.one("text") == "look" else len(image) > 3
        seen = yield self.see(image=image, wide=wide)
        yield self.tell(seen=seen["seen"])
        return None


IMAGE = b"\x07 a secret image"


def viewed(folder: JournalFolder, text: str) -> Recorded:
    journals = JournalFolder(folder.folder, {"viewer": ORIGIN})
    desk = Desk({"viewer": (Viewer(), {"eye": "viewer.rank0"})}, 1, journals)
    desk.ready("viewer.rank0")
    parts = (m.SentPart("text", text.encode()), m.SentPart("image", IMAGE))
    desk.hear(m.Submit(CLIENT, 0, "viewer", parts, ("words",), Viewer.Options(), 3))
    seen = m.TensorRef("viewer.rank0.1", 5, "segment", 64, 16, "float32", (2, 2))
    desk.hear(ended(0, "telling", values={"seen": seen}), ended(0, "telling", 1, emitted={"words": 1}))
    journals.flush()
    return read_journal(folder.folder / "request-0.jsonl")


def test_tensors_and_media_that_are_passed_on_need_not_be_there(folder: JournalFolder) -> None:
    recorded = viewed(folder, "pass it on")
    assert isinstance(recorded.entries[-1], e.Ended)
    assert replay(recorded, Viewer()).parting is None
    assert b"secret" not in next(folder.folder.iterdir()).read_bytes()


def test_a_plan_that_looks_into_media_needs_the_file(folder: JournalFolder) -> None:
    recorded = viewed(folder, "look")
    parting = replay(recorded, Viewer()).parting
    assert parting is not None and isinstance(parting.plan, e.Failed)
    assert "looks into 16 bytes of which a journal has only the hash" in parting.plan.fault.message
    assert replay(recorded, Viewer(), {hashlib.sha256(IMAGE).hexdigest(): IMAGE}).parting is None


class Confused(Viewer):
    """It tells what it was shown, not what it saw."""

    @track
    def telling(self, request: Request, prepared: Outcome) -> Track:
        image = request.one("image")
        yield self.see(image=image, wide=len(image) > 3)
        yield self.tell(seen=image)
        return None


def test_tensors_are_told_apart(folder: JournalFolder) -> None:
    parting = replay(viewed(folder, "pass it on"), Confused()).parting
    assert parting is not None and parting.journal is not None and parting.plan is not None
    (told,) = differences(parting.journal, parting.plan)
    digest = hashlib.sha256(IMAGE).hexdigest()[:8]
    assert told == (
        f"seen is <float32 2×2 viewer.rank0.1/5> in the journal and <16 bytes {digest}> in this plan"
    )


# --- what cannot be walked ----------------------------------------------------------------------------------


def test_a_family_with_other_caches_or_options_is_refused(journal: Journal, folder: JournalFolder) -> None:
    recorded = viewed(folder, "pass it on")
    with pytest.raises(SettingError, match="Speaker has caches of which this journal knows nothing: lm"):
        replay(recorded, Speaker())
    (folder.folder / "request-0.jsonl").unlink()
    spoken = journal("hello", encoded(0), max_tokens=8)
    odd = Recorded((msgspec.structs.replace(spoken.opened, options={"max_tokens": "many"}),))
    with pytest.raises(SettingError, match="not take the request of the journal: options: Expected `int`"):
        replay(odd, Speaker())


# --- any course of events -----------------------------------------------------------------------------------


Days = Iterator[tuple[Callable[..., Desk], list[JournalFolder]]]


@pytest.fixture
def days(desk: Callable[..., Desk], tmp_path: Path) -> Days:
    """Desks that each write their journals into a folder of their own."""
    folders: list[JournalFolder] = []

    def make(**more: Any) -> Desk:
        folder = usable_folder(tmp_path / f"day-{len(folders)}")
        folders.append(JournalFolder(folder, {"speaker": ORIGIN}))
        return desk(journals=folders[-1], **more)

    yield make, folders


def agreeing(folder: JournalFolder) -> Counter[type]:
    """Of all that is written there: how it ended. Everything agrees with its plan."""
    folder.flush()
    ends: Counter[type] = Counter()
    for path in folder.folder.iterdir():
        recorded = read_journal(path)
        assert (recorded.cut, replay(recorded, Listener()).parting) == ("", None), path.read_text()
        ends[type(recorded.entries[-1])] += 1
        path.unlink()
    return ends


@pytest.mark.parametrize("seed", range(3))
def test_every_journal_of_a_long_day_agrees_with_its_plan(days: Any, seed: int) -> None:
    make, folders = days
    live_a_day(make, seed)
    assert set(agreeing(folders[0])) == {e.Ended, e.Failed, e.Cancelled}


def test_whatever_happens_a_journal_agrees_with_its_plan(days: Any) -> None:
    make, folders = days

    class Recording(Machine):
        def teardown(self) -> None:
            super().teardown()
            accepted = self.desk.state.lives._numbers
            assert agreeing(folders[-1]).total() == accepted

    Recording.make = staticmethod(make)
    case: Any = Recording.TestCase
    case.settings = settings(
        max_examples=40,
        stateful_step_count=50,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    case().runTest()
