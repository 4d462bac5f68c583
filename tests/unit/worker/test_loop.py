"""The worker's loop, one batch deep: what it hears, submits, finishes and says, in which order."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from walkserve import messages as m
from walkserve.cache.pages import PoolCorrupt
from walkserve.engine.broken import DeviceBroke
from walkserve.engine.rows import Row, RowResult
from walkserve.worker.loop import IDLE_S, WorkerLoop

RANK0 = "pipe.rank0"
CLIENT = "http"
Bench = Callable[..., Any]


class Blocked(Exception):
    """The loop waits for a message, and there is none."""


class Post:
    """A mailbox whose messages a test gives, and that keeps what was sent."""

    address = f"{RANK0}.1"

    def __init__(self, *frames: list[m.Message]) -> None:
        self.frames = list(frames)
        self.sent: list[tuple[str, m.Message]] = []
        self.forgotten: list[str] = []

    def receive(self, timeout_s: float | None = None) -> list[m.Message]:
        if self.frames:
            return self.frames.pop(0)
        if timeout_s != 0:
            raise Blocked
        return []

    def send(self, to: str, messages: Sequence[m.Message]) -> None:
        self.sent += [(to, message) for message in messages]

    def forget(self, to: str) -> None:
        self.forgotten.append(to)


class Device:
    """An engine that answers ``n + 1``; a batch is done after it was asked ``slow`` times whether it is."""

    def __init__(self, slow: int = 0) -> None:
        self.slow = slow
        self.log: list[str] = []
        self.broken: set[int] = set()  # values that no batch survives
        self.is_late = False  # a batch breaks when it is finished, not when it is submitted

    def submit(self, key: tuple[str, str], rows: Sequence[Row]) -> Any:
        values = [row.values["n"] for row in rows]
        self.log.append(f"submit {values}")
        if not self.is_late:
            self.check(values)
        for row in rows:
            if row.branch.table is not None:
                row.branch.table.reserve(row.tokens)
        return Batch(self, values)

    def check(self, values: list[int]) -> None:
        if guilty := self.broken & set(values):
            raise ValueError(f"{guilty} cannot be computed")


class Batch:
    def __init__(self, device: Device, values: list[int]) -> None:
        self.device = device
        self.values = values
        self.asked = 0

    def is_ready(self) -> bool:
        self.asked += 1
        return self.asked > self.device.slow

    def finish(self) -> list[RowResult]:
        self.device.log.append(f"finish {self.values}")
        self.device.check(self.values)
        return [RowResult({"n": value + 1}) for value in self.values]


def start(number: int, n: int, most: int) -> list[m.Message]:
    return [
        m.OpenRequest(number, CLIENT, number + 100, None, 3, ("words",)),
        m.StartWalk(number, "saying", 0, "say", {"n": n, "most": most}),
    ]


def loop(bench: Bench, device: Device, post: Post, *, rows: int = 4) -> WorkerLoop:
    worker = bench(RANK0, rows=rows)
    worker.state.read_options = lambda sent: sent
    return WorkerLoop(worker.state, device, post)  # type: ignore[arg-type]


def items(post: Post) -> dict[int, list[Any]]:
    """By the client's tag, what it was sent."""
    found: dict[int, list[Any]] = {}
    for to, message in post.sent:
        if to == CLIENT and isinstance(message, m.Emitted):
            for tag, item in zip(message.tags, message.items, strict=True):
                found.setdefault(tag, []).append(item)
    return found


def test_a_result_that_is_ready_is_finished_before_the_next_batch_is_chosen(bench: Bench) -> None:
    device, post = Device(), Post()
    worker = loop(bench, device, post)
    worker.turn(start(0, 0, 3))
    for _ in range(3):
        worker.turn([])
    assert device.log == ["submit [0]", "finish [0]", "submit [1]", "finish [1]", "submit [2]", "finish [2]"]


def test_the_next_batch_is_submitted_before_the_last_is_finished(bench: Bench) -> None:
    device, post = Device(slow=99), Post()
    worker = loop(bench, device, post, rows=1)
    worker.turn([*start(0, 0, 2), *start(1, 10, 2)])
    assert device.log == ["submit [0]"]
    worker.turn([])
    assert device.log[1:] == ["submit [10]", "finish [0]"]
    worker.turn([])
    assert device.log[3:] == ["submit [1]", "finish [10]"]
    worker.turn([])
    assert device.log[5:] == ["submit [11]", "finish [1]"]
    worker.turn([])
    assert device.log[7:] == ["finish [11]"]


def test_it_is_never_more_than_one_batch_deep(bench: Bench) -> None:
    device, post = Device(slow=99), Post()
    worker = loop(bench, device, post, rows=1)
    worker.turn([message for number in range(5) for message in start(number, 10 * number, 2)])
    for _ in range(12):
        assert len(worker.submitted) <= 1
        worker.turn([])
    assert len([one for one in device.log if one.startswith("submit")]) == 10


def test_where_nothing_else_can_run_it_waits_for_the_batch_it_has(bench: Bench) -> None:
    device, post = Device(slow=99), Post()
    worker = loop(bench, device, post)
    worker.turn(start(0, 0, 1))
    worker.turn([])
    assert device.log == ["submit [0]", "finish [0]"]


@pytest.mark.parametrize("slow", [0, 1, 99])
def test_every_request_is_answered_alike_however_late_results_are(bench: Bench, slow: int) -> None:
    device, post = Device(slow), Post()
    worker = loop(bench, device, post, rows=2)
    worker.turn([message for number in range(3) for message in start(number, 10 * number, 3)])
    for _ in range(40):
        worker.turn([])
    assert items(post) == {100: [1, 2, 3], 101: [11, 12, 13], 102: [21, 22, 23]}
    assert sum(isinstance(message, m.WalkEnded) for _, message in post.sent) == 3


@pytest.mark.parametrize("is_late", [False, True])
def test_a_batch_that_raises_is_run_again_row_by_row_and_only_the_guilty_fail(
    bench: Bench, is_late: bool
) -> None:
    device, post = Device(), Post()
    device.broken, device.is_late = {10}, is_late
    worker = loop(bench, device, post)
    worker.turn([message for number in range(3) for message in start(number, 10 * number, 1)])
    for _ in range(3):
        worker.turn([])
    assert items(post) == {100: [1], 102: [21]}
    assert [message.number for _, message in post.sent if isinstance(message, m.WalkBroke)] == [1]
    assert [one for one in device.log if one.startswith("submit")] == [
        "submit [0, 10, 20]", "submit [0]", "submit [10]", "submit [20]",
    ]  # fmt: skip


def test_a_single_row_that_raises_is_not_run_again(bench: Bench) -> None:
    device, post = Device(), Post()
    device.broken = {0}
    worker = loop(bench, device, post)
    worker.turn(start(0, 0, 1))
    worker.turn([])
    assert device.log == ["submit [0]"]
    assert [type(message) for _, message in post.sent] == [m.WalkBroke]


def test_a_request_closed_in_flight_is_released_when_its_batch_is_back(bench: Bench) -> None:
    device, post = Device(slow=99), Post()
    worker = loop(bench, device, post)
    worker.turn(start(0, 0, 5))
    worker.turn([m.CloseRequest(0)])
    worker.turn([])
    assert post.sent == [("conductor", m.RequestClosed(0, RANK0, f"{RANK0}.1"))]
    assert worker.state.open_requests == 0


def test_what_is_said_to_one_receiver_in_one_round_is_one_frame(bench: Bench) -> None:
    frames: list[tuple[str, int]] = []

    class Frames(Post):
        def send(self, to: str, messages: Sequence[m.Message]) -> None:
            frames.append((to, len(messages)))

    worker = loop(bench, Device(), Frames())
    worker.turn([message for number in range(3) for message in start(number, 0, 1)])
    worker.turn([])
    assert sorted(frames) == [("conductor", 3), (CLIENT, 1)]


def test_it_runs_until_it_is_told_to_stop(bench: Bench) -> None:
    device, post = Device(), Post(start(0, 0, 2), [], [], [m.StopWorker()])
    loop(bench, device, post).run()
    assert items(post) == {100: [1, 2]}


def test_an_idle_loop_waits_for_a_message(bench: Bench) -> None:
    device, post = Device(), Post(start(0, 0, 2))
    with pytest.raises(Blocked):
        loop(bench, device, post).run()
    assert items(post) == {100: [1, 2]}
    assert any(isinstance(message, m.WalkEnded) for _, message in post.sent)


def test_everything_is_said_before_it_waits_also_when_results_are_late(bench: Bench) -> None:
    device, post = Device(slow=99), Post(start(0, 0, 2))
    with pytest.raises(Blocked):
        loop(bench, device, post).run()
    assert items(post) == {100: [1, 2]}
    assert any(isinstance(message, m.WalkEnded) for _, message in post.sent)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_failure_is_said_before_it_waits(bench: Bench, is_late: bool) -> None:
    device, post = Device(slow=99 if is_late else 0), Post(start(0, 0, 2))
    device.broken, device.is_late = {0}, is_late
    with pytest.raises(Blocked):
        loop(bench, device, post).run()
    assert [type(message) for _, message in post.sent] == [m.WalkBroke]


# --- what a component may raise, and what ends the worker ------------------------------------------------


class Raising(Device):
    """An engine whose component raises what a test wants, for some of its rows."""

    def __init__(self, error: BaseException, *guilty: int, is_late: bool = False) -> None:
        super().__init__()
        self.error, self.broken, self.is_late = error, set(guilty), is_late

    def check(self, values: list[int]) -> None:
        if self.broken & set(values):
            raise self.error


@pytest.mark.parametrize(
    "error", [SystemExit(0), KeyboardInterrupt(), MemoryError(), RecursionError(), GeneratorExit()]
)
@pytest.mark.parametrize("is_late", [False, True])
def test_whatever_a_component_raises_fails_its_own_row_and_the_worker_goes_on(
    bench: Bench, error: BaseException, is_late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    device, post = Raising(error, 10, is_late=is_late), Post()
    worker = loop(bench, device, post)
    worker.turn([message for number in range(3) for message in start(number, 10 * number, 1)])
    for _ in range(3):
        worker.turn([])
    assert items(post) == {100: [1], 102: [21]}
    (broke,) = [message for _, message in post.sent if isinstance(message, m.WalkBroke)]
    assert broke.number == 1
    assert type(error).__name__ in broke.fault.message
    assert type(error).__name__ in caplog.text


def device_errors() -> list[BaseException]:
    import torch

    return [
        torch.AcceleratorError("CUDA error: device-side assert triggered\nCompile with TORCH_USE_CUDA_DSA"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling cublasSgemm"),
    ]


def errors_of_one_batch() -> list[BaseException]:
    import torch

    return [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        torch.AcceleratorError("CUDA error: out of memory"),
        torch.AcceleratorError("CUDA error: invalid configuration argument"),
        RuntimeError("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling cublasLt"),
        RuntimeError("The size of tensor a (3) must match the size of tensor b (4)"),
        ValueError("CUDA error: said by somebody else"),
    ]


@pytest.mark.parametrize("error", device_errors())
@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("values", [[0], [0, 10]])
def test_a_broken_device_ends_the_worker_and_nothing_is_tried_again(
    bench: Bench, error: BaseException, is_late: bool, values: list[int]
) -> None:
    device = Raising(error, 0, is_late=is_late)
    heard = [message for number, n in enumerate(values) for message in start(number, n, 1)]
    post = Post(heard, [], [])
    with pytest.raises(DeviceBroke) as broke:
        loop(bench, device, post).run()
    assert broke.value.__cause__ is error
    assert str(broke.value) == str(error).partition("\n")[0]
    assert [one for one in device.log if one.startswith("submit")] == [f"submit {values}"]
    assert post.sent == []  # its requests are failed by whoever misses it


@pytest.mark.parametrize("error", device_errors())
def test_a_device_may_say_that_it_is_broken_only_when_its_result_is_looked_at(
    bench: Bench, error: BaseException
) -> None:
    def look(value: Any) -> Any:
        raise error

    post = Post(start(0, 0, 1), [], [])
    worker = loop(bench, Device(), post)
    worker.state.lending.send = look  # type: ignore[method-assign]
    with pytest.raises(DeviceBroke):
        worker.run()


@pytest.mark.parametrize("error", errors_of_one_batch())
def test_what_a_device_survives_is_tried_again_row_by_row(bench: Bench, error: BaseException) -> None:
    device, post = Raising(error, 10), Post()
    worker = loop(bench, device, post)
    worker.turn([message for number in range(2) for message in start(number, 10 * number, 1)])
    for _ in range(3):
        worker.turn([])
    assert items(post) == {100: [1]}
    assert [message.number for _, message in post.sent if isinstance(message, m.WalkBroke)] == [1]


# --- its pulse -------------------------------------------------------------------------------------------


def test_it_beats_every_time_it_comes_round_also_between_rows_that_are_run_alone(bench: Bench) -> None:
    device = Raising(ValueError("no"), 0)
    heard = [message for number in range(3) for message in start(number, 10 * number, 1)]
    post = Post(heard, [])
    worker = loop(bench, device, post)

    def beat() -> None:
        device.log.append("beat")

    worker.beat = beat
    with pytest.raises(Blocked):
        worker.run()
    assert device.log == [
        "beat", "submit [0, 10, 20]",
        "beat", "submit [0]", "beat", "submit [10]", "finish [10]", "beat", "submit [20]", "finish [20]",
        "beat", "beat",
    ]  # fmt: skip


def test_it_comes_round_also_when_nothing_happens(bench: Bench) -> None:
    waited: list[float | None] = []

    class Quiet(Post):
        def receive(self, timeout_s: float | None = None) -> list[m.Message]:
            waited.append(timeout_s)
            return [m.StopWorker()] if len(waited) == 3 else []

    loop(bench, Device(), Quiet()).run()
    assert waited == [IDLE_S] * 3


def test_what_led_to_a_peer_is_let_go_of_when_another_is_in_its_place(bench: Bench) -> None:
    post = Post()
    worker = loop(bench, Device(), post)
    for _ in range(2):  # said once more, it changes nothing
        worker.turn([m.PeersChanged({RANK0: f"{RANK0}.1", "pipe.rank1": "pipe.rank1.2"})])
    assert post.forgotten == worker.state.lending.carrier.forgotten == ["pipe.rank1.1"]


class Quiet(Post):
    """A mailbox that stays empty for so many rounds before a test is over."""

    rounds = 3

    def receive(self, timeout_s: float | None = None) -> list[m.Message]:
        if not self.frames and timeout_s and self.rounds:
            self.rounds -= 1
            return []
        return super().receive(timeout_s)


def test_the_cache_is_checked_once_when_there_is_nothing_to_do_any_more(bench: Bench) -> None:
    device, post = Device(), Quiet(start(0, 0, 2))
    worker = loop(bench, device, post)
    checked: list[int] = []
    worker.state.check_when_idle = lambda: checked.append(len(post.sent))
    with pytest.raises(Blocked):
        worker.run()
    assert checked == [len(post.sent)]
    post.frames, post.rounds = [[m.CloseRequest(0)]], 3
    with pytest.raises(Blocked):
        worker.run()
    assert checked == [3, len(post.sent)] == [3, 4]


def test_a_worker_whose_cache_is_broken_ends(bench: Bench) -> None:
    device, post = Device(), Quiet(start(0, 0, 2))
    worker = loop(bench, device, post)
    (lost,) = worker.state.caches["lm"].pool.take(1)
    with pytest.raises(PoolCorrupt, match=f"page {lost} counts 1 holders, but 0 tables hold it"):
        worker.run()
    worker.state.caches["lm"].pool.release([lost])
