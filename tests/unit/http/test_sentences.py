"""Where a text is cut into pieces to be spoken."""

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from walkserve.http.sentences import MOST_CHARS, SentenceSplitter, each_sentence


def split_sentences(text: str) -> list[str]:
    return list(each_sentence(text))


def pieces(text: str) -> list[str]:
    return [piece.strip() for piece in split_sentences(text)]


@pytest.mark.parametrize(
    "sentences",
    [
        ["One.", "Two!", "Three?"],
        ["Pi is 3.14 today.", "See example.org/a.html for more."],
        ["Dr. Smith met Mrs. Jones at 5 p.m. sharp.", "They left."],
        ["We saw e.g. Rome, i.e. Italy vs. France.", "Good."],
        ["J. S. Bach lived.", "So do I.", "The U.S. Navy sails."],
        ["It is No. 5.", "No.", "Really no."],
        ["It was 1999.", "Then it was not."],
        ["1. First things first.", "2. Then the rest."],
        ["Wait... and then go on.", "Wait...", "Go on…", "Yes."],
        ['"Stop!" he said.', '"Why?"', "She laughed (quietly).", "He left."],
        ["“Is it so?”", "„Ja.“", "«Oui.»", "Fin."],
        ["What?!", "No!!!", "Yes."],
        ["今天天气很好。", "你好吗？", "很好！", "「是的。」", "再见"],
        ["今日は。", "Hello there.", "さようなら！"],
        ["هل أنت بخير؟", "نعم."],
        ["क्या हाल है?", "मैं ठीक हूँ।", "धन्यवाद।"],
        ["A title without an end", "and a paragraph after an empty line."],
        ["One line\nof wrapped prose.", "Another\nline."],
        ["🙂🙂"],
        ["...!?"],
    ],
    ids=lambda sentences: sentences[0][:20],
)
def test_a_text_is_cut_between_its_sentences(sentences):
    between = "\n\n" if sentences[0].startswith("A title") else " "
    assert pieces(between.join(sentences)) == sentences


def test_in_scripts_without_spaces_none_is_needed():
    assert pieces("今天很好。你好吗？「是的。」再见……好") == [
        "今天很好。",
        "你好吗？",
        "「是的。」",
        "再见……好",
    ]


def test_blank_texts_have_no_pieces():
    assert split_sentences("") == split_sentences(" \n\t ") == []


def test_an_overlong_sentence_is_cut_after_a_comma_else_at_a_space_else_anywhere():
    words = "word " * 30
    with_comma = words + "comma, " + words
    assert split_sentences(with_comma)[0] == words + "comma, "
    assert split_sentences("word " * 90)[0] == "word " * 40
    assert [len(piece) for piece in split_sentences("x" * 450)] == [200, 200, 50]
    assert split_sentences("好" * 120 + "，" + "好" * 150)[0] == "好" * 120 + "，"


def test_a_sentence_of_the_longest_length_is_left_whole():
    exact = "A" * 99 + " " + "b" * 99 + "."
    assert len(exact) == MOST_CHARS
    assert pieces(f"{exact} Then. {exact}") == [exact, "Then.", exact]


def test_a_sentence_is_released_when_the_next_begins():
    splitter = SentenceSplitter()
    assert splitter.feed("Hello there.") == []
    assert splitter.feed(" ") == []
    assert splitter.feed("How") == ["Hello there. "]
    assert splitter.feed(" are you? F") == ["How are you? "]
    assert splitter.finish() == ["F"]
    assert splitter.feed("New text. N") == ["New text. "]


TEXTS = st.text(
    st.one_of(st.sampled_from('aAbzI. .!?…,;: \n\n"”)(0159。！？、好'), st.characters(codec="utf-8")),
    max_size=120,
) | st.lists(
    st.sampled_from(["Dr.", "no.", "3.14", "word", "The", "end.", "e.g.", "好。", "\n\n", "x" * 30, "a, b"]),
    max_size=30,
).map(" ".join)


@given(TEXTS, st.integers(5, 40))
@example("a" * 10 + " " * 50 + "b", 10)
@example(" " * 9 + "0", 5)
def test_pieces_cover_the_text_and_none_is_blank_or_too_long(text, most):
    splitter = SentenceSplitter(most)
    found = splitter.feed(text) + splitter.finish()
    if text.strip():
        assert "".join(found) == text
    else:
        assert found == []
    for piece in found:
        assert piece.strip()
        assert len(piece.strip()) <= most
    for piece in found[1:]:
        assert not piece[0].isspace()


@given(TEXTS, st.integers(5, 40), st.lists(st.integers(1, 9), max_size=60))
def test_how_a_text_comes_makes_no_difference(text, most, sizes):
    whole, parts = SentenceSplitter(most), SentenceSplitter(most)
    at_once = whole.feed(text) + whole.finish()
    found = []
    rest = text
    for size in sizes:
        found += parts.feed(rest[:size])
        rest = rest[size:]
    assert found + parts.feed(rest) + parts.finish() == at_once


@pytest.mark.parametrize("text", ["Word. " * 100_000, "x" * 600_000, " " * 600_000 + "x", "." * 600_000])
def test_a_long_text_is_cut_in_time_that_grows_with_its_length(text):
    began = time.process_time()
    assert "".join(split_sentences(text)) == text
    assert time.process_time() - began < 5
