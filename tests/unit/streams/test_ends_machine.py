"""A stream between two workers whose mail is late, against a list of what was written."""

from collections import deque
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from walkserve.streams.ends import ReadEnd, WriteEnd
from walkserve_sdk.streams import ChunkPolicy, Each, Fixed, Helping, LeftContext, SlidingWindow

small = st.integers(1, 4)
POLICIES: dict[str, st.SearchStrategy[ChunkPolicy]] = {
    "each": st.just(Each()),
    "fixed": st.builds(lambda n, times: Fixed(n, most=n * times), small, small),
    "window": st.builds(lambda step, more: SlidingWindow(step + more, step), small, st.integers(0, 3)),
    "context": st.builds(LeftContext, small, small),
}


def expected(
    policy: ChunkPolicy, written: list[int], handed: int, arrived: int, ended: bool
) -> Helping | None:
    """The next helping as the documentation has it, of lists."""
    rest = written[handed:arrived]
    before = 0
    match policy:
        case Each():
            wanted = 1
        case Fixed():
            wanted = max(policy.n, min(policy.limit, len(rest) // policy.n * policy.n))
            if ended and len(rest) <= policy.limit:
                wanted = len(rest)
        case SlidingWindow():
            wanted = policy.step if handed else policy.size
            before = max(0, policy.size - min(wanted, len(rest)))
        case LeftContext():
            wanted, before = policy.n, policy.context
        case _:
            raise AssertionError(policy)
    if len(rest) < wanted and not ended:
        return None
    new = rest[:wanted]
    items = written[max(0, handed - before) : handed] + new
    return Helping(items, handed + len(new) - len(items), len(new), last=ended and len(new) == len(rest))


class Hall(RuleBasedStateMachine):
    """A writer here, a reader there; items and their end come by different posts, and what is taken is told.

    A writer is started while the end is open, and writes later: several may be on their way at once.
    """

    policies: Any

    @initialize(data=st.data(), more=st.integers(0, 4))
    def declare(self, data: st.DataObject, more: int) -> None:
        self.policy: ChunkPolicy = data.draw(self.policies)
        self.limit = more + next(n for n in range(1, 9) if self.policy.cut(0, n, ended=False))
        self.writer, self.reader = WriteEnd(self.limit), ReadEnd(self.policy)
        self.written: list[int] = []
        self.is_ended = self.is_left = False  # the writing, the reading track has returned
        self.starting = 0
        self.posts: dict[str, deque[Any]] = {
            "items": deque(),
            "end": deque(),
            "taken": deque(),
            "left": deque(),
        }
        self.helpings: list[Helping] = []
        self.in_call: Helping | None = None

    # --- the writer -------------------------------------------------------------------------------

    @precondition(lambda self: not self.is_ended and self.writer.is_open and self.starting < 3)
    @rule()
    def start_writing(self) -> None:
        self.starting += 1

    @precondition(lambda self: self.starting)
    @rule()
    def write(self) -> None:
        self.starting -= 1
        index = self.writer.number()
        assert index == len(self.written)
        self.written.append(index * 10)
        if not self.writer.discarded:
            self.posts["items"].append((index, [index * 10]))

    @precondition(lambda self: not self.is_ended and not self.starting)
    @rule()
    def end(self) -> None:
        self.is_ended = True
        self.posts["end"].append(len(self.written))

    # --- the reader -------------------------------------------------------------------------------

    @precondition(lambda self: self.in_call is None and not self.is_left)
    @rule()
    def take_a_helping(self) -> None:
        reader = self.reader
        is_told = reader.total is not None and reader.arrived == reader.total
        wanted = expected(self.policy, self.written, reader.handed, reader.arrived, is_told)
        if reader.is_done:
            wanted = None
        assert reader.has_next == (wanted is not None)
        if wanted is None:
            return
        self.in_call = reader.next()
        assert self.in_call == wanted
        self.helpings.append(self.in_call)

    @precondition(lambda self: self.in_call is not None)
    @rule()
    def finish_the_call(self) -> None:
        """Well or not: what it was handed is taken."""
        self.in_call = None
        self.posts["taken"].append(self.reader.handed)

    @precondition(lambda self: self.in_call is None and not self.is_left and len(self.helpings) > 2)
    @rule(really=st.sampled_from([False] * 9 + [True]))
    def leave(self, really: bool) -> None:
        if really:
            self.is_left = True
            self.posts["left"].append(None)

    # --- posts ------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(["items", "items", "end", "taken", "left"]), together=st.integers(1, 3))
    def deliver(self, name: str, together: int) -> None:
        post = self.posts[name]
        match name:
            case _ if not post:
                return
            case "items":  # several of one frame come as one message
                first, items = post.popleft()
                for _ in range(min(together - 1, len(post))):
                    items = items + post.popleft()[1]
                self.reader.push(first, items)
            case "end":
                self.reader.end(post.popleft())
            case "taken":
                self.writer.took(post.popleft())
            case _:
                post.popleft()
                self.writer.discarded = True

    @rule(by=st.sampled_from([-2, -1, 1, 2]))
    def deliver_nonsense(self, by: int) -> None:
        """It is refused, and nothing has changed."""
        reader = self.reader
        before = (reader.arrived, reader.total, len(reader.items), self.writer.taken)
        with pytest.raises(ValueError):
            reader.push(reader.arrived + by, [7])
        with pytest.raises(ValueError):
            self.writer.took(self.writer.written + 1)
        with pytest.raises(ValueError):
            reader.end(-1 if reader.total is None else reader.total + by)
        if reader.total is not None:
            with pytest.raises(ValueError):
                reader.push(reader.arrived, [7] * (reader.total - reader.arrived + 1))
        assert before == (reader.arrived, reader.total, len(reader.items), self.writer.taken)

    # --- what always holds ------------------------------------------------------------------------

    @invariant()
    def every_item_is_handed_over_once_and_in_order(self) -> None:
        fresh = [item for helping in self.helpings for item in helping.new]
        assert fresh == self.written[: self.reader.handed]

    @invariant()
    def only_the_last_helping_is_the_last(self) -> None:
        lasts = [helping.last for helping in self.helpings]
        assert not any(lasts[:-1])
        assert self.reader.is_done == any(lasts)
        if any(lasts):
            assert self.is_ended and self.reader.handed == len(self.written)

    @invariant()
    def the_write_end_is_open_below_its_limit_and_no_longer(self) -> None:
        held = len(self.written) - self.writer.taken
        assert self.writer.is_open == (self.writer.discarded or held < self.limit)
        if not self.writer.discarded:
            assert held <= self.limit + 2  # three may have been started at once below it

    @invariant()
    def a_reader_keeps_what_waits_and_its_context(self) -> None:
        context = {SlidingWindow: "size", LeftContext: "context"}.get(type(self.policy))
        room = getattr(self.policy, context) if context else 0
        assert len(self.reader.items) <= self.reader.arrived - self.reader.handed + room

    def teardown(self) -> None:
        """Both come to their ends: nothing is missing, and nothing is left over."""
        if not hasattr(self, "posts"):
            return
        while self.starting:
            self.write()
        if not self.is_ended:
            self.end()
        if self.in_call is not None:
            self.finish_the_call()
        for name, post in self.posts.items():
            while post:
                self.deliver(name, 1)
        if self.is_left:
            assert self.writer.is_open
            return
        while self.reader.has_next:
            self.take_a_helping()
            self.finish_the_call()
        while self.posts["taken"]:
            self.deliver("taken", 1)
        assert [item for helping in self.helpings for item in helping.new] == self.written
        assert [helping.last for helping in self.helpings] == [False] * (len(self.helpings) - 1) + [True]
        assert self.writer.taken == self.writer.written and not self.reader.has_next


@pytest.mark.parametrize("kind", POLICIES)
def test_a_stream_hands_over_all_that_was_written_whenever_mail_comes(kind: str) -> None:
    machine = type("Hall", (Hall,), {"policies": POLICIES[kind]})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=60, stateful_step_count=60, deadline=None)
    )
