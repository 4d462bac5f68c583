"""Video: the frames of MP4, WebM, Matroska, AVI and GIF files that are asked for, upright, with their times.

    pass 1, packets only          which frames there are, and when        ->  the sampling chooses
    pass 2, packets that matter   each chosen frame needs what lies between it and the key frame before it

    in decoding order   K . . . . K . . . . . K . . . . K . .       K a key frame
    chosen                              *         *
    decoded                       K . . *     K . *

So memory is that of the frames that are kept, and time that of the pieces they lie in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from walkserve_sdk.errors import BadRequest, MediaTooLarge, WalkserveError
from walkserve_sdk.media.containers import FORMATS, format_of, gif_screen, is_cut_off
from walkserve_sdk.media.limits import VIDEO_LIMITS, VideoLimits
from walkserve_sdk.media.sampling import Indices, Sampling

if TYPE_CHECKING:
    import av
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

Pixels = NDArray[np.uint8]
MOST_SLACK_S = 0.005


class Clip(NamedTuple):
    """Frames of a video.

    Args:
        frames: uint8 ``(frames, height, width, 3)``, RGB.
        times_s: ``(frames,)``: when each is shown, counted from the first frame of the video.
    """

    frames: Pixels
    times_s: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """What a header says.

    Args:
        width: Of the frames as they are stored; a player may turn them.
        frames: How many there are; None where only counting would tell (WebM).
        duration_s: None where it was recorded live.
    """

    width: int
    height: int
    frames: int | None
    duration_s: float | None


def video_info(data: bytes, limits: VideoLimits = VIDEO_LIMITS, *, place: str = "video") -> VideoInfo:
    """What the header of a video says, checked.

    Args:
        place: What it is called in messages.

    Raises:
        MediaTooLarge: Beyond a limit.
        BadRequest: It is no video, broken so early, or cut off.
    """
    with _opened(data, limits, place) as (container, stream):
        return _info(container, stream)


def read_video(
    data: bytes,
    sampling: Sampling,
    limits: VideoLimits = VIDEO_LIMITS,
    *,
    place: str = "video",
    resize: Callable[[Pixels], Pixels] | None = None,
) -> Clip:
    """The frames of a video that ``sampling`` chooses.

    They are turned as the file says a player has to, by multiples of 90 degrees; what is transparent lets
    white through. Sound is not read; pixels that are not square stay as they are.

    Args:
        place: What the video is called in messages.
        resize: Is given each chosen frame, ``(height, width, 3)``, as soon as it is decoded, and returns what
            is kept of it: all of one shape.

    Raises:
        MediaTooLarge: Beyond a limit; what headers and packets say is checked before anything is decoded.
        BadRequest: It is no video, broken, cut off, or has no frame where the sampling looks.
    """
    with _opened(data, limits, place) as (container, stream):
        info = _info(container, stream)
        table = _table(container, stream, limits, place)
    chosen = sampling.choose(table.times_s, table.end_s, table.slack_s)
    if not len(chosen):
        raise BadRequest(
            f"{place}: none of its {len(table.times_s)} frames lies between {sampling.start_s:g} s and"
            f" {_shown_end(sampling, table)}",
            param=place,
        )
    if resize is None:
        _check_kept(len(chosen), info.height, info.width, limits, place)
    wanted, rows = np.unique(chosen, return_inverse=True)
    kept: Pixels | None = None
    count = 0
    with _opened(data, limits, place) as (container, stream):
        for frame in _decoded(container, stream, table, wanted):
            pixels = _rgb(frame) if resize is None else resize(_rgb(frame))
            if kept is None:
                height, width = pixels.shape[:2]
                _check_kept(len(chosen), height, width, limits, place)
                kept = np.empty((len(chosen), *pixels.shape), np.uint8)
            elif pixels.shape != kept.shape[1:]:
                raise BadRequest(
                    f"{place}: its frames change their size, from {kept.shape[1:3]} to {pixels.shape[:2]}",
                    param=place,
                )
            kept[rows == count] = pixels
            count += 1
    if kept is None or count < len(wanted):
        raise BadRequest(
            f"{place}: {len(wanted) - count} of {len(wanted)} frames cannot be decoded; the file is broken,"
            " send it anew",
            param=place,
        )
    return Clip(kept, table.times_s[chosen])


# --- opening ------------------------------------------------------------------------------------------


@contextmanager
def _opened(data: bytes, limits: VideoLimits, place: str) -> Iterator[tuple[InputContainer, VideoStream]]:
    """The file and its picture, within the limits by its header; what goes wrong is its sender's fault."""
    if len(data) > limits.size_bytes:
        raise MediaTooLarge(
            f"{place}: the file has {len(data):,} bytes, and {limits.size_bytes:,} are the most it may have",
            param=place,
        )
    kind = format_of(data)
    if kind is None:
        what = "nothing" if not data else "none of them"
        raise BadRequest(
            f"{place}: a video is a file of {', '.join(FORMATS.values())}; this is {what}", param=place
        )
    if is_cut_off(kind, data):
        raise BadRequest(f"{place}: the file is cut off; send it anew, whole", param=place)
    if kind == "gif":  # FFmpeg asks the codec, which refuses a size without telling it
        _check_size(*gif_screen(data), limits, place)
    import av

    # The format is named, so that no other is tried; no address in the file is followed. FFmpeg would decode
    # some frames to see what the header leaves open: codecs are told to pass over all, and large ones anyway.
    size = {"max_pixels": str(limits.pixels)}
    options = {"protocol_whitelist": "none", "skip_frame": "all", **size}
    try:
        with av.open(BytesIO(data), "r", format=kind, options=options) as container:
            stream = _picture(container, place)
            _check_header(_info(container, stream), limits, place)
            stream.codec_context.options = size
            stream.codec_context.thread_count = 1  # workers share the cores out
            yield container, stream
    except WalkserveError:
        raise
    except (av.FFmpegError, ValueError, IndexError, OverflowError, MemoryError) as error:
        raise BadRequest(
            f"{place}: the {FORMATS[kind]} file cannot be read ({type(error).__name__}); it is broken, or of"
            " a codec that is not known here",
            param=place,
        ) from error


def _picture(container: InputContainer, place: str) -> VideoStream:
    """The video track; a cover is none."""
    from av.stream import Disposition

    for stream in container.streams.video:
        if not stream.disposition & Disposition.attached_pic and stream.codec_context is not None:
            return stream
    raise BadRequest(f"{place}: the file has no video track", param=place)


def _info(container: InputContainer, stream: VideoStream) -> VideoInfo:
    duration_s = None
    if stream.duration is not None and stream.time_base is not None:
        duration_s = float(stream.duration * stream.time_base)
    elif container.duration is not None:
        duration_s = container.duration / 1e6
    return VideoInfo(stream.width, stream.height, stream.frames or None, duration_s)


# --- limits -------------------------------------------------------------------------------------------


def _check_header(info: VideoInfo, limits: VideoLimits, place: str) -> None:
    if not info.width * info.height:
        raise BadRequest(f"{place}: its frames have no size; the file is broken", param=place)
    _check_size(info.width, info.height, limits, place)
    _check_duration(info.duration_s or 0.0, limits, place)
    _check_count(info.frames or 0, limits, place)


def _check_size(width: int, height: int, limits: VideoLimits, place: str) -> None:
    if width * height > limits.pixels:
        raise MediaTooLarge(
            f"{place}: {width} x {height} are {width * height:,} pixels a frame, and {limits.pixels:,} are"
            " the most it may have; make it smaller",
            param=place,
        )


def _check_duration(duration_s: float, limits: VideoLimits, place: str) -> None:
    if duration_s > limits.duration_s:
        raise MediaTooLarge(
            f"{place}: it takes {duration_s:,.1f} s, and {limits.duration_s:g} s are the most it may; cut it",
            param=place,
        )


def _check_count(frames: int, limits: VideoLimits, place: str) -> None:
    if frames > limits.frames:
        raise MediaTooLarge(
            f"{place}: it has more than {limits.frames:,} frames, the most it may have; cut it", param=place
        )


def _check_kept(frames: int, height: int, width: int, limits: VideoLimits, place: str) -> None:
    pixels = frames * height * width
    if pixels > limits.kept_pixels:
        raise MediaTooLarge(
            f"{place}: {frames} frames of {width} x {height} are {pixels:,} pixels, and"
            f" {limits.kept_pixels:,} are the most that are kept; ask for fewer, or make them smaller",
            param=place,
        )


# --- pass 1: which frames there are ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Table:
    """What the packets say.

    Args:
        ticks: Of each packet, in decoding order: when its frame is shown.
        keys: Which packets can be decoded alone, in that order.
        shown: Of each frame, as it is shown, its ticks; ascending.
        times_s: The same in seconds from the first.
        end_s: When the last frame is over.
        slack_s: By how much times may be rounded.
    """

    ticks: list[int]
    keys: list[int]
    shown: NDArray[np.int64]
    times_s: NDArray[np.float64]
    end_s: float
    slack_s: float


def _table(container: InputContainer, stream: VideoStream, limits: VideoLimits, place: str) -> _Table:
    ticks: list[int] = []
    keys: list[int] = []
    shown: dict[int, int] = {}  # ticks -> how long
    for number, packet in enumerate(_packets(container, stream)):
        _check_count(number + 1, limits, place)
        tick = packet.pts if packet.pts is not None else packet.dts
        if tick is None:
            raise BadRequest(f"{place}: its frames have no times; send it as MP4 or WebM", param=place)
        if packet.is_corrupt:
            raise BadRequest(f"{place}: the file is broken in the middle; send it anew, whole", param=place)
        ticks.append(tick)
        if packet.is_keyframe:
            keys.append(number)
        if not packet.is_discard:
            shown[tick] = packet.duration or 0
    if not shown:
        raise BadRequest(f"{place}: it has no frames", param=place)
    order = np.array(sorted(shown), np.int64)
    base = float(stream.time_base or 1)
    times_s = (order - order[0]) * base
    last_s = shown[int(order[-1])] * base
    if not last_s and len(order) > 1:  # as long as the others, on average
        last_s = float(times_s[-1]) / (len(order) - 1)
    end_s = float(times_s[-1]) + (last_s or base)
    _check_duration(end_s, limits, place)
    return _Table(ticks, keys, order, times_s, end_s, min(base / 2, MOST_SLACK_S))


def _packets(container: InputContainer, stream: VideoStream) -> Iterator[av.Packet[Any]]:
    """Those with something in them; a last one is empty."""
    return (packet for packet in container.demux(stream) if packet.size)


def _shown_end(sampling: Sampling, table: _Table) -> str:
    end_s = table.end_s if sampling.end_s is None else min(sampling.end_s, table.end_s)
    return f"{end_s:g} s; it is over at {table.end_s:g} s"


# --- pass 2: decoding what is wanted --------------------------------------------------------------------


def _decoded(
    container: InputContainer, stream: VideoStream, table: _Table, wanted: Indices
) -> Iterator[VideoFrame]:
    """The frames wanted, in order."""
    ticks = {int(table.shown[index]) for index in wanted}
    for frame in _fed(container, stream, _needed(table, ticks)):
        if frame.pts in ticks:
            ticks.discard(frame.pts)
            yield frame


def _needed(table: _Table, ticks: set[int]) -> NDArray[np.bool_]:
    """For each packet, whether these frames need it, up to the last of them."""
    needed = np.zeros(len(table.ticks), bool)
    keys = np.array(table.keys, np.int64)
    for number, tick in enumerate(table.ticks):
        if tick not in ticks:
            continue
        before = int(np.searchsorted(keys, number, side="right")) - 1
        if before > 0 and tick < table.ticks[table.keys[before]]:
            before -= 1  # it is shown before its key frame, and refers to what is before that as well
        needed[table.keys[before] if before >= 0 else 0 : number + 1] = True
    return np.trim_zeros(needed, "b")


def _fed(container: InputContainer, stream: VideoStream, needed: NDArray[np.bool_]) -> Iterator[VideoFrame]:
    codec = stream.codec_context
    is_fed = False
    for packet, is_needed in zip(_packets(container, stream), needed.tolist(), strict=False):
        if is_needed:
            yield from codec.decode(packet)
        elif is_fed:
            yield from codec.decode(None)
            codec.flush_buffers()
        is_fed = is_needed
    yield from codec.decode(None)


def _rgb(frame: VideoFrame) -> Pixels:
    if any(part.is_alpha for part in frame.format.components):
        layer = frame.to_ndarray(format="rgba").astype(np.uint16)
        alpha = layer[..., 3:]
        pixels = ((layer[..., :3] * alpha + (255 - alpha) * 255 + 127) // 255).astype(np.uint8)
    else:
        pixels = np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)
    quarters = round(frame.rotation / 90) % 4  # counterclockwise, as of rot90
    return np.ascontiguousarray(np.rot90(pixels, quarters)) if quarters else pixels
