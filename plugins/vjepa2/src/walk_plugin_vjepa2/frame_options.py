"""Which frames of a video are taken: options that every family here has, and what they come to. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from walkserve_sdk import BadRequest, Model, Request

if TYPE_CHECKING:
    from walkserve_sdk.media.sampling import Sampling

_NAMES = ("num_frames", "sampling", "fps", "step", "start_s", "end_s")


@dataclass(frozen=True)
class FrameOptions(Model.Options):
    """Of a video; images and arrays are taken as they come.

    Args:
        num_frames: How many frames are taken at most; left out, as many as the model takes, and of a robot
            no more than there are states.
        sampling: They are spread evenly: "spread" as transformers' processors do, frame i being the
            (i N // num_frames)-th of N, or "ends", the first and the last among them.
        fps: Instead, so many of each second, by the clock, whatever the video's own rate.
        step: Instead, each so many-th frame, by number.
        start_s: Nothing before it is taken, in seconds from the first frame.
        end_s: Nothing from it on is; the video's end when left out.
    """

    num_frames: Annotated[int, Meta(ge=1, le=4096)] | None = None
    sampling: Literal["spread", "ends"] = "spread"
    fps: Annotated[float, Meta(gt=0, le=1000)] | None = None
    step: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    start_s: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    end_s: Annotated[float, Meta(gt=0, le=1e6)] | None = None


def check_frame_options(request: Request) -> None:
    """Refuse what does not go together.

    Raises:
        BadRequest: With the option to change as ``param``.
    """
    given = [name for name in _NAMES if name in request.given]
    if given and not any(part.kind == "video" for part in request.parts):
        raise BadRequest(
            f"{given[0]} says which frames of a video are taken, and no video was sent; leave it out",
            param=given[0],
        )
    ways = [name for name in ("sampling", "fps", "step") if name in given]
    if len(ways) > 1:
        raise BadRequest(f"{' and '.join(ways)} are ways to choose frames; say one of them", param=ways[1])
    options = request.options
    if options.end_s is not None and options.end_s <= options.start_s:
        raise BadRequest(
            f"end_s is {options.end_s:g}, and it is more than start_s, here {options.start_s:g}",
            param="end_s",
        )


def sampled(options: Any, *, most: int, enough: int | None = None) -> Sampling:
    """What ``options`` come to.

    Args:
        most: Frames that the model takes.
        enough: How many are taken where the client does not say; ``most`` where None.

    Raises:
        BadRequest: More are asked for than the model takes.
    """
    from walkserve_sdk.media.sampling import Ends, Rate, Spread, Step

    if options.num_frames is not None and options.num_frames > most:
        raise BadRequest(
            f"num_frames is {options.num_frames}, and this model takes {most}", param="num_frames"
        )
    frames = options.num_frames or min(most, enough or most)
    within = {"start_s": options.start_s, "end_s": options.end_s}
    if options.fps is not None:
        return Rate(options.fps, frames=frames, **within)
    if options.step is not None:
        return Step(options.step, frames=frames, **within)
    return (Ends if options.sampling == "ends" else Spread)(frames, **within)
