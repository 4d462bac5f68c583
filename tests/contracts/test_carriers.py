"""What every carrier of tensors promises, and that the arena keeps its books."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from walkserve.messages import Array, StopWorker, StreamItems, StreamTaken, TensorRef, ToWorker
from walkserve.transport.base import OutOfSharedMemory, TensorCarrier, TensorGone
from walkserve.transport.carrier import ArenaCarrier
from walkserve.transport.local import LocalCarrier, LocalSwitchboard
from walkserve.transport.shm import Arena, ArenaReader
from walkserve.transport.slots import SlotMap, SlotsCorrupt
from walkserve.transport.sockets import SocketMailbox

Open = Callable[..., TensorCarrier]
LARGE = 16 * 1024


@pytest.fixture(params=["local", "arena"])
def opens(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens carriers of one kind that can reach each other, and checks that nothing is left of them."""
    opened: list[TensorCarrier] = []
    switchboard = LocalSwitchboard()

    def open_carrier(address: str, **kw: int) -> TensorCarrier:
        carrier: TensorCarrier
        if request.param == "local":
            carrier = LocalCarrier(address, switchboard, **kw)
        else:
            carrier = ArenaCarrier(address, tmp_path, size_bytes=1 << 20, **kw)
        opened.append(carrier)
        return carrier

    before = len(os.listdir("/proc/self/fd"))
    yield open_carrier
    for carrier in opened:
        carrier.close()
        carrier.close()
        assert carrier.held == 0
    assert len(os.listdir("/proc/self/fd")) <= before
    assert list(tmp_path.iterdir()) == []


def examples(elements: int) -> list[torch.Tensor]:
    """Tensors of every kind that travels, of about ``elements`` elements."""
    torch.manual_seed(0)
    rows = max(elements // 8, 1)
    return [
        torch.randn(rows, 8),
        torch.arange(rows * 8),
        torch.randn(rows, 8).to(torch.bfloat16),
        torch.randn(rows, 8) > 0,
        torch.randn(8, rows).T,  # not contiguous
        torch.randn(rows, 16)[:, ::2],
        torch.randn(1, 8).expand(rows, 8),
        torch.randn(rows, 8, dtype=torch.complex64).conj(),
        torch.randn(rows, 8).to(torch.float8_e4m3fn),
        torch.randn(rows, 8, requires_grad=True) * 2,
    ]


ODD = [torch.tensor(3.5), torch.tensor(True), torch.zeros(0), torch.zeros(4, 0, 2, dtype=torch.bfloat16)]


def assert_same(got: torch.Tensor, wanted: torch.Tensor) -> None:
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    if wanted.dtype == torch.float8_e4m3fn:  # has no equality
        got, wanted = got.float(), wanted.float()
    assert torch.equal(got, wanted)


@pytest.mark.parametrize("inline_limit", [0, 1 << 30])
@pytest.mark.parametrize("tensor", [*examples(64), *ODD], ids=lambda t: f"{t.dtype}-{tuple(t.shape)}")
def test_a_tensor_arrives_as_it_was(opens: Open, tensor: torch.Tensor, inline_limit: int) -> None:
    writer, reader = opens("writer", inline_limit=inline_limit), opens("reader")
    value = writer.put(tensor)
    assert_same(reader.take(value), tensor)
    assert_same(writer.take(value), tensor)
    assert value.dtype == str(tensor.dtype).removeprefix("torch.")
    assert value.shape == tuple(tensor.shape)


def test_small_tensors_ride_inline_and_large_ones_are_held(opens: Open) -> None:
    carrier = opens("a")
    assert isinstance(carrier.put(torch.zeros(LARGE - 1, dtype=torch.uint8)), Array)
    assert carrier.held == 0
    reference = carrier.put(torch.zeros(LARGE, dtype=torch.uint8))
    assert isinstance(reference, TensorRef)
    assert (reference.owner, reference.size_bytes) == ("a", LARGE)
    assert carrier.held == 1


def test_what_is_freed_is_not_held_any_more(opens: Open) -> None:
    carrier = opens("a")
    references = [carrier.put(torch.full((LARGE,), float(n))) for n in range(5)]
    keys = [r.key for r in references if isinstance(r, TensorRef)]
    assert carrier.held == len(set(keys)) == 5
    carrier.free(keys[:2])
    assert carrier.held == 3
    carrier.free([keys[0], keys[2], 999_999])  # the first again, and one that never was
    assert carrier.held == 2
    assert_same(carrier.take(references[4]), torch.full((LARGE,), 4.0))
    carrier.free(keys)
    assert carrier.held == 0


def test_a_tensor_that_was_taken_outlives_its_slot(opens: Open) -> None:
    writer, reader = opens("writer"), opens("reader")
    value = writer.put(torch.full((LARGE,), 1.0))
    assert isinstance(value, TensorRef)
    taken = reader.take(value)
    writer.free([value.key])
    writer.put(torch.full((LARGE,), 2.0))
    writer.close()
    assert_same(taken, torch.full((LARGE,), 1.0))


def test_a_tensor_whose_owner_is_gone_cannot_be_taken(opens: Open) -> None:
    writer, reader = opens("writer"), opens("reader")
    value = writer.put(torch.zeros(LARGE))
    writer.close()
    with pytest.raises(TensorGone):
        reader.take(value)


def test_forgetting_an_owner_lets_go_of_what_was_read_from_it(opens: Open) -> None:
    writer, reader = opens("writer"), opens("reader")
    value = writer.put(torch.ones(LARGE))
    taken = reader.take(value)
    writer.close()
    reader.forget("writer")
    reader.forget("never heard of")
    assert_same(taken, torch.ones(LARGE))
    with pytest.raises(TensorGone):
        reader.take(value)


# --- what only the arena has ----------------------------------------------------------------------------


def test_slots_are_used_again(tmp_path: Path) -> None:
    carrier = ArenaCarrier("a", tmp_path, size_bytes=1 << 20)
    places = set()
    for n in range(100):
        value = carrier.put(torch.full((100, 1000), float(n)))
        assert isinstance(value, TensorRef)
        places.add((value.segment, value.offset))
        assert carrier.take(value)[99, 999] == n
        carrier.free([value.key])
    assert places == {("a.0.arena", 0)}
    carrier.close()


def test_a_full_arena_gets_a_further_segment_large_enough(tmp_path: Path) -> None:
    arena, reader = Arena(tmp_path, "a", 4096), ArenaReader(tmp_path)
    slots = [(arena.put(bytes([n]) * size), n, size) for n, size in enumerate([4096, 1, 4096, 100_000, 64])]
    assert [slot.segment for slot, _, _ in slots] == [f"a.{n}.arena" for n in (0, 1, 2, 3, 1)]
    assert arena.segments == 4
    for slot, n, size in slots:
        with reader.view(slot.segment, slot.offset, slot.size) as view:
            assert view.readonly
            assert bytes(view) == bytes([n]) * size
        arena.free(slot.key)
    arena.check()
    assert arena.held == 0
    reader.close()
    arena.close()


def test_no_room_for_a_segment_is_said_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = Arena(tmp_path, "a", 4096)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OutOfSharedMemory, match="No space left"):
        arena.put(bytes(5000))
    assert arena.held == 0
    assert [path.name for path in tmp_path.iterdir()] == ["a.0.arena"]
    arena.put(bytes(4096))
    arena.close()


@pytest.mark.parametrize(
    ("segment", "offset", "size"),
    [("b.0.arena", 0, 1), ("a.0.arena", 4096, 1), ("a.0.arena", -1, 1), ("../a.0.arena", 0, 1), ("a", 0, 1)],
)
def test_a_reference_to_nothing_is_an_error(tmp_path: Path, segment: str, offset: int, size: int) -> None:
    arena, reader = Arena(tmp_path, "a", 4096), ArenaReader(tmp_path)
    (tmp_path / "a").touch()
    with pytest.raises(TensorGone):
        reader.view(segment, offset, size)
    reader.close()
    arena.close()


def test_forgetting_an_owner_unmaps_its_segments_only(tmp_path: Path) -> None:
    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count(str(tmp_path))

    arenas = [Arena(tmp_path, name, 4096) for name in ("w.1", "w.11")]
    reader = ArenaReader(tmp_path)
    for arena in arenas:
        slot = arena.put(b"x")
        reader.view(slot.segment, slot.offset, slot.size).release()
    assert mapped() == 4
    reader.forget("w.1")
    assert mapped() == 3
    reader.close()
    for arena in arenas:
        arena.close()
    assert mapped() == 0


def test_an_arena_has_all_its_pages_from_the_start(tmp_path: Path) -> None:
    arena = Arena(tmp_path, "a", 1 << 20)
    assert (tmp_path / "a.0.arena").stat().st_blocks * 512 >= 1 << 20
    arena.close()


@given(st.lists(st.one_of(st.integers(0, 700), st.integers(-40, -1)), max_size=200))
@settings(deadline=None)
def test_slots_never_overlap_and_freed_neighbours_join(steps: list[int]) -> None:
    """A step that is negative frees one of what is held; any other takes that many bytes."""
    slots = SlotMap(4096)
    held: list[tuple[int, int]] = []
    for step in steps:
        if step < 0:
            if held:
                slots.give(held.pop(step % len(held))[0])
        else:
            offset = slots.take(step)
            if offset is not None:
                assert offset % 64 == 0
                assert offset + step <= 4096
                assert all(offset + step <= o or o + size <= offset for o, size in held)
                held.append((offset, max(step, 1)))
        slots.check()
        assert slots.held == len(held)
    for offset, _ in held:
        slots.give(offset)
    slots.check()
    assert slots.take(4096) == 0  # all one hole again


@given(st.lists(st.tuples(st.binary(max_size=3000), st.booleans()), max_size=40))
@settings(deadline=None, max_examples=25)
def test_what_is_in_a_slot_stays_until_it_is_freed(tmp_path_factory: pytest.TempPathFactory, steps) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path_factory.mktemp("arena")
    arena, reader = Arena(folder, "a", 4096), ArenaReader(folder)
    held = {}
    for data, frees in steps:
        slot = arena.put(data)
        held[slot] = data
        if frees:
            oldest = next(iter(held))
            arena.free(oldest.key)
            del held[oldest]
        for kept, wanted in held.items():
            with reader.view(kept.segment, kept.offset, kept.size) as view:
                assert bytes(view) == wanted
        arena.check()
        assert arena.held == len(held)
    reader.close()
    arena.close()


def test_the_check_finds_books_that_do_not_agree() -> None:
    slots = SlotMap(4096)
    slots.take(100)
    slots._taken[64] = 64
    with pytest.raises(SlotsCorrupt):
        slots.check()


# --- between two processes ------------------------------------------------------------------------------

OTHER = """
import sys
from pathlib import Path
from walkserve.messages import StopWorker, StreamItems, StreamTaken, ToWorker
from walkserve.transport.carrier import ArenaCarrier
from walkserve.transport.sockets import SocketMailbox

folder = Path(sys.argv[1])
carrier = ArenaCarrier("other", folder)
with SocketMailbox("other", folder, ToWorker) as mailbox:
    running = True
    while running:
        for message in mailbox.receive():
            match message:
                case StreamItems(items=items):
                    back = [carrier.put(carrier.take(item)) for item in items]
                    mailbox.send("here", [StreamItems(1, "back", 0, back)])
                case StreamTaken():
                    carrier.free(range(1000))
                    mailbox.send("here", [StreamTaken(1, "held", carrier.held)])
                case StopWorker():
                    running = False
carrier.close()
"""


def test_tensors_cross_between_processes_and_come_back_the_same(tmp_path: Path) -> None:
    tensors = [*examples(64), *examples(LARGE), *ODD]
    carrier = ArenaCarrier("here", tmp_path)
    other = subprocess.Popen([sys.executable, "-c", OTHER, str(tmp_path)])
    try:
        with SocketMailbox("here", tmp_path, ToWorker) as here:
            values = [carrier.put(tensor) for tensor in tensors]
            here.send("other", [StreamItems(1, "there", 0, list(values))])
            (answer,) = here.receive(timeout_s=60)
            assert isinstance(answer, StreamItems)
            for value, tensor in zip(answer.items, tensors, strict=True):
                assert isinstance(value, Array | TensorRef)
                assert_same(carrier.take(value), tensor)
            carrier.free(value.key for value in values if isinstance(value, TensorRef))
            assert carrier.held == 0
            here.send("other", [StreamTaken(1, "back", len(tensors))])
            assert here.receive(timeout_s=60) == [StreamTaken(1, "held", 0)]
            here.send("other", [StopWorker()])
            assert other.wait(timeout=60) == 0
    finally:
        other.kill()
        other.wait(timeout=10)
        carrier.close()
    assert list(tmp_path.iterdir()) == []
