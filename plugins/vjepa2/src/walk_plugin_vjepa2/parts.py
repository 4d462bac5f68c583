"""What a request sent, sorted: frames, from whichever kind of part they come, and tensors by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from walk_plugin_vjepa2.frame_options import sampled
from walkserve_sdk import BadRequest
from walkserve_sdk.arrays import read_tensors
from walkserve_sdk.errors import did_you_mean
from walkserve_sdk.media.images import read_image
from walkserve_sdk.media.video import read_video

Pixels = NDArray[np.uint8]
Keep = Callable[[Pixels], Pixels]
"""What is kept of a frame, (height, width, 3) both before and after."""

FRAMES, GOAL = "frames", "goal"
"""What images may be called: those without a name are frames too."""


@dataclass(frozen=True)
class Sent:
    """The parts of one request.

    Args:
        images: Files, by the names of their parts; ``""`` without one.
        videos: Files.
        tensors: By name, out of all files.
    """

    images: Mapping[str, Sequence[bytes]]
    videos: Sequence[bytes]
    tensors: Mapping[str, NDArray[Any]]

    def frames(
        self, keep: Keep, options: Any, *, most: int, enough: int | None = None
    ) -> list[Pixels] | None:
        """The frames that were sent as images, one each, as a video, or as the tensor ``frames``; else None.

        Args:
            options: Which frames of a video are taken.
            most: Of a video no more are taken; more images or frames are refused.
            enough: Of a video no more are taken unless its sender says how many.
        """
        named = self.images.get(FRAMES, ())
        images, place = (named, FRAMES) if named else (self.images.get("", ()), "image")
        ways = {
            "images": self.images.get("", ()),
            "images named 'frames'": named,
            "a video": self.videos,
            "the tensor 'frames'": [self.tensors[name] for name in ("frames",) if name in self.tensors],
        }
        given = [way for way, sent in ways.items() if sent]
        if len(given) > 1:
            raise BadRequest(
                f"frames are given as {' and as '.join(given)}; give them in one way", param=FRAMES
            )
        if len(self.videos) > 1:
            raise BadRequest(f"one video is taken, {len(self.videos)} were given", param="video")
        if self.videos:
            sampling = sampled(options, most=most, enough=enough)
            return list(read_video(self.videos[0], sampling, place="video", resize=keep).frames)
        tensor = self.tensors.get("frames")
        count = len(images) if tensor is None else len(_pixels("frames", tensor, 4))
        if count > most:
            raise BadRequest(
                f"{count} frames are given, and this model takes {most}; send fewer, or a video, of which "
                "as many are taken",
                param=place if images else FRAMES,
            )
        if tensor is not None:
            return [keep(frame) for frame in tensor]
        return [keep(read_image(each, place=place)) for each in images] or None

    def goal(self, keep: Keep) -> Pixels | None:
        """The frame to arrive at: the image named "goal", or the tensor ``goal_frame``; else None."""
        images = self.images.get(GOAL, ())
        tensor = self.tensors.get("goal_frame")
        if len(images) + (tensor is not None) > 1:
            raise BadRequest(
                "there is one goal; give one image named 'goal', or the tensor 'goal_frame'", param=GOAL
            )
        if tensor is not None:
            return keep(_pixels("goal_frame", tensor, 3))
        return keep(read_image(images[0], place=GOAL)) if images else None

    def numbers(self, name: str, *shape: int | None) -> NDArray[np.float32] | None:
        """A tensor as float32, or None.

        Args:
            shape: Its axes; None for one of any length.

        Raises:
            BadRequest: It has another shape, or a number in it is not finite.
        """
        found = self.tensors.get(name)
        if found is None:
            return None
        axes = ", ".join("…" if axis is None else str(axis) for axis in shape)
        fits = len(found.shape) == len(shape) and all(
            axis is None or axis == there for axis, there in zip(shape, found.shape, strict=True)
        )
        if not fits:
            raise BadRequest(
                f"the tensor {name!r} is of shape {list(found.shape)}, and this model takes [{axes}]",
                param=name,
            )
        numbers = found.astype(np.float32)
        if not np.isfinite(numbers).all():
            raise BadRequest(f"the tensor {name!r} has numbers that are not finite", param=name)
        return numbers

    def places(self, name: str, count: int) -> NDArray[np.int64] | None:
        """A tensor of token indices below ``count``, or None."""
        found = self.tensors.get(name)
        if found is None:
            return None
        if found.ndim != 1 or not found.size or found.dtype.kind not in "iu":
            raise BadRequest(
                f"the tensor {name!r} is a list of token indices, whole numbers in one axis, not "
                f"{found.dtype} of shape {list(found.shape)}",
                param=name,
            )
        low, high = int(found.min()), int(found.max())
        if low < 0 or high >= count:
            raise BadRequest(
                f"the tensor {name!r} has indices from {low} to {high}, and the tokens of this clip are 0 to "
                f"{count - 1}",
                param=name,
            )
        return found.astype(np.int64)


def sort_parts(
    kinds: Sequence[str],
    names: Sequence[str],
    media: Sequence[bytes],
    *,
    images: Iterable[str],
    tensors: Iterable[str],
) -> Sent:
    """Sort the parts of a request.

    Args:
        images: Names that an image may have.
        tensors: Names that a tensor may have.

    Raises:
        BadRequest: A name that is not known here, or a tensor that is given twice.
    """
    known_images, known_tensors = tuple(images), tuple(tensors)
    found_images: dict[str, list[bytes]] = {}
    found_tensors: dict[str, NDArray[Any]] = {}
    videos: list[bytes] = []
    for kind, name, data in zip(kinds, names, media, strict=True):
        match kind:
            case "image":
                if name not in known_images:
                    raise BadRequest(
                        f"an image has no name here{_or_one_of(known_images)}, not {name!r}", param="image"
                    )
                found_images.setdefault(name, []).append(data)
            case "video":
                if name:
                    raise BadRequest(f"a video has no name here, not {name!r}", param="video")
                videos.append(data)
            case _:
                for tensor, array in read_tensors(data, name).items():
                    if tensor not in known_tensors:
                        raise _unknown(tensor, known_tensors)
                    if tensor in found_tensors:
                        raise BadRequest(f"the tensor {tensor!r} is given twice", param="tensor")
                    found_tensors[tensor] = array
    return Sent(found_images, videos, found_tensors)


def _unknown(name: str, known: Sequence[str]) -> BadRequest:
    what = f"there is no tensor {name!r}" if name else "the part with a .npy file must have a name"
    return BadRequest(f"{what}{did_you_mean(name, known)}", param="tensor")


def _or_one_of(names: Sequence[str]) -> str:
    named = [repr(name) for name in names if name]
    return f", or is {' or '.join(named)}" if named else ""


def _pixels(name: str, tensor: NDArray[Any], axes: int) -> Pixels:
    if tensor.dtype != np.uint8 or tensor.ndim != axes or tensor.shape[-1] != 3 or not tensor.size:
        shape = "[frames, height, width, 3]" if axes == 4 else "[height, width, 3]"
        raise BadRequest(
            f"the tensor {name!r} is {shape} of uint8, not {tensor.dtype} of shape {list(tensor.shape)}",
            param=name,
        )
    return tensor
