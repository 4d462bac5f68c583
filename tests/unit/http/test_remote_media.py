"""Files at addresses that clients name: public ones only, within limits, by servers that may."""

import base64
import copy
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from walkserve.http import remote_media
from walkserve_sdk.errors import BadRequest, MediaTooLarge

pytestmark = pytest.mark.anyio
FILE = b"GIF89a and so on"


class _Files(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        name = self.path[1:]
        if name == "slow":
            time.sleep(1)
        if name.startswith("to=") or name == "round":
            self.send_response(302)
            self.send_header("location", name.removeprefix("to="))
        else:
            self.send_response(404 if name == "missing" else 200)
        self.end_headers()
        self.wfile.write(FILE)

    def log_message(self, *about) -> None: ...


@pytest.fixture
def files():
    with ThreadingHTTPServer(("127.0.0.1", 0), _Files) as server:
        server.asked = []
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def here_is_public(monkeypatch):
    monkeypatch.setattr(remote_media, "is_public", "127.0.0.1".__eq__)


async def _fetch(url, limit_bytes=100):
    return await remote_media.fetch(url, place="inputs[0].data", limit_bytes=limit_bytes)


async def test_a_file_is_fetched_also_by_a_redirect(files, here_is_public):
    assert await _fetch(f"{files.url}/a.gif") == FILE
    assert await _fetch(f"{files.url}/to=/a.gif") == FILE
    assert files.asked == ["/a.gif", "/to=/a.gif", "/a.gif"]


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "2130706433", "0x7f000001", "127.1", "[::1]", "[::ffff:127.0.0.1]", "0"],
)
async def test_what_is_not_public_is_not_connected_to_however_it_is_spelt(files, host):
    with pytest.raises(BadRequest, match=r"inputs\[0\].data: .*leads to no public address") as raised:
        await _fetch(f"http://{host}:{files.server_port}/a.gif")
    assert raised.value.param == "inputs[0].data"
    assert files.asked == []


async def test_nor_is_it_by_a_redirect(files, here_is_public):
    for to in (f"http://127.0.0.2:{files.server_port}/a.gif", "file:///etc/passwd"):
        with pytest.raises(BadRequest, match="leads to no public address"):
            await _fetch(f"{files.url}/to={to}")
    assert len(files.asked) == 2


async def test_what_gives_no_file_is_told(files, here_is_public, monkeypatch):
    with pytest.raises(BadRequest, match="the answer is a 404; send the bytes"):
        await _fetch(f"{files.url}/missing")
    with pytest.raises(BadRequest, match="redirects more than 3 times"):
        await _fetch(f"{files.url}/round")
    monkeypatch.setattr(remote_media, "TAKES_S", 0.1)
    with pytest.raises(BadRequest, match=r"within 0.1 s"):
        await _fetch(f"{files.url}/slow")
    with pytest.raises(BadRequest, match="cannot be fetched"):
        await _fetch("http://127.0.0.1:1/a.gif")
    with pytest.raises(MediaTooLarge, match="more than 5 bytes"):
        await _fetch(f"{files.url}/a.gif", limit_bytes=5)


@pytest.mark.parametrize(
    ("address", "is_so"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("10.0.0.1", False),
        ("100.64.0.1", False),
        ("169.254.169.254", False),
        ("192.168.1.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::a00:1", False),
        ("2002:a00:1::1", False),
    ],
)
def test_which_addresses_are_public(address, is_so):
    assert remote_media.is_public(address) is is_so


async def test_all_places_of_a_body_are_read_and_nothing_else(files, here_is_public):
    url, file = f"{files.url}/a.gif", base64.b64encode(FILE).decode()
    inputs = [
        {"type": "text", "text": url},
        {"type": "image", "data": url},
        {"type": "image", "data": file},
        3,
    ]
    body = {"inputs": inputs, "text": url}
    await remote_media.fetch_inputs(body, 100)
    assert [each.get("data") for each in inputs[:3]] == [None, file, file]
    image = {"type": "image_url", "image_url": {"url": url}}
    again = copy.deepcopy(image)
    said = [
        {"role": "user", "content": [{"type": "text", "text": url}, image]},
        {"images": [again]},
        "x",
        {"content": url},
    ]
    await remote_media.fetch_messages({"messages": said}, 100)
    assert image["image_url"]["url"] == again["image_url"]["url"] == file
    assert files.asked == ["/a.gif"] * 3
    with pytest.raises(MediaTooLarge):  # together
        await remote_media.fetch_inputs({"inputs": [{"data": url}, {"data": url}]}, len(FILE) + 1)
    with pytest.raises(BadRequest, match=r"inputs\[8\].data: one request may name 8 addresses"):
        await remote_media.fetch_inputs({"inputs": [{"data": url} for _ in range(9)]}, 1000)


async def test_only_a_server_that_may_fetches(stage, files, here_is_public):
    ask = {"model": "parrot:toy", "inputs": [{"type": "image", "data": f"{files.url}/a.gif"}]}
    async with stage.serving() as at:
        told = (await at.client.post("/v1/generate", json=ask)).json()["error"]["message"]
        assert "this server opens no address" in told
    assert files.asked == []
    async with stage.serving(remote_media=True) as at:
        assert (await at.client.post("/v1/generate", json=ask)).status_code == 400  # a parrot sees nothing
    assert files.asked == ["/a.gif"]
