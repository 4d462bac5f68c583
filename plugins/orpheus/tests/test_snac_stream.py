"""A SNAC decoder fed piece by piece says what it says in one go, as early as it can."""

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from snac import SNAC
from snac.layers import NoiseBlock
from torch import Tensor

from walk_plugin_orpheus.frames import align
from walk_plugin_orpheus.snac_stream import (
    BadCodec,
    DecoderState,
    KeyedNoise,
    NoiseSource,
    StreamingDecoder,
    WindowDecoder,
    frames_to_codes,
    load_snac,
)

GOLDEN = Path(__file__).parent / "data" / "golden"
FIRST_CODE = 128266 - 128000 + 260
CODEBOOK = 4096
FRAME = 2048
LAG = 4757
# What float32 itself costs in this codec, whose random weights amplify: one whole decode against the
# same in float64 is 0.8e-5 off without noise and 2.5e-5 with it. In float64 the stream is held to 1e-7.
ROUNDING = 2e-5
ROUNDING_WITH_NOISE = 5e-5

codec = load_snac(GOLDEN / "snac")
decoder = StreamingDecoder(codec)
exact_decoder = StreamingDecoder(load_snac(GOLDEN / "snac", dtype=torch.float64))
golden = load_file(GOLDEN / "golden.safetensors")
golden_frames = torch.tensor(
    align(golden["codec_tokens"].tolist(), (), first_code=FIRST_CODE, codebook_size=CODEBOOK).frames
)


class PreparedNoise:
    """The numbers that the package draws in one decode after ``torch.manual_seed(0)``."""

    def __init__(self, frames: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self._drawn = [torch.randn(1, 1, frames * rate, generator=generator) for rate in decoder.noise_rates]

    def normal(self, layer: int, start: int, stop: int) -> Tensor:
        assert 0 <= start < stop <= self._drawn[layer].shape[-1]
        return self._drawn[layer][0, 0, start:stop]


def keyed(seed: int = 0) -> KeyedNoise:
    return KeyedNoise(lambda layer, cell: (seed * 31 + layer) * 1_000_003 + cell)


def random_frames(count: int, seed: int = 0) -> Tensor:
    return torch.randint(CODEBOOK, (count, 7), generator=torch.Generator().manual_seed(seed))


def whole(frames: Tensor, noise: NoiseSource | None = None, by: StreamingDecoder = decoder) -> Tensor:
    return by.decode(frames, by.initial(), last=True, noise=noise)[0]


def pieces(
    frames: Tensor, sizes: Sequence[int], noise: NoiseSource | None = None, by: StreamingDecoder = decoder
) -> Iterator[Tensor]:
    """The sound of each helping of ``sizes`` frames, and of a last one with the rest."""
    state = by.initial()
    for size in sizes:
        helping, frames = frames[:size], frames[size:]
        sound, state = by.decode(helping, state, last=False, noise=noise)
        yield sound
    yield by.decode(frames, state, last=True, noise=noise)[0]


def worst(one: Tensor, other: Tensor) -> float:
    assert one.shape == other.shape
    return float((one - other).abs().max()) if len(one) else 0.0


def silent(snac: SNAC) -> SNAC:
    """The package's codec with its noise blocks taken out."""
    for module in snac.modules():
        if isinstance(module, NoiseBlock):
            module.forward = lambda x: x
    return snac


def package_says(snac: SNAC, frames: Tensor) -> Tensor:
    """What the package's own decode says, without noise."""
    return silent(snac).decode(frames_to_codes(frames[None])).detach().reshape(-1)


# What it says


def test_the_whole_golden_utterance_without_noise():
    assert worst(whole(golden_frames), golden["full.nonoise.wav"].reshape(-1)) < 1e-4


def test_the_whole_golden_utterance_with_the_noise_of_the_package():
    noise = PreparedNoise(len(golden_frames))
    expected = golden["full.noise.wav"].reshape(-1)
    assert worst(whole(golden_frames, noise), expected) < 1e-4
    assert worst(torch.cat([*pieces(golden_frames, [1] * 11, noise)]), expected) < 1e-4


def test_the_golden_utterance_one_frame_at_a_time():
    sound = torch.cat([*pieces(golden_frames, [1] * 11)])
    assert worst(sound, golden["full.nonoise.wav"].reshape(-1)) < 1e-4


@settings(deadline=None, max_examples=40)
@given(
    count=st.integers(1, 60),
    sizes=st.lists(st.integers(0, 8), max_size=20),
    seed=st.integers(0, 5),
    with_noise=st.booleans(),
)
def test_the_cut_into_helpings_does_not_show(count: int, sizes: list[int], seed: int, with_noise: bool):
    frames = random_frames(count, seed)
    noise = keyed(seed) if with_noise else None
    for by, tolerance in [(decoder, ROUNDING_WITH_NOISE if with_noise else ROUNDING), (exact_decoder, 1e-7)]:
        cut = torch.cat([*pieces(frames, sizes, noise, by)])
        assert worst(cut, whole(frames, noise, by)) < tolerance


@pytest.mark.parametrize("count", [1, 2, 3, 10, 25, 60])
def test_frames_may_come_one_by_one(count: int):
    frames = random_frames(count)
    assert worst(torch.cat([*pieces(frames, [1] * count)]), whole(frames)) < ROUNDING


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_every_frame_is_spoken_also_of_the_shortest_utterances(count: int):
    frames = random_frames(count)
    expected = package_says(SNAC.from_pretrained(str(GOLDEN / "snac")), frames)
    assert len(expected) == count * FRAME
    assert worst(whole(frames), expected) < ROUNDING
    assert worst(torch.cat([*pieces(frames, [1] * count)]), expected) < ROUNDING


def test_an_empty_utterance_makes_no_sound():
    sound, state = decoder.decode(random_frames(0), decoder.initial(), last=False, noise=None)
    assert sound.shape == (0,)
    sound, state = decoder.decode(random_frames(0), state, last=True, noise=keyed())
    assert sound.shape == (0,)
    assert state.ended


def test_the_last_helping_may_be_empty_and_brings_the_rest():
    frames = random_frames(5)
    first, state = decoder.decode(frames, decoder.initial(), last=False, noise=None)
    rest, _ = decoder.decode(frames[:0], state, last=True, noise=None)
    assert len(rest) == LAG
    assert worst(torch.cat([first, rest]), whole(frames)) < ROUNDING


def test_code_0_is_spoken_like_any_other():
    frames = golden_frames.clone()
    frames[3] = 0
    frames[5, 2] = 0
    expected = package_says(SNAC.from_pretrained(str(GOLDEN / "snac")), frames)
    assert worst(torch.cat([*pieces(frames, [2] * 5)]), expected) < ROUNDING


# When it says it


def test_samples_leave_as_soon_as_they_are_final():
    lengths = [len(sound) for sound in pieces(random_frames(6), [1] * 6)]
    assert lengths == [0, 0, 1387, 2048, 2048, 2048, LAG]
    assert (decoder.frame_samples, decoder.lag_samples) == (FRAME, LAG)
    assert [decoder.samples_after(frames) for frames in range(6)] == [0, 0, 0, 1387, 3435, 5483]


@pytest.mark.parametrize("heard", [3, 4, 6])
def test_no_sample_could_have_left_earlier(heard: int):
    """The next frame moves the very next sample, and none that has left.

    Asked of the package's decoder by its gradient: so far from the middle of the kernels, the influence
    itself is below what a difference of two sounds could show.
    """
    ready = decoder.samples_after(heard)
    snac = silent(load_snac(GOLDEN / "snac", dtype=torch.float64))
    latents = snac.quantizer.from_codes(frames_to_codes(random_frames(heard + 3)[None])).requires_grad_()
    sound = snac.decoder(latents).reshape(-1)
    steps = latents.shape[-1] // (heard + 3)
    for sample, is_final in [(0, True), (ready - 1, True), (ready, False)]:
        (influence,) = torch.autograd.grad(sound[sample], latents, retain_graph=True)
        assert bool((influence[..., heard * steps :] == 0).all()) is is_final


# What it remembers


def test_a_state_can_be_continued_twice():
    frames = random_frames(8)
    _, state = decoder.decode(frames[:4], decoder.initial(), last=False, noise=None)
    before = [tensor.clone() for tensor in tensors(state)]
    once, after = decoder.decode(frames[4:], state, last=False, noise=None)
    decoder.decode(random_frames(3, seed=9), state, last=True, noise=keyed())
    again, _ = decoder.decode(frames[4:], state, last=False, noise=None)
    assert torch.equal(once, again)
    assert all(torch.equal(one, other) for one, other in zip(before, tensors(state), strict=True))
    assert (state.frames, state.ended, after.frames) == (4, False, 8)


def test_utterances_do_not_hear_each_other():
    mine, yours = random_frames(6, seed=1), random_frames(6, seed=2)
    states = [decoder.initial(), decoder.initial()]
    sounds: list[list[Tensor]] = [[], []]
    for place in range(6):
        for who, frames in enumerate((mine, yours)):
            sound, states[who] = decoder.decode(
                frames[place : place + 1], states[who], last=place == 5, noise=keyed(who)
            )
            sounds[who].append(sound)
    assert worst(torch.cat(sounds[0]), whole(mine, keyed(0))) < ROUNDING_WITH_NOISE
    assert worst(torch.cat(sounds[1]), whole(yours, keyed(1))) < ROUNDING_WITH_NOISE


def test_a_state_does_not_grow():
    state = decoder.initial()
    sizes = set()
    for place in range(12):
        _, state = decoder.decode(random_frames(3, place), state, last=False, noise=None)
        sizes.add(sum(tensor.untyped_storage().nbytes() for tensor in tensors(state)))
    assert len(sizes) == 1


def test_nothing_follows_the_end():
    _, ended = decoder.decode(random_frames(1), decoder.initial(), last=True, noise=None)
    with pytest.raises(ValueError, match="closed"):
        decoder.decode(random_frames(1), ended, last=False, noise=None)


def tensors(state: DecoderState) -> list[Tensor]:
    def walk(node: Any) -> Iterator[Tensor]:
        if isinstance(node, Tensor):
            yield node
        elif isinstance(node, tuple):
            for child in node:
                yield from walk(child)

    return list(walk(state.layers))


# Noise


def test_noise_depends_on_the_place_alone():
    noise = keyed()
    joined = noise.normal(2, 0, 3000)
    assert joined.shape == (3000,)
    for start, stop in [(0, 1), (255, 257), (256, 512), (100, 2999), (7, 7)]:
        assert torch.equal(noise.normal(2, start, stop), joined[start:stop])


def test_noise_is_normal_and_differs_by_layer_and_key():
    drawn = keyed().normal(0, 0, 100_000)
    assert abs(float(drawn.mean())) < 0.02
    assert abs(float(drawn.std()) - 1) < 0.02
    assert not torch.equal(drawn, keyed().normal(1, 0, 100_000))
    assert not torch.equal(drawn, keyed(seed=1).normal(0, 0, 100_000))


def test_noise_does_not_touch_the_shared_generator():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    whole(random_frames(4), keyed())
    assert torch.equal(before, torch.get_rng_state())


def test_noise_is_heard_and_can_be_repeated():
    frames = random_frames(4)
    assert worst(whole(frames, keyed()), whole(frames)) > 0.01
    assert torch.equal(whole(frames, keyed()), whole(frames, keyed()))


# The authors' window


@pytest.mark.parametrize("sizes", [[11], [1] * 11, [2, 0, 5, 4]])
def test_the_window_decoder_says_what_the_authors_say(sizes: list[int]):
    window = WindowDecoder(codec)
    state = window.initial()
    sounds, frames = [], golden_frames
    for size in sizes:
        sound, state = window.decode(frames[:size], state, last=False, noise=None)
        sounds.append(sound)
        frames = frames[size:]
    sound = torch.cat(sounds)
    assert worst(sound, golden["window.nonoise.wav"]) < 1e-4
    as_pcm16 = (sound * 32767).to(torch.int16)
    assert int((as_pcm16.int() - golden["stream.nonoise.pcm16"].int()).abs().max()) <= 1
    assert len(window.decode(frames[:0], state, last=True, noise=None)[0]) == 0


def test_the_window_decoder_is_silent_before_the_fourth_frame():
    window = WindowDecoder(codec)
    sound, state = window.decode(random_frames(3), window.initial(), last=False, noise=keyed())
    assert len(sound) == 0
    sound, _ = window.decode(random_frames(1), state, last=True, noise=keyed())
    assert len(sound) == FRAME


def test_windows_share_the_noise_where_they_overlap():
    window = WindowDecoder(codec)
    asked: list[tuple[int, int, int]] = []

    class Heard:
        def normal(self, layer: int, start: int, stop: int) -> Tensor:
            asked.append((layer, start, stop))
            return torch.zeros(stop - start)

    window.decode(random_frames(5), window.initial(), last=False, noise=Heard())
    finest = len(decoder.noise_rates) - 1
    spans = [(start, stop) for layer, start, stop in asked if layer == finest]
    assert spans == [(0, 4 * FRAME), (FRAME, 5 * FRAME)]


# What it refuses


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copy = tmp_path / "snac"
    shutil.copytree(GOLDEN / "snac", copy)
    return copy


def change_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def change_tensors(folder: Path, **changes: Tensor | None) -> None:
    path = folder / "pytorch_model.bin"
    stored = torch.load(path, weights_only=True) | {
        name.replace("__", "."): tensor for name, tensor in changes.items()
    }
    torch.save({name: tensor for name, tensor in stored.items() if tensor is not None}, path)


def test_frames_that_are_none_are_refused():
    outside = random_frames(2)
    outside[1, 6] = CODEBOOK
    for codes in [outside, outside - CODEBOOK, outside[:, :6], outside.float(), outside[0]]:
        with pytest.raises(ValueError, match="codes"):
            decoder.decode(codes, decoder.initial(), last=False, noise=None)


@pytest.mark.parametrize("name", ["config.json", "pytorch_model.bin"])
def test_a_missing_file_is_named_with_the_cure(folder: Path, name: str):
    (folder / name).unlink()
    with pytest.raises(BadCodec, match=f"{name} is missing; the codec's folder needs config.json"):
        load_snac(folder)


@pytest.mark.parametrize("name", ["config.json", "pytorch_model.bin"])
@pytest.mark.parametrize("content", [b"", b"[]", b"\x80\x04nonsense", b"\xff\xfe"])
def test_a_file_of_something_else_is_refused(folder: Path, name: str, content: bytes):
    (folder / name).write_bytes(content)
    with pytest.raises(BadCodec, match=name):
        load_snac(folder)


def test_all_wrong_tensors_are_named_at_once(folder: Path):
    change_tensors(
        folder,
        decoder__model__0__bias=None,
        decoder__model__1__bias=torch.zeros(5),
        decoder__model__99__bias=torch.zeros(5),
        quantizer__quantizers__0__codebook__weight=torch.zeros(4096, 8, dtype=torch.int64),
    )
    with pytest.raises(BadCodec) as refused:
        load_snac(folder)
    said = str(refused.value)
    assert "1 missing: decoder.model.0.bias" in said
    assert "1 unexpected: decoder.model.99.bias" in said
    assert "1 of the wrong shape: decoder.model.1.bias 5 instead of 32" in said
    assert "1 not of a floating type: quantizer.quantizers.0.codebook.weight torch.int64" in said


def test_a_codec_with_local_attention_is_refused_by_name(folder: Path):
    change_config(folder, attn_window_size=32)
    with pytest.raises(BadCodec, match="attn_window_size is 32"):
        load_snac(folder)


@pytest.mark.parametrize("changes", [{"colour": "red"}, {"decoder_rates": []}, {"vq_strides": None}])
def test_a_configuration_of_something_else_is_refused(folder: Path, changes: dict[str, object]):
    change_config(folder, **changes)
    with pytest.raises(BadCodec, match="config.json"):
        load_snac(folder)


def test_a_codec_without_orpheus_frames_is_refused():
    with pytest.raises(BadCodec, match=r"vq_strides are \[8, 4, 2, 1\]"):
        StreamingDecoder(tiny(vq_strides=[8, 4, 2, 1]))


def test_the_older_layout_of_saved_files_is_read_too(folder: Path):
    path = folder / "pytorch_model.bin"
    torch.save(torch.load(path, weights_only=True), path, _use_new_zipfile_serialization=False)
    assert torch.equal(whole(golden_frames, by=StreamingDecoder(load_snac(folder))), whole(golden_frames))


def test_only_the_half_that_speaks_is_kept_and_in_plain_weights():
    names = [name for name, _ in codec.named_parameters()]
    assert not [name for name in names if name.startswith("encoder.") or "parametrizations" in name]
    assert not any(parameter.requires_grad for parameter in codec.parameters())


def test_half_the_precision_is_still_the_same_speech():
    half = StreamingDecoder(load_snac(GOLDEN / "snac", dtype=torch.bfloat16))
    sound = whole(golden_frames, by=half)
    assert sound.dtype == torch.float32
    assert float((sound - whole(golden_frames)).square().mean().sqrt()) < 0.05


# Other geometries


def tiny(**changes: object) -> SNAC:
    torch.manual_seed(0)
    config = {
        "sampling_rate": 8000, "encoder_dim": 2, "encoder_rates": [2, 4], "decoder_dim": 16,
        "decoder_rates": [4, 2], "attn_window_size": None, "codebook_size": 4096, "codebook_dim": 4,
        "vq_strides": [4, 2, 1], "noise": True, "depthwise": True,
    }  # fmt: skip
    return SNAC(**(config | changes)).eval()


@pytest.mark.parametrize(
    "changes",
    [{}, {"decoder_rates": [3, 5]}, {"decoder_rates": [7, 2, 9]}, {"depthwise": False}, {"noise": False}],
    ids=str,
)
def test_geometry_is_read_from_the_modules(changes: dict[str, Any]):
    stream = StreamingDecoder(tiny(**changes))
    frames = random_frames(30)
    expected = package_says(tiny(**changes), frames)
    state = stream.initial()
    sounds: list[Tensor] = []
    for place in range(30):
        sound, state = stream.decode(frames[place : place + 1], state, last=place == 29, noise=None)
        sounds.append(sound)
        if place < 29:
            assert sum(map(len, sounds)) == stream.samples_after(place + 1)
    assert worst(torch.cat(sounds), expected) < ROUNDING
