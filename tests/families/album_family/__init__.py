"""A family that looks at what it is sent: an image and a video, by a component on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from walkserve_sdk import (
    Component,
    Model,
    Node,
    Outcome,
    Output,
    Part,
    Request,
    Text,
    Track,
    Walk,
    WalkGraph,
    track,
)


class Album(Model):
    """Images and videos in; their sizes out, and the colours of their middles."""

    inputs = ("image", "video")

    @dataclass(frozen=True)
    class Options(Model.Options):
        """What a client may choose.

        Args:
            frames: How many frames of a video are looked at.
        """

        frames: Annotated[int, Meta(ge=1)] = 4

    viewer = Component("album_family.parts:Viewer", device="cpu")
    picture = Output(Text())
    clip = Output(Text())

    measure = WalkGraph(Node(viewer, "measure", takes=("image", "video"), gives="sizes"))
    look = WalkGraph(Node(viewer, "look", takes="image", gives="picture", to=picture))
    watch = WalkGraph(Node(viewer, "watch", takes="video", gives="clip", to=clip))

    def warm_up(self) -> Request:
        dot = b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;"
        return self.request(parts=(Part("image", dot), Part("video", dot)), options={"seed": 0})

    def prepare(self, request: Request) -> Walk:
        images, videos = request.all("image"), request.all("video")
        return self.measure(image=images[0] if images else None, video=videos[0] if videos else None)

    @track
    def looking(self, request: Request, prepared: Outcome) -> Track:
        for image in request.all("image"):
            yield self.look(image=image)
        return None

    @track
    def watching(self, request: Request, prepared: Outcome) -> Track:
        for video in request.all("video"):
            yield self.watch(video=video)
        return prepared["sizes"]
