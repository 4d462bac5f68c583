"""Media inside JSON: base64 or a data URL, and never an address."""

import base64
import socket

import pytest

from walkserve_sdk import BadRequest, MediaTooLarge
from walkserve_sdk.media.inline import inline_bytes

FILE = bytes(range(256))
TEXT = base64.b64encode(FILE).decode()


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        f"data:image/png;base64,{TEXT}",
        f"data:;base64,{TEXT}",
        f"DATA:video/mp4;codecs=avc1;BASE64,{TEXT}",
    ],
)
def test_base64_alone_and_a_data_url_are_the_same_bytes(text: str) -> None:
    assert inline_bytes(text) == FILE


@pytest.mark.parametrize("size", range(5))
def test_the_limit_counts_the_bytes_of_the_file_and_not_those_of_the_text(size: int) -> None:
    text = base64.b64encode(bytes(size)).decode()
    assert inline_bytes(text, limit_bytes=size) == bytes(size)
    if size:
        with pytest.raises(MediaTooLarge, match=f"inputs.0.: {size} bytes, and {size - 1} are the most"):
            inline_bytes(f"data:image/png;base64,{text}", place="inputs[0]", limit_bytes=size - 1)


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1/x.png",
        "http://2130706433/",
        "http://[::1]:80/x.png",
        "https://169.254.169.254/latest",
        "HTTP://example.org/x",
        "file:///etc/passwd",
        "ftp://example.org/x",
        "s3://bucket/key",
        "C:\\pictures\\x.png",
    ],
)
def test_an_address_is_refused_and_nothing_is_opened(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*arguments: object) -> None:
        raise AssertionError(f"a connection was tried: {arguments}")

    monkeypatch.setattr(socket, "socket", opened)
    monkeypatch.setattr("builtins.open", opened)
    with pytest.raises(
        BadRequest, match="this server opens no address and no file; send the bytes"
    ) as refused:
        inline_bytes(address, place="inputs[0].data")
    assert (refused.value.status, refused.value.param) == (400, "inputs[0].data")


@pytest.mark.parametrize(
    "text", ["/etc/passwd.png", "~/x.png", "photo.jpg", "AAA", "AA AA", "====", "é", TEXT[:-1]]
)
def test_a_path_and_broken_base64_are_refused_with_the_cure(text: str) -> None:
    with pytest.raises(BadRequest, match="it is no base64, .*; send the bytes of the file, not where it is"):
        inline_bytes(text)


@pytest.mark.parametrize("text", ["data:image/png,abc", "data:", "data:image/png;base64"])
def test_a_data_url_of_another_kind_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="a data URL is data:TYPE;base64,"):
        inline_bytes(text)
