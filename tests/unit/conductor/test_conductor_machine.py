"""The conductor among clients and two workers that answer in any order, break Walks and are lost."""

import logging
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.conductor.conftest import Listener

from walkserve import messages as m
from walkserve.conductor import lives
from walkserve.conductor.life_table import TABLE, Event, Phase
from walkserve.writing import Writing

CLIENT, CONDUCTOR = "http", "conductor"
WORKERS = ("speaker.host", "speaker.rank0")
CUES = Listener.cues
PAGES = 20  # one request may take 16 of them, so that two seldom run at once
ANY = st.integers(0, 999)
SELDOM = st.sampled_from([False] * 5 + [True])
TEXTS = (
    "hello", "hello", "careful", "fork", "silence", "refuse", "trip before", "trip at once", "trip later",
    "ask for nonsense",
)  # fmt: skip


class Machine(RuleBasedStateMachine):
    """Mail between two of them arrives in order; who is heard next, and what a Walk gives, is drawn."""

    make: Any

    def __init__(self) -> None:
        super().__init__()
        self.desk = self.make(pages=PAGES, hears=True)
        self.mail: dict[tuple[str, str], deque[m.Message]] = defaultdict(deque)
        self.at_work: dict[str, list[m.StartWalk]] = {f"{worker}.1": [] for worker in WORKERS}
        self.held: dict[str, set[int]] = {f"{worker}.1": set() for worker in WORKERS}
        self.incarnation = dict.fromkeys(WORKERS, 1)
        self.is_up = dict.fromkeys(WORKERS, True)
        self.tags = 0
        self.ends: dict[int, int] = {}
        self.cancelled: set[int] = set()
        self.due: list[int] = []
        self.writing: dict[int, Writing] = {}  # what each client that writes knows of its stream
        self.arrived: dict[str, Counter[int]] = defaultdict(Counter)  # items, by worker and request

    def post(self, said: dict[str, list[m.Message]]) -> None:
        for address, messages in said.items():
            self.mail[CONDUCTOR, address] += messages

    def address(self, worker: str) -> str:
        return f"{worker}.{self.incarnation[worker]}"

    # --- what happens -----------------------------------------------------------------------------

    @rule(
        text=st.sampled_from(TEXTS),
        most=st.sampled_from([None, 1, 4, 12, 99]),
        timeout_s=st.sampled_from([None, 1.0]),
        writes=st.booleans(),
    )
    def submit(self, text: str, most: int | None, timeout_s: float | None, writes: bool) -> None:
        self.tags += 1
        self.ends[self.tags] = 0
        options = {} if most is None else {"max_tokens": most}
        cues = (CUES.name,) if writes else ()
        if writes:
            self.writing[self.tags] = Writing(CLIENT, self.tags, [CUES])
        self.post(self.desk.submit(self.tags, text, timeout_s=timeout_s, writes=cues, **options))
        self.due += [number for number, _ in self.desk.state.lives.due]
        self.desk.state.lives.due.clear()

    @precondition(lambda self: self.ends)
    @rule(which=ANY, now=SELDOM)
    def cancel(self, which: int, now: bool) -> None:
        if not now:
            return
        tag = 1 + which % self.tags
        self.cancelled.add(tag)
        self.post(self.desk.hear(m.Cancel(CLIENT, tag)))

    @precondition(lambda self: self.writing)
    @rule(which=ANY, count=st.integers(1, 5), ends=SELDOM)
    def write(self, which: int, count: int, ends: bool) -> None:
        """It waits where it has to, so it is never refused."""
        tags = list(self.writing)
        tag = tags[-1 - which % min(len(tags), 20)]
        writing = self.writing[tag]
        for _ in range(count):
            item = writing.item(CUES.name, "now")
            if not (writing.has_to_wait(item) or writing._ends[CUES.name].is_ended):
                self.say_as_client(writing.write(item))
        if ends:
            self.say_as_client(writing.finish(CUES.name))

    def say_as_client(self, message: m.Message | None) -> None:
        said = self.desk.hear(message) if message is not None else {}
        told = [one for one in said.get(CLIENT, ()) if isinstance(one, m.RequestFailed)]
        assert not told, told
        self.post(said)

    @precondition(lambda self: self.tags)
    @rule(which=ANY, now=SELDOM)
    def write_too_much(self, which: int, now: bool) -> None:
        if now:
            tag = 1 + which % self.tags
            self.writing.pop(tag, None)
            self.post(self.desk.hear(m.WriteStream(CLIENT, tag, CUES.name, 0, ["now"] * 9)))

    @precondition(lambda self: self.tags)
    @rule(which=ANY, now=SELDOM)
    def be_silent(self, which: int, now: bool) -> None:
        if now:
            self.post(self.desk.hear_of(lambda state: state.was_silent(which % self.tags)))

    @precondition(lambda self: self.due)
    @rule(which=ANY, now=SELDOM)
    def expire(self, which: int, now: bool) -> None:
        if now:
            number = self.due.pop(-1 - which % min(len(self.due), 30))
            self.post(self.desk.hear_of(lambda state: state.expire(number)))

    @precondition(lambda self: self.tags)
    @rule(which=ANY, now=SELDOM)
    def cannot_be_sent(self, which: int, now: bool) -> None:
        if now:
            number = which % self.tags
            fault = m.Fault("a StartWalk of this request cannot be sent")
            self.post(self.desk.hear_of(lambda state: state.fail_number(number, fault)))

    @precondition(lambda self: any(self.mail.values()))
    @rule(which=ANY, frames=st.integers(1, 6))
    def deliver(self, which: int, frames: int) -> None:
        ways = sorted(way for way, messages in self.mail.items() if messages)
        way = ways[which % len(ways)]
        for _ in range(min(frames, len(self.mail[way]))):
            self.arrive(way)

    @rule()
    def deliver_all(self) -> None:
        while ways := [way for way, messages in self.mail.items() if messages]:
            self.arrive(ways[0])

    @precondition(lambda self: any(self.at_work.values()))
    @rule(which=ANY, is_broken=SELDOM, length=st.integers(0, 20))
    def work(self, which: int, is_broken: bool, length: int) -> None:
        walks = [(address, walk) for address, at_work in self.at_work.items() for walk in at_work]
        address, walk = walks[which % len(walks)]
        self.at_work[address].remove(walk)
        self.answer(address, walk, is_broken, length)

    @rule(worker=st.sampled_from(WORKERS), now=SELDOM)
    def lose(self, worker: str, now: bool) -> None:
        if not now or not self.is_up[worker]:
            return
        address = self.address(worker)
        self.is_up[worker] = False
        self.at_work.pop(address)
        self.held.pop(address)
        self.mail["supervisor", CONDUCTOR].append(m.WorkerLost(worker, address, "was killed"))

    @rule(worker=st.sampled_from(WORKERS))
    def start_again(self, worker: str) -> None:
        # its supervisor has said before that the last one was lost
        if self.is_up[worker] or any(
            isinstance(one, m.WorkerLost) and one.worker == worker
            for one in self.mail["supervisor", CONDUCTOR]
        ):
            return
        self.incarnation[worker] += 1
        self.is_up[worker] = True
        address = self.address(worker)
        self.at_work[address], self.held[address] = [], set()
        self.post(self.desk.ready(worker, self.incarnation[worker]))

    # --- how it arrives ---------------------------------------------------------------------------

    def arrive(self, way: tuple[str, str]) -> None:
        receiver = way[1]
        message = self.mail[way].popleft()
        if receiver == CONDUCTOR:
            self.post(self.desk.hear(message))
        elif receiver == CLIENT:
            if isinstance(message, m.RequestEnded | m.RequestFailed):
                self.ends[message.tag] += 1
                self.writing.pop(message.tag, None)
            elif isinstance(message, m.ItemsTaken) and message.tag in self.writing:
                self.writing[message.tag].took(message)
        elif receiver in self.held:
            self.worker_hears(receiver, message)

    def worker_hears(self, address: str, message: m.Message) -> None:
        match message:
            case m.OpenRequest():
                self.held[address].add(message.number)
            case m.StartWalk():
                assert message.number in self.held[address], "a Walk of a request that is not open"
                self.at_work[address].append(message)
                self.take_cues(address, message.number)
            case m.StreamItems():
                assert message.first == self.arrived[address][message.number], "items arrive in order"
                self.arrived[address][message.number] += len(message.items)
                self.take_cues(address, message.number)
            case m.ForkBranch():
                assert message.number in self.held[address]
                self.say(address, m.BranchForked(message.number, message.track, message.walk))
            case m.CloseRequest():
                self.held[address].discard(message.number)
                self.at_work[address] = [one for one in self.at_work[address] if one.number != message.number]
                self.say(address, m.RequestClosed(message.number, address.rpartition(".")[0], address))
            case _:
                pass

    def take_cues(self, address: str, number: int) -> None:
        """Where the Walk runs that reads them, what has arrived is taken at once."""
        if any((one.number, one.graph) == (number, "hear") for one in self.at_work[address]):
            self.say(address, m.StreamTaken(number, CUES.name, self.arrived[address][number]))

    def answer(self, address: str, walk: m.StartWalk, is_broken: bool, length: int) -> None:
        if is_broken:
            self.say(address, m.WalkBroke(walk.number, walk.track, walk.walk, m.Fault("it broke")))
            return
        values: dict[str, Any] = {"ids": [1] * length, "length": length} if walk.graph == "encode" else {}
        wrote = {"codes": length} if walk.graph == "write" else {}
        self.say(address, m.WalkEnded(walk.number, walk.track, walk.walk, "end", 1, 1, values, wrote, {}, {}))

    def say(self, address: str, message: m.Message) -> None:
        self.mail[address, CONDUCTOR].append(message)

    # --- what must be so --------------------------------------------------------------------------

    @invariant()
    def no_more_lies_unread_than_may(self) -> None:
        ends = [life.client_ends[CUES.name] for life in self.desk.state.lives]
        assert all(end.written - end.taken <= CUES.limit for end in ends)

    @invariant()
    def no_request_ends_twice(self) -> None:
        assert all(count <= 1 for count in self.ends.values())

    @invariant()
    def no_more_is_reserved_than_there_is(self) -> None:
        served = self.desk.served["speaker"]
        lives = [life for life in self.desk.state.lives if life.is_reserved]
        assert all(life.phase in (Phase.RUNNING, Phase.CLOSING) for life in lives)
        running = sum(pages for life in lives for pages in life.pages.values())
        assert 0 <= running == served.reserved.get("lm", 0) <= PAGES

    def teardown(self) -> None:
        """Everything comes to its end: nothing is lost any more, and all that waits is answered."""
        for _ in range(2000):
            ways = [way for way, messages in self.mail.items() if messages]
            walks = [address for address, at_work in self.at_work.items() if at_work]
            if ways:
                self.arrive(ways[0])
            elif walks:
                self.answer(walks[0], self.at_work[walks[0]].pop(0), False, 2)
            else:
                break
        for tag, count in self.ends.items():
            assert count == 1 or (count == 0 and tag in self.cancelled), f"request {tag} has {count} ends"
        assert self.desk.state.open_requests == 0
        assert self.desk.reserved == {} and not self.desk.served["speaker"].queue
        assert not any(self.held.values())
        assert not self.desk.state.lives._by_tag


@pytest.fixture(autouse=True)
def quiet() -> Any:
    """Plans raise here by the hundred."""
    logging.getLogger("walkserve").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("walkserve").setLevel(logging.NOTSET)


def test_every_request_has_one_end_and_leaves_nothing_behind(desk: Any) -> None:
    case: Any = type("Case", (Machine,), {"make": staticmethod(desk)}).TestCase
    case.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
    case().runTest()


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[tuple[Phase, Event]]]:
    """Every pair that was looked up in the table, and how often."""
    counts: Counter[tuple[Phase, Event]] = Counter()

    class Counted(dict[Any, Any]):
        def get(self, pair: Any, default: Any = None) -> Any:
            counts[pair] += 1
            return super().get(pair, default)

    monkeypatch.setattr(lives, "TABLE", Counted(TABLE))
    yield counts


WEIGHTS = {
    "submit": 4, "cancel": 1, "expire": 1, "cannot_be_sent": 0.3, "deliver": 12, "work": 8, "lose": 0.1,
    "start_again": 1, "write": 4, "write_too_much": 0.3, "be_silent": 0.3,
}  # fmt: skip


def live_a_day(desk: Any, seed: int) -> int:
    """1,500 things that happen, as this seed has them; how many waited at the most."""
    random = Random(seed)
    machine = type("Day", (Machine,), {"make": staticmethod(desk)})()
    waited = 0
    for _ in range(1500):
        match random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]:
            case "submit":
                most = random.choice([None, 1, 4, 12, 99])
                timeout_s, writes = random.choice([None, 1.0]), random.random() < 0.5
                machine.submit(random.choice(TEXTS), most, timeout_s, writes)
            case "write" if machine.writing:
                machine.write(random.randrange(1000), random.randint(1, 5), random.random() < 0.1)
            case "write_too_much" if machine.tags:
                machine.write_too_much(random.randrange(1000), True)
            case "be_silent" if machine.tags:
                machine.be_silent(random.randrange(1000), True)
            case "cancel" if machine.tags:
                machine.cancel(random.randrange(1000), True)
            case "expire" if machine.due:
                machine.expire(random.randrange(1000), True)
            case "cannot_be_sent" if machine.tags:
                machine.cannot_be_sent(random.randrange(1000), True)
            case "deliver" if any(machine.mail.values()):
                machine.deliver(random.randrange(1000), random.randint(1, 6))
            case "work" if any(machine.at_work.values()):
                machine.work(random.randrange(1000), random.random() < 0.2, random.randint(0, 20))
            case "lose":
                machine.lose(random.choice(WORKERS), True)
            case "start_again":
                machine.start_again(random.choice(WORKERS))
        machine.no_request_ends_twice()
        machine.no_more_is_reserved_than_there_is()
        machine.no_more_lies_unread_than_may()
        waited = max(waited, len(machine.desk.served["speaker"].queue))
    machine.teardown()
    return waited


@pytest.mark.parametrize("seed", range(10))
def test_a_long_day_leaves_nothing_behind(desk: Any, seed: int) -> None:
    assert live_a_day(desk, seed) > 2, "a day on which nobody waited shows little"


def test_long_days_reach_every_pair_of_the_table_and_no_other(
    desk: Any, reached: Counter[tuple[Phase, Event]]
) -> None:
    for seed in range(10):
        live_a_day(desk, seed)
    assert reached.keys() == TABLE.keys()
