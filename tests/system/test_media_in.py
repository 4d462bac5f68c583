"""Images and videos, all the way: from a client through the server to the component that decodes them."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import av
import httpx
import numpy as np
import pytest
from PIL import Image
from tests.families import trial
from tests.system.conftest import RunningServer
from websockets.sync.client import connect

from walkserve_sdk.client import Client


@pytest.fixture(scope="module")
def album(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("album")
    environ = {"PYTHONPATH": trial.install(folder / "site", "album")}
    arguments = ("album", "--port", "0", "--max-video-s", "5", "--max-image-pixels", "1000000")
    server = RunningServer(*arguments, log=folder / "log", environ=environ)
    try:
        yield server.wait_until_ready()
    finally:
        code = server.stop()
    assert code == 0, server.printed


def picture(size: tuple[int, int] = (40, 24), format: str = "PNG", orientation: int = 1) -> bytes:
    out, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = orientation
    Image.new("RGB", size, (255, 0, 0)).save(out, format, exif=exif.tobytes())
    return out.getvalue()


def film(seconds: int = 1, size: tuple[int, int] = (64, 48)) -> bytes:
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        for _ in range(10 * seconds):
            frame = av.VideoFrame.from_ndarray(np.zeros((size[1], size[0], 3), np.uint8), "rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return out.getvalue()


def told(response: httpx.Response) -> dict[str, str]:
    """The text of each output, and how it ended."""
    assert response.status_code == 200, response.text
    events = [json.loads(line) for line in response.text.splitlines()]
    joined: dict[str, str] = {}
    for event in events:
        if event["type"] == "output":
            joined[event["output"]] = joined.get(event["output"], "") + event["text"]
    return joined | {"sizes": events[-1]["finish_reason"]}


def ask(server: RunningServer, *files: tuple[str, bytes], **fields: str) -> httpx.Response:
    """A form with these parts."""
    form: list[tuple[str, Any]] = [("model", (None, "album"))]
    form += [(name, (None, value)) for name, value in fields.items()]
    form += [(kind, ("holiday.txt", data)) for kind, data in files]  # what it is called says nothing
    return httpx.post(f"{server.url}/v1/generate", files=form, timeout=30)


def as_json(server: RunningServer, *inputs: dict[str, str]) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/generate", json={"model": "album", "inputs": inputs}, timeout=30)


SEEN = {
    "picture": "40x24 [255, 0, 0]\n",
    "clip": "4 of 64x48 at [0.0, 0.2, 0.5, 0.7]\n",
    "sizes": "40x24 64x48",
}


def test_an_image_and_a_video_reach_the_component_by_every_route(album):
    clip = film()  # once: the next one may be some bytes longer
    assert told(ask(album, ("image", picture()), ("video", clip))) == SEEN
    image, video = base64.b64encode(picture()).decode(), base64.b64encode(clip).decode()
    inputs = [{"type": "image", "data": image}, {"type": "video", "data": f"data:video/mp4;base64,{video}"}]
    assert told(as_json(album, *inputs)) == SEEN
    with Client(album.url) as client:
        result = client.generate("album", image=picture(), video=clip)
    assert (result.picture, result.clip) == (SEEN["picture"], SEEN["clip"])
    with connect(album.url.replace("http", "ws") + "/v1/stream") as socket:
        sizes = [{"type": "image", "bytes": len(picture())}, {"type": "video", "bytes": len(clip)}]
        socket.send(json.dumps({"type": "generate", "id": "a", "model": "album", "inputs": sizes}))
        socket.send(picture())
        socket.send(clip)
        heard = []
        while not heard or heard[-1]["type"] not in ("done", "error"):
            heard.append(json.loads(socket.recv(10)))
    assert {each["output"]: each["text"] for each in heard if each["type"] == "output"} == {
        "picture": SEEN["picture"],
        "clip": SEEN["clip"],
    }


def test_a_picture_of_any_format_and_orientation_is_seen_upright(album):
    for format in ("PNG", "JPEG", "WEBP"):
        for orientation in (1, 6):
            size = "24x40" if orientation == 6 else "40x24"
            seen = told(ask(album, ("image", picture(format=format, orientation=orientation))))
            assert seen["picture"].startswith(size) and seen["sizes"] == size


def test_what_no_component_would_take_is_refused_by_the_header(album):
    for kind, data, status, code, message in (
        ("image", b"hello", 400, None, "inputs[0]: an image is PNG, JPEG, WebP, GIF; this is none of them"),
        ("image", b"", 400, None, "this is nothing"),
        ("image", picture((2000, 1000)), 413, "media_too_large", "2,000,000 pixels, and 1,000,000 are"),
        ("video", picture(), 400, None, "a video is a file of MP4, WebM and Matroska, AVI, GIF"),
        ("video", film()[:-40], 400, None, "the file is cut off"),
        ("video", film(6), 413, "media_too_large", "it takes 6.0 s, and 5 s are the most it may"),
    ):
        refused = ask(album, (kind, data))
        error = refused.json()["error"]
        assert (refused.status_code, error["param"], error["code"]) == (status, "inputs[0]", code), error
        assert message in error["message"]


def test_nothing_is_fetched(album):
    for address in ("http://127.0.0.1:9/x.png", "file:///etc/passwd", "http://2130706433/", "/etc/passwd"):
        refused = as_json(album, {"type": "image", "data": address})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "inputs[0].data")
        assert "send the bytes" in refused.json()["error"]["message"]


def test_of_several_requests_at_once_only_the_one_with_a_broken_image_fails(album):
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(noise).save(out, "PNG")
    broken = out.getvalue()[: len(out.getvalue()) // 2]  # its header is whole
    sent = [broken, *[picture()] * 5, broken, picture()]
    with ThreadPoolExecutor(len(sent)) as threads:
        answers = list(threads.map(lambda data: ask(album, ("image", data)), sent))
    for data, answer in zip(sent, answers, strict=True):
        if data is broken:
            error = answer.json()["error"]
            assert (answer.status_code, error["param"]) == (400, "image")
            assert "the PNG file is broken or cut off" in error["message"]
        else:
            assert told(answer)["picture"] == SEEN["picture"]


def test_a_huge_picture_in_a_tiny_file_moves_no_process(album):
    out = io.BytesIO()
    Image.new("1", (14_000, 14_000)).save(out, "PNG")
    ask(album, ("image", picture()))
    peaks = {pid: _peak_bytes(pid) for pid in _pids(album)}
    assert ask(album, ("image", out.getvalue())).status_code == 413
    for pid, before in peaks.items():
        assert _peak_bytes(pid) - before < 16 * 1024 * 1024


def _pids(server: RunningServer) -> list[int]:
    workers = [worker["pid"] for model in server.state()["models"] for worker in model["workers"]]
    return [server.process.pid, *workers]


def _peak_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
