"""The toy's training: it makes a checkpoint that loads strictly, and trains what is served."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

import walk_plugin_orpheus.toy
from walk_plugin_orpheus.frames import align
from walk_plugin_orpheus.ids import read_speech_ids
from walk_plugin_orpheus.llama import OrpheusLM
from walk_plugin_orpheus.snac_stream import StreamingDecoder, load_snac
from walk_plugin_orpheus.text import Tokenizer
from walk_plugin_orpheus.toy import train
from walk_plugin_orpheus.toy.dialled import RATE, asked_for, dialled, is_held_out, some_digits
from walk_plugin_orpheus.toy.dtmf import digits_heard
from walk_plugin_orpheus.toy.score import SAMPLINGS, Asked, Toy, draw, held_out_texts
from walk_plugin_orpheus.toy.train_codec import composed
from walk_plugin_orpheus.toy.train_language import TrainingCache, answer, pack
from walkserve.cache.paged import PagedCache
from walkserve.engine.attention import AttentionRow, PagedAttention
from walkserve_sdk import Checkpoint, SamplingParams

TOY = Path(walk_plugin_orpheus.toy.__file__).parent
CPU = torch.device("cpu")


def checkpoint(folder: Path) -> Checkpoint:
    return Checkpoint({"main": folder, "snac": folder / "snac"}, label=folder.name)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """As in training: for products this small, a second thread costs more than it brings."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    train.make(folder, seed=0, is_quick=True)
    return folder


def test_training_writes_every_file_of_the_shipped_checkpoint(made: Path):
    files = {str(path.relative_to(made)) for path in made.rglob("*") if path.is_file()}
    assert files == {
        "config.json",
        "model.safetensors",
        "snac/config.json",
        "snac/pytorch_model.bin",
        "tokenizer.json",
        "tokenizer_config.json",
        "voices.json",
    }
    assert all((TOY / name).is_file() for name in files)


def test_what_was_written_is_16_bit_and_has_the_shipped_names_and_shapes(made: Path):
    def language(folder: Path) -> dict[str, tuple[torch.dtype, torch.Size]]:
        with safe_open(folder / "model.safetensors", framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        return {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}

    def codec(folder: Path) -> dict[str, tuple[torch.dtype, torch.Size]]:
        tensors = torch.load(folder / "snac" / "pytorch_model.bin", weights_only=True)
        return {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}

    assert language(made) == language(TOY)
    assert codec(made) == codec(TOY)
    assert {dtype for dtype, _ in language(made).values()} == {torch.bfloat16}
    assert {dtype for dtype, _ in codec(made).values()} == {torch.float16}


def test_what_was_written_loads_strictly(made: Path):
    Tokenizer.load(checkpoint(made), device=CPU, dtype=torch.float32)
    llama = OrpheusLM.load(checkpoint(made), device=CPU, dtype=torch.float32)
    assert llama.head.whole(torch.zeros(1, 96)).shape == (1, 768)
    assert StreamingDecoder(load_snac(made / "snac")).frame_samples == 2048


@torch.no_grad()
def test_the_attention_of_training_is_the_attention_served():
    """Two rows of different length: padded while training, packed over pages when served."""
    llama = OrpheusLM.load(checkpoint(TOY), device=CPU, dtype=torch.float32)
    long, short = torch.arange(40) * 7 % 768, torch.arange(23) * 11 % 768
    padded = torch.zeros(2, 40, dtype=torch.int64)
    padded[0], padded[1, :23] = long, short
    trained = llama.hidden(padded.flatten(), TrainingCache(2, 40)).view(2, 40, -1)

    cache = PagedCache(llama.kv_shape, pages=16, page_size=8, device="cpu", dtype=torch.float32)
    tables = [cache.new_table(), cache.new_table()]
    for table, ids in zip(tables, (long, short), strict=True):
        cache.copy_pages(table.reserve(len(ids)))
    rows = [AttentionRow(tables[0], 40), AttentionRow(tables[1], 23)]
    view = PagedAttention(cache, rows, deterministic=False, padded_tokens=63)
    served = llama.hidden(torch.cat([long, short]), view)
    torch.testing.assert_close(served[:40], trained[0])
    torch.testing.assert_close(served[40:], trained[1, :23])


def test_gradients_reach_every_weight_through_the_training_cache():
    q, k, v = (torch.randn(6, heads, 8, requires_grad=True) for heads in (4, 2, 2))
    TrainingCache(2, 3).attend(0, q, k, v).sum().backward()
    assert all(each.grad is not None for each in (q, k, v))


def test_what_is_dialled_is_heard_and_whole_frames_long():
    for digits in ("7", "042", "5511"):
        wave = dialled(digits)
        assert digits_heard(wave, RATE) == digits
        assert len(wave) == 2048 * (1 + 2 * len(digits) + 3)


def test_digits_are_composed_from_digits_dialled_alone():
    alone = {digit: [(int(digit), place, 0, 0, 0, 0, 0) for place in range(6)] for digit in "0123456789"}
    assert [frame[:2] for frame in composed(alone, "42")] == [
        *((4, place) for place in range(3)),
        *((2, place) for place in range(1, 6)),
    ]


def test_an_answer_reads_as_the_frames_it_says():
    ids = read_speech_ids(checkpoint(TOY))
    frames = [(1, 2, 3, 4, 5, 6, 7), (63, 0, 63, 0, 63, 0, 63)]
    *codes, last = answer(frames, ids)
    assert last == ids.end
    assert align(codes, (), first_code=ids.first, codebook_size=ids.codebook_size).frames == frames


def test_only_answers_are_learned():
    read, targets = pack([([1, 2, 3], [4, 5]), ([6], [7])])
    assert read.tolist() == [[1, 2, 3, 4], [6, 0, 0, 0]]
    assert targets.tolist() == [[-100, -100, 4, 5], [7, -100, -100, -100]]


def test_texts_of_the_score_are_held_out_and_always_the_same():
    texts = held_out_texts(20)
    assert texts == held_out_texts(20)
    assert all(is_held_out(each.digits) for each in texts)


def test_texts_ask_in_figures_and_in_words():
    random = np.random.default_rng(0)
    texts = {asked_for("28", random) for _ in range(100)}
    assert {"28", "dial 2 8", "please call two eight"} <= texts
    assert {len(some_digits(random)) for _ in range(100)} == {1, 2, 3, 4}


def test_a_token_that_was_seen_is_penalised_whatever_the_sign_of_its_logit():
    logits = torch.tensor([[2.0, 1.9], [-1.0, -1.1]])
    seen = torch.tensor([[True, False], [True, False]])
    generator = torch.Generator()
    plain = SamplingParams(temperature=0)
    penalised = SamplingParams(temperature=0, repetition_penalty=1.3)
    assert draw(logits, seen, plain, generator).tolist() == [0, 0]
    assert draw(logits, seen, penalised, generator).tolist() == [1, 1]


def test_the_shipped_checkpoint_dials_what_it_is_asked_for():
    asked = [Asked("call 5 5 1", "tara", "551"), Asked("please call two eight", "leo", "28")]
    toy = Toy(TOY)
    for sampling in SAMPLINGS.values():
        assert toy.say(asked, sampling) == ["551", "28"]
