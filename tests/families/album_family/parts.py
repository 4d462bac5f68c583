"""The component of the family that looks at things."""

from __future__ import annotations

from typing import Any

from walkserve_sdk import Batch, Gives
from walkserve_sdk.media.images import image_size, read_image
from walkserve_sdk.media.sampling import Spread
from walkserve_sdk.media.video import read_video, video_info


class Viewer:
    """Decodes media."""

    @classmethod
    def load(cls, checkpoint: Any, *, device: Any, dtype: Any) -> Viewer:
        return cls()

    def measure(self, batch: Batch) -> Gives:
        """By their headers."""
        sizes = []
        for image, video in zip(batch.values("image"), batch.values("video"), strict=True):
            told = []
            if image is not None:
                told.append("{}x{}".format(*image_size(image)))
            if video is not None:
                info = video_info(video)
                told.append(f"{info.width}x{info.height}")
            sizes.append(" ".join(told))
        return {"sizes": sizes}

    def look(self, batch: Batch) -> Gives:
        told = []
        for data in batch.values("image"):
            pixels = read_image(data)
            height, width, _ = pixels.shape
            told.append(f"{width}x{height} {pixels[height // 2, width // 2].tolist()}\n")
        return {"picture": told}

    def watch(self, batch: Batch) -> Gives:
        told = []
        for data, options in zip(batch.values("video"), batch.options, strict=True):
            clip = read_video(data, Spread(options.frames))
            count, height, width, _ = clip.frames.shape
            times = [round(float(time), 3) for time in clip.times_s]
            told.append(f"{count} of {width}x{height} at {times}\n")
        return {"clip": told}
