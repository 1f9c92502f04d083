"""Put hits into words: one JSON object that fits its budget, in which nothing acts.

Text is redacted before it is cut, so that no half of a secret slips through,
then defanged; titles and names are one clean line each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .fusion import COVERAGE_FLOOR
from .keywords import Term
from .scope import Scope, shown_id, via
from .state import Message, State
from .text import cut, defang, one_line, window

SPARE_CHARS = 20  # blank lines closed up are no cut
REDACT_CHARS = 20_000  # around a match, redacted before it is cut
EDGE_CHARS = 4_000  # the longest secret: a private key of 4096 bits has 3,300
AROUND = 40  # messages each way that reading on shows at most
# What an answer does without when even the shortest pieces do not fit.
EXTRAS = ("elsewhere", "topic", "next", "keyword_detail", "semantic_detail", "excluded", "drifted", "consent")

Redact = Callable[[str], str]


@dataclass(slots=True)
class Hit:
    """A message one of the legs found. `text` is what a person saw, whole; `needles` place its snippet,
    or `at`, the offset of the piece whose meaning is nearest. `score` and `coverage` are the keyword
    leg's (see `fusion.Candidate`), `terms` what of the query stands in it.
    """

    message: Message
    text: str
    matched: list[str]
    needles: list[str]
    terms: list[Term]
    source: str = "keyword"
    score: float = 0.0
    coverage: float = 0.0
    at: int = 0
    context: list[tuple[Message, str]] = field(default_factory=list)
    ends: tuple[Message, str] | None = None
    newest: bool = False

    @property
    def strength(self) -> float:
        return self.score * (COVERAGE_FLOOR + self.coverage)


@dataclass(slots=True)
class Page:
    """The hits of one answer and what was left out of it."""

    hits: list[Hit] = field(default_factory=list)
    duplicates: int = 0
    same_conversation: int = 0
    more: bool = False


def inner(text: str) -> str:
    """A long text without what lies at its cut ends, where half a secret may stand that no redactor knows."""
    if len(text) <= 4 * EDGE_CHARS:
        return text
    if text.startswith("… "):
        text = "… " + text[EDGE_CHARS:]
    return text[:-EDGE_CHARS] + " …" if text.endswith(" …") else text


def _whole_secrets(text: str, redact: Redact) -> str:
    """A piece of a longer text, redacted, without what a secret that its cut ends split could leave.

    What stays is what the redactor also says of the piece with its ends further in.
    """
    safe = redact(text)
    begin, end, marks = 0, len(safe), ["", ""]
    if text.startswith("… "):
        begin = end - _common(safe[::-1], redact(text[EDGE_CHARS:])[::-1])
        marks[0] = "… "
    if text.endswith(" …"):
        end = _common(safe, redact(text[:-EDGE_CHARS]))
        marks[1] = " …"
    return marks[0] + safe[begin:end] + marks[1]


def _common(one: str, other: str) -> int:
    """How many characters two texts have in common at their beginning."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def when(timestamp: float) -> str:
    try:
        return datetime.fromtimestamp(timestamp).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return ""


class Show:
    """How rows become JSON: links, titles, and text that is redacted, defanged and cut."""

    def __init__(self, scope: Scope, state: State, redact: Redact | None, profile: str) -> None:
        self._scope = scope
        self._state = state
        self.redact = redact
        self._prefix = f"@session:{profile}/" if profile else "@session:"
        self._titles: dict[str, str] = {}
        self._chats: dict[str, str] = {}
        self._safe: dict[int, str] = {}

    def learn(self, hits: Iterable[Hit]) -> None:
        """Read the titles and chat names these hits need, in one statement each."""
        ids = {m for hit in hits for m in self._scope.everywhere.lineages.members(hit.message.session_id)}
        self._titles = self._state.titles(ids)
        chats = [i for i in ids if via(self._scope.everywhere.by_id[i], None)]
        self._chats = self._state.chat_names(chats) if chats else {}

    def _title(self, session_id: str) -> str:
        members = self._scope.everywhere.lineages.members(session_id)
        own = self._titles.get(session_id)
        return own or next((self._titles[m] for m in reversed(members) if m in self._titles), "")

    def _name(self, text: str) -> str:
        return one_line(self.redact(text) if self.redact and text else text)

    def text(self, message: Message, text: str, needles: list[str], at: int = 0) -> str:
        """The message's text, or what surrounds a match in a long one, safe to hand on."""
        if message.id not in self._safe:
            if len(text) > REDACT_CHARS:
                text = window(text, needles, REDACT_CHARS, at)
                text = _whole_secrets(text, self.redact) if self.redact else text
            elif self.redact:
                text = self.redact(text)
            self._safe[message.id] = defang(text)
        return self._safe[message.id]

    def hit(self, hit: Hit, snippet: int, context: int, ends: int) -> dict[str, Any]:
        message = hit.message
        text = self.text(message, hit.text, hit.needles, hit.at)
        piece = window(text, hit.needles, snippet, hit.at)
        shown: dict[str, Any] = {
            "session_id": shown_id(message.session_id),
            "link": self._prefix + shown_id(message.session_id),
            "title": self._name(self._title(message.session_id)),
            "message_id": message.id,
            "role": message.role,
            "snippet": piece,
            "score_source": hit.source,
            "when": when(message.timestamp),
        }
        if hit.context and context:
            shown["context"] = [self.beside(m, words, context) for m, words in hit.context]
        if hit.matched:
            shown["matched"] = [self._name(word) for word in hit.matched[:8]]
        if hit.newest:
            shown["newest"] = True
        if hit.ends and ends:
            shown["ends"] = {**self.beside(*hit.ends, ends, hit.needles), "when": when(hit.ends[0].timestamp)}
        self._mark(shown, message.session_id)
        whole = len(hit.text) if len(hit.text) > REDACT_CHARS else len(text)
        if whole > len(piece) + SPARE_CHARS:
            shown["cut"] = whole - len(piece)
        return shown

    def _mark(self, shown: dict[str, Any], session_id: str) -> None:
        session = self._scope.everywhere.by_id[session_id]
        origin = via(session, self._chats.get(session_id))
        if origin:
            shown["via"] = self._name(origin)
        if session.archived:
            shown["archived"] = True

    def beside(self, message: Message, words: str, limit: int, needles: list[str] | None = None) -> dict[str, Any]:
        text = self.text(message, words, needles or [])
        piece = window(text, needles, limit) if needles else cut(text, limit)
        return {"message_id": message.id, "role": message.role, "text": piece}


def size(payload: Mapping[str, Any]) -> int:
    return len(json.dumps(payload, ensure_ascii=False))


def fit(excluded: Sequence[str], head: dict[str, Any], page: Page, budget: int, show: Show) -> dict[str, Any]:
    """The answer within its budget of characters: shorter pieces first, then fewer hits.

    `excluded` are the conversations the caller has read already, for `next`; `show` has learned of the hits.
    """
    if show.redact is None:
        head["redacted"] = False
    kept = list(page.hits)
    room = max(160, min(2_000, (budget - 900) // max(1, len(kept)) - 280))
    payload = dict(head)
    for share in (1.0, 0.75, 0.55, 0.4, 0.25):
        payload = _compose(excluded, head, page, kept, show, *(int(room * share * part) for part in (0.55, 0.22, 0.2)))
        if size(payload) <= budget:
            return payload
    while len(kept) > 1 and size(payload) > budget:
        kept.pop()
        payload = _compose(excluded, head, page, kept, show, 160, 0, 0)
    if size(payload) > budget:
        for extra in EXTRAS:
            payload.pop(extra, None)
    if size(payload) > budget:  # a path or title of a thousand characters, say
        payload["results"] = []
        payload["omitted"] = {"by_size": len(page.hits)}
    return payload


def _compose(
    excluded: Sequence[str],
    head: dict[str, Any],
    page: Page,
    kept: list[Hit],
    show: Show,
    snippet: int,
    context: int,
    ends: int,
) -> dict[str, Any]:
    payload = {**head, "results": [show.hit(hit, max(80, snippet), context, ends) for hit in kept]}
    omitted = {
        "by_size": len(page.hits) - len(kept),
        "same_conversation": page.same_conversation,
        "duplicates": page.duplicates,
    }
    if any(omitted.values()):
        payload["omitted"] = {k: v for k, v in omitted.items() if v}
    if page.more or len(kept) < len(page.hits):
        read = dict.fromkeys(shown_id(i) for i in [*excluded, *(hit.message.session_id for hit in kept)])
        payload["next"] = {"exclude_session_ids": list(read)}
    return payload


def fit_around(
    hit: Hit,
    older: Sequence[tuple[Message, str]],
    newer: Sequence[tuple[Message, str]],
    head: dict[str, Any],
    budget: int,
    show: Show,
) -> dict[str, Any]:
    """A message with as many of its neighbours (nearest first) each way as fit, `AROUND` at most.

    `next` leads on where there is one more.
    """
    show.learn([hit])
    if show.redact is None:
        head["redacted"] = False
    each = max(200, min(1_500, budget // 8))
    sides = (older, newer)

    def compose(taken: Sequence[int], share: int) -> dict[str, Any]:
        hit.context = [*reversed(older[: taken[0]]), *newer[: taken[1]]]
        shown = show.hit(hit, budget // share, each, 0)
        del shown["score_source"]  # nothing was scored
        onward = {
            name: {"around_message_id": side[max(1, count) - 1][0].id}
            for name, side, count in zip(("earlier", "later"), sides, taken, strict=True)
            if count < len(side)
        }
        return {**head, "results": [shown], **({"next": onward} if onward else {})}

    for share in (3, 5, 8, 20):  # quotes and line ends count twice in JSON
        payload = compose([0, 0], share)
        if size(payload) <= budget:
            break
    taken, growing, turn = [0, 0], [0, 1], 0
    while growing:
        side = growing[turn % len(growing)]
        wider = [n + (i == side) for i, n in enumerate(taken)]
        attempt = compose(wider, share) if wider[side] <= min(AROUND, len(sides[side])) else None
        if attempt is None or size(attempt) > budget:
            growing.remove(side)
            continue
        taken, payload, turn = wider, attempt, turn + 1
    if size(payload) <= budget:
        return payload
    return {**{k: v for k, v in head.items() if k not in EXTRAS}, "omitted": {"by_size": 1}}
