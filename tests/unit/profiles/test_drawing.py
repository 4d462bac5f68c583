"""The time line: lanes, waits and fill as numbers; an SVG that is well-formed, its words apart."""

from __future__ import annotations

import re
from itertools import combinations
from xml.etree import ElementTree

import pytest

from walkserve.profiles.drawing import STYLE, draw
from walkserve.profiles.lanes import Bar, Span, fills, lanes, outputs, phases
from walkserve.profiles.report import report
from walkserve.profiles.scale import Scale, bytes_in_words, in_words
from walkserve.profiles.svg import shortened, text_width

SVG = "{http://www.w3.org/2000/svg}"
SIZES = {name: float(size) for name, size in re.findall(r"\.(\w+) \{ font-size: ([\d.]+)px", STYLE)}
BOLD = {name for name, rest in re.findall(r"\.(\w+) \{([^}]*)\}", STYLE) if "font-weight: 600" in rest}


def texts(svg: str) -> list[tuple[float, float, float, float, str]]:
    """(left, top, right, bottom, words) of all that is written."""
    found = []
    for one in ElementTree.fromstring(svg).iter(f"{SVG}text"):
        kind = one.get("class", "")
        width = text_width(one.text or "", SIZES[kind], bold=kind in BOLD)
        x, y = float(one.get("x", "")), float(one.get("y", ""))
        left = x - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[one.get("text-anchor", "start")]
        found.append((left, y - 0.75 * SIZES[kind], left + width, y + 0.2 * SIZES[kind], one.text or ""))
    return found


def overlapping(svg: str) -> list[tuple[str, str]]:
    return [
        (a[4], b[4])
        for a, b in combinations(texts(svg), 2)
        if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
    ]


def words(svg: str) -> list[str]:
    return [one[4] for one in texts(svg)]


# --- lanes ----------------------------------------------------------------------------------------------


def test_each_component_has_a_lane_with_its_batches_and_what_it_waited_for(make):
    model, codec = lanes(make(turns=4))
    assert (model.worker, model.component) == ("toy.rank0", "model")
    assert model.bars[0] == Bar(11_000, 15_000, 0.5)  # the batch had two rows
    assert model.waits[0] == Span("batch", 10_000, 11_000)
    assert (codec.worker, codec.component) == ("toy.rank1", "codec")
    assert codec.waits[:2] == [Span("stream", 10_000, 20_000), Span("batch", 20_000, 21_000)]


def test_a_streams_fill_is_what_was_written_less_what_was_read(make):
    (fill,) = fills(make(turns=4))
    assert (fill.stream, fill.source, fill.target, fill.most) == ("codes", "model", "codec", 2)
    assert fill.held == [(15_000, 1), (20_000, 2), (20_000, 0), (25_000, 1), (30_000, 2), (30_000, 0)]


def test_phases_are_those_the_request_has_come_to(make):
    (call,) = make(turns=4).calls
    assert [span.name for span in phases(call)] == ["prepare", "wait for room", "run"]
    assert outputs(make(turns=4)) == {"speech": [23_000, 33_000]}


# --- the picture ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [2, 20, 2000])  # one batch, bars, and too many to be told apart
def test_no_word_lies_on_another_and_none_leaves_the_picture(make, ask, turns):
    svg = draw(ask(make(turns=turns)))
    assert overlapping(svg) == []
    page = ElementTree.fromstring(svg)
    width, height = float(page.get("width", "")), float(page.get("height", ""))
    assert [one for one in texts(svg) if one[0] < 0 or one[2] > width or one[1] < 0 or one[3] > height] == []


def test_words_stay_apart_however_long_the_names_are(make, ask):
    profile = make(turns=20)
    long = svg_with(profile, "a-component-with-quite-a-long-name-of-its-own")
    svg = draw(ask(long, id="req-" + "0" * 200, model="family:" + "variant" * 40))
    assert overlapping(svg) == []


def svg_with(profile, name):
    """The same profile, its component and worker renamed."""
    import msgspec

    text = (
        msgspec.json.encode(profile)
        .replace(b'"model', f'"{name}'.encode())
        .replace(b"toy.rank1", b"a-model" * 6 + b".rank1")
    )
    return msgspec.json.decode(text, type=type(profile))


def test_it_says_what_a_reader_looks_for_first(make, ask):
    said = words(draw(ask(make(turns=20), usage={"input_tokens": 3, "output_tokens": 20})))
    assert said[0] == "toy:small"
    assert said[1].split(" · ") == [
        "0.50 s of sound in 126 ms", "real-time factor 0.25", "first output after 24.0 ms",
        "3 tokens in, 20 out", "done: stop",
    ]  # fmt: skip
    assert {"model", "codec", "codes", "toy.rank0", "toy.rank1", "http", "conductor"} <= set(said)
    assert "first output, 24.0 ms" in said and "100 ms" in said
    assert {"model.next", "codec.decode", "stream codes", "output speech"} <= set(said)


def test_a_picture_of_many_batches_is_no_larger_than_its_pixels(make, ask):
    assert len(draw(ask(make(turns=20_000)))) < 300_000


def test_every_batch_is_drawn_while_there_is_room(make, ask):
    svg = draw(ask(make(turns=20)))
    paths = [
        one.get("d", "")
        for one in ElementTree.fromstring(svg).iter(f"{SVG}path")
        if one.get("fill") == "#2563eb"
    ]
    assert [path.count("M") for path in paths] == [20, 20]  # each batch, and this request's part of it


def test_a_request_that_failed_before_anything_ran_is_drawn_all_the_same(noted, ask):
    notes = noted(2)
    notes.parts.clear()
    svg = draw(ask(report([notes], began_ns=0, took_s=0.0, first_output_s=None), state="failed", audio_s={}))
    assert "not all of it is known" in words(svg)[1]
    assert overlapping(svg) == []


def test_what_a_name_holds_is_text_and_no_markup(make, ask):
    svg = draw(ask(make(turns=2), model='<script>&"'))
    assert words(svg)[0] == '<script>&"'


def test_a_request_without_a_profile_is_refused(ask):
    with pytest.raises(ValueError, match="req-1 has no profile"):
        draw(ask(None))


# --- words and numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("us", "said"),
    [
        (0, "0 µs"),
        (840, "840 µs"),
        (7_360, "7.36 ms"),
        (73_600, "73.6 ms"),
        (289_000, "289 ms"),
        (12_400_000, "12.4 s"),
    ],
)
def test_a_time_is_said_in_three_digits(us, said):
    assert in_words(us) == said


@pytest.mark.parametrize(
    ("size", "said"), [(672, "672 B"), (98_304, "96.0 KiB"), (3_145_728, "3.00 MiB"), (2**30, "1.00 GiB")]
)
def test_a_size_is_said_in_three_digits(size, said):
    assert bytes_in_words(size) == said


@pytest.mark.parametrize(
    ("until_us", "last"), [(900, "0.9 ms"), (288_615, "250 ms"), (69_900_000, "60 s"), (1, "0.001 ms")]
)
def test_ticks_are_round_and_not_too_many(until_us, last):
    found = list(Scale(until_us, 0, 1000).ticks())
    assert found[0][1].startswith("0 ") and found[-1][1] == last
    assert len(found) <= 11


def test_a_text_that_is_too_long_keeps_both_its_ends():
    assert shortened("short", 12, 100) == "short"
    cut = shortened("orpheus-of-another-name.rank0", 12, 90)
    assert cut.startswith("orph") and cut.endswith("rank0") and "…" in cut
    assert text_width(cut, 12) <= 90
    assert shortened("anything", 12, 3) == ""
