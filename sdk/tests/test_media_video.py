"""Video as it comes: the frames that were asked for, at their times, or a refusal that says why."""

import io
import sys
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walkserve_sdk import BadRequest, MediaTooLarge
from walkserve_sdk.media.limits import VideoLimits
from walkserve_sdk.media.sampling import Ends, Rate, Sampling, Spread, Step
from walkserve_sdk.media.video import VideoInfo, read_video, video_info

STEP = 12  # of brightness from one frame to the next: a frame tells its number
KINDS = {
    "mp4": ("libx264", "yuv420p"),
    "mov": ("libx264", "yuv420p"),
    "webm": ("libvpx", "yuv420p"),
    "matroska": ("libx264", "yuv420p"),
    "avi": ("mpeg4", "yuv420p"),
    "gif": ("gif", "rgb8"),
}


def film(
    kind: str = "mp4",
    count: int = 12,
    size: tuple[int, int] = (64, 48),
    *,
    times: list[int] | None = None,
    codec: str | None = None,
    format: str | None = None,
    rotation: int = 0,
    sound: bool = False,
    corner: bool = False,
    **options: str,
) -> bytes:
    """A video whose frame ``i`` is grey ``i * STEP``, shown from ``times[i]`` tenths of a second on."""
    out = io.BytesIO()
    codec, format = codec or KINDS[kind][0], format or KINDS[kind][1]
    with av.open(out, "w", format=kind) as container:
        stream = container.add_stream(codec, rate=10, options=options)
        stream.width, stream.height, stream.pix_fmt = *size, format
        stream.codec_context.time_base = Fraction(1, 10)
        if rotation:
            stream.set_display_rotation(rotation)
        voice = container.add_stream("aac", rate=8000, layout="mono") if sound else None
        container.start_encoding()
        for index in range(count):
            pixels = np.full((size[1], size[0], 3), index % 21 * STEP, np.uint8)
            if corner:
                pixels[: size[1] // 2, : size[0] // 2] = 255
            frame = av.VideoFrame.from_ndarray(pixels, "rgb24").reformat(format=format)
            frame.pts, frame.time_base = (times or range(count))[index], Fraction(1, 10)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
        if voice is not None:
            silence = av.AudioFrame.from_ndarray(np.zeros((1, 8000), np.float32), "fltp", "mono")
            silence.sample_rate = 8000
            container.mux(voice.encode(silence))
            container.mux(voice.encode(None))
    return out.getvalue()


def numbers(frames: np.ndarray) -> list[int]:
    """Which frames of a ``film`` these are."""
    return [round(float(each) / STEP) for each in frames.reshape(len(frames), -1).mean(axis=1)]


# --- what is read ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_file_gives_all_its_frames_at_their_times(kind: str) -> None:
    clip = read_video(film(kind), Sampling())
    assert (clip.frames.dtype, clip.frames.shape) == (np.uint8, (12, 48, 64, 3))
    np.testing.assert_allclose(clip.times_s, np.arange(12) / 10, atol=1e-9)
    assert numbers(clip.frames) == list(range(12))


@pytest.mark.parametrize("codec", ["libx264", "libx265", "libvpx-vp9", "libsvtav1", "mpeg4"])
def test_codecs_of_our_day_are_read(codec: str) -> None:
    assert numbers(read_video(film("matroska", 6, codec=codec), Sampling()).frames) == list(range(6))


@pytest.mark.parametrize("kind", KINDS)
def test_the_header_says_size_and_duration(kind: str) -> None:
    info = video_info(film(kind))
    assert info == VideoInfo(
        64, 48, None if kind in ("webm", "matroska") else 12, pytest.approx(1.2, abs=0.001)
    )


def test_chosen_frames_are_those_of_the_whole_film_whichever_way_they_are_chosen() -> None:
    data = film(count=20)
    every = read_video(data, Sampling()).frames
    for sampling in (
        Spread(5),
        Ends(5),
        Step(3, frames=4),
        Rate(4),
        Rate(25),
        Spread(3, start_s=0.7, end_s=1.4),
    ):
        clip = read_video(data, sampling)
        index = sampling.choose(np.arange(20) / 10, 2.0, 1e-6)
        np.testing.assert_array_equal(clip.frames, every[index])
        np.testing.assert_allclose(clip.times_s, index / 10, atol=1e-6)


GOPS = {
    "closed, with frames that look ahead": {"x264-params": "keyint=6:min-keyint=6:bframes=2:scenecut=0"},
    "open": {"x264-params": "keyint=6:min-keyint=6:bframes=3:open-gop=1:scenecut=0:b-adapt=0"},
    "none": {"g": "1"},
    "one for all": {"g": "999"},
}


@pytest.mark.parametrize("gops", GOPS)
def test_frames_decoded_from_a_key_frame_are_those_of_the_whole_film(gops: str) -> None:
    data = film(count=40, **GOPS[gops])
    every = read_video(data, Sampling()).frames
    for start in range(0, 40, 3):
        clip = read_video(data, Step(7, frames=2, start_s=start / 10))
        np.testing.assert_array_equal(clip.frames, every[start : start + 8 : 7])


def test_only_the_pieces_that_hold_chosen_frames_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = film(count=60, g="6", bf="0")
    seen = []
    from walkserve_sdk.media import video

    fed = video._fed
    monkeypatch.setattr(video, "_fed", lambda *given: (seen.append(frame) or frame for frame in fed(*given)))
    clip = read_video(data, Sampling(start_s=4.4, end_s=4.6))
    assert clip.times_s.tolist() == pytest.approx([4.4, 4.5])
    assert [round(frame.time * 10) for frame in seen] == [42, 43, 44, 45]


def test_a_rate_that_varies_is_told_by_the_times() -> None:
    times = [0, 1, 2, 10, 11, 20]
    for kind in ("mp4", "webm"):
        data = film(kind, 6, times=times)
        clip = read_video(data, Sampling())
        np.testing.assert_allclose(clip.times_s, np.array(times) / 10, atol=1e-3)
        rated = read_video(data, Rate(2, end_s=2.0))
        assert numbers(rated.frames) == [0, 2, 3, 4]


@pytest.mark.parametrize("rotation", [90, 180, -90])
@pytest.mark.parametrize("kind", ["mp4", "matroska"])
def test_a_film_that_a_player_turns_is_turned(kind: str, rotation: int) -> None:
    plain = read_video(film(kind, 2, corner=True), Sampling()).frames
    data = film(kind, 2, corner=True, rotation=rotation)
    frames = read_video(data, Sampling()).frames
    np.testing.assert_array_equal(frames, np.rot90(plain, rotation // 90, axes=(1, 2)))
    assert (video_info(data).width, video_info(data).height) == (64, 48)  # as it is stored


@pytest.mark.parametrize("size", [(17, 13), (2, 2), (1, 1), (100, 2), (63, 65)])
def test_odd_sizes_are_read(size: tuple[int, int]) -> None:
    data = film("avi", 3, size, codec="png", format="rgb24")
    assert read_video(data, Sampling()).frames.shape == (3, size[1], size[0], 3)


def test_one_frame_is_a_video_and_none_is_not() -> None:
    for kind in KINDS:
        clip = read_video(film(kind, 1), Spread(64))
        assert (clip.frames.shape, clip.times_s.tolist()) == ((1, 48, 64, 3), [0.0]), kind
    for kind in ("mp4", "webm", "matroska"):
        with pytest.raises(
            BadRequest, match="video: (the file has no video track|the .* file cannot be read)"
        ):
            read_video(film(kind, 0), Spread(64))


def test_sound_is_no_matter_and_a_file_of_sound_alone_is_no_video() -> None:
    clip = read_video(film(sound=True), Spread(3))
    assert numbers(clip.frames) == [0, 4, 8]
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as container:
        voice = container.add_stream("aac", rate=8000, layout="mono")
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 8000), np.float32), "fltp", "mono")
        silence.sample_rate = 8000
        container.mux([*voice.encode(silence), *voice.encode(None)])
    with pytest.raises(BadRequest, match="video: the file has no video track"):
        video_info(out.getvalue())


def test_what_is_transparent_in_a_gif_lets_white_through() -> None:
    from PIL import Image

    out = io.BytesIO()
    clear, red = Image.new("RGBA", (8, 8), (0, 0, 0, 0)), Image.new("RGBA", (8, 8), (255, 0, 0, 255))
    clear.paste(red.crop((0, 0, 4, 8)))
    clear.save(out, "GIF", save_all=True, append_images=[red], duration=100, disposal=2)
    frames = read_video(out.getvalue(), Sampling()).frames
    assert frames.shape == (2, 8, 8, 3)
    assert (frames[0, 0, 0].tolist(), frames[0, 0, 7].tolist()) == ([255, 0, 0], [255, 255, 255])


def test_frames_are_made_smaller_one_by_one_and_only_that_is_kept() -> None:
    seen = []

    def quarter(pixels: np.ndarray) -> np.ndarray:
        seen.append(pixels.shape)
        return pixels[::2, ::2]

    limits = VideoLimits(kept_pixels=4 * 24 * 32)
    clip = read_video(film(), Spread(4), limits, resize=quarter)
    assert clip.frames.shape == (4, 24, 32, 3)
    assert seen == [(48, 64, 3)] * 4
    with pytest.raises(MediaTooLarge, match="5 frames of 32 x 24 are 3,840 pixels, and 3,072 are the most"):
        read_video(film(), Spread(5), limits, resize=quarter)


# --- what is refused ------------------------------------------------------------------------------------


def test_each_limit_is_told_with_both_numbers_and_nothing_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def decoded(*arguments: object) -> None:
        raise AssertionError("something was decoded")

    monkeypatch.setattr("walkserve_sdk.media.video._decoded", decoded)
    data = film()
    for limits, message in (
        (VideoLimits(size_bytes=99), f"the file has {len(data):,} bytes, and 99 are the most it may have"),
        (VideoLimits(pixels=3071), "64 x 48 are 3,072 pixels a frame, and 3,071 are the most it may have"),
        (VideoLimits(duration_s=1.1), "it takes 1.2 s, and 1.1 s are the most it may; cut it"),
        (VideoLimits(frames=11), "it has more than 11 frames, the most it may have"),
        (VideoLimits(kept_pixels=9215), "3 frames of 64 x 48 are 9,216 pixels, and 9,215 are the most"),
    ):
        with pytest.raises(MediaTooLarge, match=f"inputs.0.: {message}") as refused:
            read_video(data, Spread(3), limits, place="inputs[0]")
        assert (refused.value.status, refused.value.param) == (413, "inputs[0]")
        if limits.kept_pixels > 10_000:  # that one depends on the sampling
            with pytest.raises(MediaTooLarge):
                video_info(data, limits)


def test_a_film_without_a_length_in_its_header_is_measured_by_its_packets() -> None:
    out = io.BytesIO()
    out.seekable = lambda: False  # as a browser records: nothing is filled in afterwards
    with av.open(out, "w", format="webm") as container:
        stream = container.add_stream("libvpx", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for _ in range(12):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8), "rgb24")))
        container.mux(stream.encode(None))
    data = out.getvalue()
    assert video_info(data) == VideoInfo(64, 48, None, None)
    assert len(read_video(data, Sampling()).frames) == 12
    for limits, message in (
        (VideoLimits(duration_s=1.1), "it takes 1.2 s"),
        (VideoLimits(frames=11), "more than 11 frames"),
    ):
        with pytest.raises(MediaTooLarge, match=message):
            read_video(data, Sampling(), limits)


def peak_bytes() -> int:
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", ["mp4", "webm", "gif"])
def test_huge_frames_in_a_tiny_file_are_refused_and_take_no_memory(kind: str) -> None:
    data = film(kind, 1, (7000, 7000))
    assert len(data) < 100_000
    video_info(film(kind))
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = resident_bytes()
    for read in (video_info, lambda data: read_video(data, Spread(2))):
        with pytest.raises(MediaTooLarge, match="7000 x 7000 are 49,000,000 pixels a frame"):
            read(data)
    assert peak_bytes() - before < 8 * 1024 * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_long_film_takes_the_memory_of_the_frames_that_are_kept() -> None:
    data = film(count=200, size=(640, 480), g="50")
    read_video(data, Spread(1))
    Path("/proc/self/clear_refs").write_text("5")
    before = resident_bytes()
    frames = read_video(data, Spread(8)).frames
    assert peak_bytes() - before < frames.nbytes + 24 * 1024 * 1024  # all would be 184 MB


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_file_cut_off_is_refused_also_by_its_header(kind: str, share: float) -> None:
    data = film(kind, 30)
    cut = data[: int(len(data) * share)]
    with pytest.raises(BadRequest, match="video: the file is cut off; send it anew, whole"):
        video_info(cut)
    with pytest.raises(BadRequest, match="video: the file is cut off"):
        read_video(cut, Spread(4))
    assert len(read_video(data, Spread(4)).frames) == 4


def test_a_file_that_begins_with_its_index_and_is_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    path.write_bytes(film(count=30))
    with (
        av.open(path) as given,
        av.open(tmp_path / "fast.mp4", "w", options={"movflags": "faststart"}) as out,
    ):
        stream = out.add_stream_from_template(given.streams.video[0])
        for packet in given.demux(video=0):
            if packet.size:
                packet.stream = stream
                out.mux(packet)
    data = (tmp_path / "fast.mp4").read_bytes()
    assert data.find(b"moov") < data.find(b"mdat")
    assert len(read_video(data, Sampling()).frames) == 30
    with pytest.raises(BadRequest, match="cut off"):
        read_video(data[:-20], Sampling())


@pytest.mark.parametrize("behind", [bytes(40), b"\xff" * 40])
def test_what_was_put_behind_a_file_is_no_harm(behind: bytes) -> None:
    for kind in ("mp4", "avi", "gif"):
        assert len(read_video(film(kind) + behind, Spread(4)).frames) == 4


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        bytes(100),
        b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/x.ts\n",
        b"ffconcat version 1.0\nfile /etc/passwd\n",
        b'<?xml version="1.0"?><MPD></MPD>',
        b"\x89PNG\r\n\x1a\n" + bytes(40),
    ],
)
def test_what_is_no_video_is_refused_and_playlists_are_none(data: bytes) -> None:
    with pytest.raises(BadRequest, match="video: a video is a file of MP4, WebM and Matroska, AVI, GIF"):
        read_video(data, Spread(2))


@pytest.mark.parametrize(
    "data", [b"\0\0\0\x10ftypisom\0\0\0\0", b"\x1a\x45\xdf\xa3\x80" * 9, b"GIF89a" + bytes(50)]
)
def test_what_only_begins_like_a_video_is_refused(data: bytes) -> None:
    with pytest.raises(BadRequest, match="^video: "):
        read_video(data, Spread(2))


def test_a_window_without_a_frame_is_refused_with_the_videos_end() -> None:
    with pytest.raises(
        BadRequest, match=r"none of its 12 frames lies between 7 s and 1.2 s; it is over at 1.2 s"
    ):
        read_video(film(), Spread(2, start_s=7))


WHOLE = {kind: film(kind, 5) for kind in KINDS}


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(sorted(WHOLE)),
    cut=st.just(0) | st.integers(0, 6000),
    at=st.integers(0, 6000),
    flips=st.binary(max_size=8),
)
def test_whatever_is_broken_is_a_clip_or_a_refusal_and_nothing_else(
    kind: str, cut: int, at: int, flips: bytes
) -> None:
    data = bytearray(WHOLE[kind])
    for offset, flip in enumerate(flips):
        data[(at + offset) % len(data)] ^= flip
    limits = VideoLimits(pixels=1 << 16, kept_pixels=1 << 20)
    try:
        clip = read_video(bytes(data[: len(data) - cut]), Spread(3), limits)
    except BadRequest as refused:
        assert str(refused).startswith("video: ")
    else:
        assert clip.frames.dtype == np.uint8 and len(clip.frames) == len(clip.times_s) <= 3


@settings(max_examples=15, deadline=None)
@given(width=st.integers(1, 40), height=st.integers(1, 40), count=st.integers(1, 6), frames=st.integers(1, 8))
def test_any_size_and_count_is_read(width: int, height: int, count: int, frames: int) -> None:
    clip = read_video(film("avi", count, (width, height), codec="png", format="rgb24"), Spread(frames))
    assert clip.frames.shape == (min(count, frames), height, width, 3)
