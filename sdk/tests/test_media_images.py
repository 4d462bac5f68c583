"""Images as they come: whatever the file, upright RGB on white, or a refusal that says why."""

import io
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from walkserve_sdk import BadRequest, MediaTooLarge
from walkserve_sdk.media.images import image_size, read_image
from walkserve_sdk.media.limits import ImageLimits

SCENE = np.zeros((24, 40, 3), np.uint8)  # every corner has a colour of its own
SCENE[:8, :8], SCENE[:8, -8:], SCENE[-8:, :8], SCENE[-8:, -8:] = (255, 0, 0), (0, 255, 0), (0, 0, 255), 200


def file_of(image: Image.Image, format: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def turned(orientation: int, format: str) -> bytes:
    """The scene as a camera writes it that was held so: turned, and a note how to turn it back."""
    undo = {6: 8, 8: 6}.get(orientation, orientation)  # the others undo themselves
    noted = Image.Exif()
    noted[0x0112] = undo
    image = Image.fromarray(SCENE)
    image.info["exif"] = noted.tobytes()
    stored = ImageOps.exif_transpose(image)
    noted[0x0112] = orientation
    lossless = {"lossless": True} if format == "WEBP" else {"quality": 100, "subsampling": 0}
    return file_of(stored, format, exif=noted.tobytes(), **lossless)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_gives_the_upright_picture(orientation: int, format: str) -> None:
    data = turned(orientation, format)
    pixels = read_image(data)
    assert image_size(data) == (40, 24)
    assert pixels.shape == SCENE.shape
    far = np.abs(pixels.astype(int) - SCENE).max()
    assert far <= (40 if format == "JPEG" else 0)  # of a JPEG the edges of the corners ring
    assert [tuple(pixels[y, x] // 100 * 100) for y, x in ((2, 2), (2, -3), (-3, 2), (-3, -3))] == [
        (200, 0, 0),
        (0, 200, 0),
        (0, 0, 200),
        (200, 200, 200),
    ]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_jpegs_turned_by_pillow_and_by_us_are_the_same_to_the_bit(orientation: int) -> None:
    noted = Image.Exif()
    noted[0x0112] = orientation
    data = file_of(Image.fromarray(SCENE), "JPEG", exif=noted.tobytes())
    np.testing.assert_array_equal(
        read_image(data), np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    )


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")  # Pillow looks there for the resolution
@pytest.mark.parametrize("order", ["<", ">"])
def test_exif_is_read_in_either_byte_order_and_nonsense_in_it_is_no_harm(order: str) -> None:
    head = b"II*\0" if order == "<" else b"MM\0*"
    entry = struct.pack(f"{order}HHIHH", 0x0112, 3, 1, 6, 0)
    exif = head + struct.pack(f"{order}IH", 8, 1) + entry + bytes(4)
    picture = Image.fromarray(SCENE)
    assert image_size(file_of(picture, "JPEG", exif=b"Exif\0\0" + exif)) == (24, 40)
    for broken in (
        exif[:9],
        exif[:4] + b"\xff" * 4,
        exif.replace(entry, entry[:8] + b"\x63\x63" + entry[10:]),
        b"II",
    ):
        assert image_size(file_of(picture, "JPEG", exif=b"Exif\0\0" + broken)) == (40, 24)


@pytest.mark.parametrize("format", ["PNG", "WEBP", "GIF"])
def test_what_is_transparent_lets_white_through(format: str) -> None:
    layer = Image.new("RGBA", (2, 1))
    layer.putpixel((0, 0), (255, 0, 0, 255))
    layer.putpixel((1, 0), (255, 0, 0, 0))
    options = {"WEBP": {"lossless": True, "exact": True}}.get(format, {})
    assert read_image(file_of(layer, format, **options)).tolist() == [[[255, 0, 0], [255, 255, 255]]]


def test_what_is_half_transparent_is_half_white() -> None:
    half = Image.new("RGBA", (1, 1), (255, 0, 0, 128))
    assert read_image(file_of(half, "PNG")).tolist() == [[[255, 127, 127]]]
    grey = Image.new("LA", (1, 1), (0, 128))
    assert read_image(file_of(grey, "PNG")).tolist() == [[[127, 127, 127]]]


@pytest.mark.parametrize(
    ("mode", "colour", "clear", "seen"),
    [
        ("L", 9, 9, 255),
        ("L", 9, 8, 9),
        ("RGB", (1, 2, 3), (1, 2, 3), 255),
        ("1", 0, 0, 255),
    ],
)
def test_a_colour_that_stands_for_transparent_is_white(
    mode: str, colour: object, clear: object, seen: int
) -> None:
    data = file_of(Image.new(mode, (1, 1), colour), "PNG", transparency=clear)
    assert read_image(data).tolist() == [[[seen] * 3]]


def test_a_palette_with_and_without_transparent_entries_gives_its_colours() -> None:
    plain = Image.new("P", (3, 1))
    plain.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    for x in range(3):
        plain.putpixel((x, 0), x)
    assert read_image(file_of(plain, "PNG")).tolist() == [[[10, 20, 30], [40, 50, 60], [70, 80, 90]]]
    seen = read_image(file_of(plain, "PNG", transparency=b"\xff\x00\xff"))
    assert seen.tolist() == [[[10, 20, 30], [255, 255, 255], [70, 80, 90]]]


@pytest.mark.parametrize(("deep", "seen"), [(0, 0), (128, 0), (129, 1), (257, 1), (32896, 128), (65535, 255)])
def test_sixteen_bits_are_scaled_and_not_clipped(deep: int, seen: int) -> None:
    picture = Image.fromarray(np.full((2, 3), deep, np.uint16))
    assert read_image(file_of(picture, "PNG")).tolist() == [[[seen] * 3] * 3] * 2


def png(width: int, height: int, bits: int, colour: int, rows: bytes, *chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG file written by hand: of kinds that Pillow does not write."""
    header = (b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    parts = [header, *chunks, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in parts
    )


def test_sixteen_bits_of_colour_are_scaled_too_and_a_clear_grey_of_sixteen_is_white() -> None:
    colour = png(1, 1, 16, 2, b"\0" + struct.pack(">HHH", 0, 32896, 65535))
    assert read_image(colour).tolist() == [[[0, 128, 255]]]
    grey = png(2, 1, 16, 0, b"\0" + struct.pack(">HH", 1000, 1001), (b"tRNS", struct.pack(">H", 1000)))
    assert read_image(grey).tolist() == [[[255] * 3, [4] * 3]]


def test_cmyk_grey_and_single_bits_become_rgb() -> None:
    red = file_of(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", quality=100)
    assert np.abs(read_image(red).astype(int) - (254, 0, 0)).max() <= 3
    assert read_image(file_of(Image.new("L", (1, 2), 77), "PNG")).tolist() == [[[77] * 3]] * 2
    assert read_image(file_of(Image.new("1", (2, 1), 1), "PNG")).tolist() == [[[255] * 3] * 2]


def test_of_an_animation_it_is_the_first_frame() -> None:
    first, second = Image.new("RGB", (4, 4), "red"), Image.new("RGB", (4, 4), "blue")
    for format in ("GIF", "PNG", "WEBP"):
        options = {"lossless": True} if format == "WEBP" else {}
        data = file_of(first, format, save_all=True, append_images=[second], **options)
        assert (read_image(data) == (255, 0, 0)).all(), format


@pytest.mark.parametrize("size", [(1, 1), (1, 5000), (5000, 1)])
@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "GIF"])
def test_the_smallest_and_the_thinnest_are_read(format: str, size: tuple[int, int]) -> None:
    data = file_of(Image.new("RGB", size, "white"), format)
    assert image_size(data) == size
    assert read_image(data).shape == (size[1], size[0], 3)


NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (16, 16, 3), np.uint8))
WHOLE = {format: file_of(NOISE, format) for format in ("PNG", "JPEG", "WEBP", "GIF")}
SMALL_FRAME = b"," + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02D\x01\0;"
CLEARED = b"!\xf9\x04\x09\0\0\0\0"  # of a frame that is to be cleared after it was shown
LARGE_FRAME = CLEARED + b"," + struct.pack("<HHHHB", 0, 0, 13_000, 13_000, 0) + b"\x02\x02D\x01\0;"


# --- refusals -----------------------------------------------------------------------------------------


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def peak_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("read", [image_size, read_image])
def test_a_huge_picture_in_a_tiny_file_is_refused_and_takes_no_memory(read) -> None:
    flat = png(14_000, 14_000, 8, 0, bytes(14_000 * 14_001))
    read_image(file_of(Image.new("RGB", (1, 1)), "PNG"))  # Pillow is there now
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = resident_bytes()
    with pytest.raises(MediaTooLarge) as refused:
        read(flat)
    assert peak_bytes() - before < 4 * 1024 * 1024
    assert str(refused.value) == (
        "image: 14000 x 14000 are 196,000,000 pixels, and 67,108,864 are the most it may have;"
        " make it smaller"
    )
    assert (refused.value.status, refused.value.code) == (413, "media_too_large")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GIF89a" + struct.pack("<HHBBB", 65535, 1, 0, 0, 0) + SMALL_FRAME, id="a wide screen"),
        pytest.param(b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0, 0, 0) + LARGE_FRAME, id="a large frame"),
        pytest.param(b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0" + bytes(4) + b"\xff\x3f\0" * 2, id="WebP"),
        pytest.param(b"RIFF\x11\0\0\0WEBPVP8L\x05\0\0\0\x2f" + b"\xff" * 4 + b"\0", id="lossless WebP"),
        pytest.param(
            file_of(Image.new("L", (8, 8)), "JPEG").replace(b"\0\x08\0\x08", b"\x7f" * 4), id="JPEG"
        ),
        pytest.param(png(2**31 - 1, 2**31 - 1, 8, 0, b""), id="PNG"),
    ],
)
@pytest.mark.parametrize("read", [image_size, read_image])
def test_a_bomb_in_any_format_is_refused_by_its_header(read, data: bytes) -> None:
    for format in WHOLE:
        image_size(WHOLE[format])  # whatever reads it is there now
    Path("/proc/self/clear_refs").write_text("5")
    before = resident_bytes()
    with pytest.raises(MediaTooLarge, match="are the most"):
        read(data)
    assert peak_bytes() - before < 4 * 1024 * 1024


def test_each_limit_is_told_with_both_numbers() -> None:
    data = file_of(Image.new("RGB", (30, 20)), "PNG")
    with pytest.raises(MediaTooLarge, match=r"inputs\[1\]: 30 x 20 are 600 pixels, and 599 are the most"):
        read_image(data, ImageLimits(pixels=599), place="inputs[1]")
    with pytest.raises(MediaTooLarge, match="30 x 20, and 29 pixels are the most a side may have"):
        read_image(data, ImageLimits(side=29))
    with pytest.raises(MediaTooLarge, match=f"{len(data)} bytes, and 10 are the most"):
        read_image(data, ImageLimits(size_bytes=10))
    assert read_image(data, ImageLimits(600, 30, len(data))).shape == (20, 30, 3)


@pytest.mark.parametrize(
    "data", [b"", b"hello", b"BM" + bytes(60), bytes(100), b"<svg/>", b"\xff\xd8", b"RIFF"]
)
def test_what_is_no_image_is_refused_with_the_formats_that_are(data: bytes) -> None:
    with pytest.raises(BadRequest, match="an image is PNG, JPEG, WebP, GIF") as refused:
        read_image(data, place="inputs[0]")
    assert (refused.value.status, refused.value.param) == (400, "inputs[0]")


@pytest.mark.parametrize("format", WHOLE)
def test_a_file_cut_off_in_its_pixels_is_refused_and_the_next_is_read(format: str) -> None:
    data = WHOLE[format]
    for share in (0.5, 0.8):
        with pytest.raises(BadRequest, match="broken or cut off"):
            read_image(data[: int(len(data) * share)])
    assert read_image(data).shape == (16, 16, 3)


@settings(max_examples=60, deadline=None)
@given(
    format=st.sampled_from(sorted(WHOLE)),
    cut=st.integers(0, 2000),
    at=st.integers(0, 2000),
    flip=st.integers(0, 255),
)
def test_whatever_is_broken_is_an_image_or_a_refusal_and_nothing_else(
    format: str, cut: int, at: int, flip: int
) -> None:
    data = bytearray(WHOLE[format])
    data[at % len(data)] ^= flip
    try:
        pixels = read_image(bytes(data[: len(data) - cut]), ImageLimits(pixels=1 << 20))
    except BadRequest as refused:
        assert str(refused).startswith("image: ")
    else:
        assert pixels.dtype == np.uint8 and pixels.ndim == 3


@settings(max_examples=25, deadline=None)
@given(
    width=st.integers(1, 70),
    height=st.integers(1, 70),
    format=st.sampled_from(["PNG", "JPEG", "WEBP", "GIF"]),
)
def test_any_size_is_told_and_read(width: int, height: int, format: str) -> None:
    data = file_of(Image.new("RGB", (width, height), "teal"), format)
    assert image_size(data) == (width, height)
    assert read_image(data).shape == (height, width, 3)
