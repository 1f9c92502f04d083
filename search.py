"""One search, from its arguments to its answer.

The scope is fixed before anything is ranked; every hit and every message of a
context window is read again from the live rows before it is shown.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from . import agreement
from .answers import AROUND, Hit, Page, Redact, Show, fit, fit_around, inner, size, when
from .config_schema import Settings
from .errors import EmptyQuery, NotInProject
from .fusion import SEMANTIC_WEIGHT, Candidate, fuse, nearest, share
from .keywords import Found, KeywordLeg, Query, Term, parse
from .request import Request
from .scope import Caller, Disk, Everywhere, Reach, Scope, choose_project, reading, resolve, with_conversations
from .semantic import Meaning, Remote, SemanticLeg, Wanted
from .state import MAX_CONTENT, Message, State
from .text import ATTACHED, MULTIPART, NOTICE, OWN_ANSWER, fold, one_line, said

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")

KEYWORD_POOL = 120  # keyword candidates whose texts are read before they are ranked
FIRST_EMBEDDED = 40  # keyword hits that are embedded first, with what lies beside them
BATCHES = 8  # times that a context window reads further for want of messages
FEW_HITS = 3  # under which the answer says what lies elsewhere
STRONG = 0.5  # of the best score: what counts as being on the topic
CRON_WEIGHT = 0.5  # scheduled runs repeat themselves and drown what people said
DEADLINE_S = 6.0  # after which a statement is interrupted; an answer takes at most 8 s
GRACE_S = 1.2  # for reading what was found, however long finding took
EXTRAS_S = 2.0  # seconds after which an answer stops looking for extras


class Surroundings(Disk, Protocol):
    """What a search needs from outside: where it reads, and what the host lends it."""

    @property
    def profile(self) -> str: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def redact(self) -> Redact | None: ...
    def machine_id(self) -> str: ...
    def api_key(self) -> str | None: ...
    def trust(self, url: str) -> ssl.SSLContext | bool: ...


def run(
    args: Mapping[str, Any],
    surroundings: Surroundings,
    identify: Callable[[Everywhere], Caller],
    cwd: str | None = None,
    drifted: Callable[[Caller, Everywhere], dict[str, Any] | None] = lambda *_: None,
    ask: agreement.Ask = lambda *_: "nobody_present",
) -> dict[str, Any]:
    """Answer one call. `cwd` stands in for the calling conversation at a command line.

    `drifted` says when that conversation has left the project it was moved to (see `move.drifted`).
    `ask` puts a question to the person in front of the call, which waits for them.
    """
    request = Request.parse(args)

    def scoped(state: State, everywhere: Everywhere) -> Scope:
        caller = identify(everywhere)
        if request.project is None and cwd is not None:
            ref = everywhere.at(cwd)
        else:
            ref = choose_project(request.project, caller, everywhere)
        return resolve(
            caller, everywhere, ref, session=request.session, exclude=request.exclude, titles=state.titles
        )

    asked = ""
    if request.ask_consent and surroundings.settings.endpoint is not None:
        with reading(surroundings, time.monotonic() + DEADLINE_S) as (state, everywhere):
            questions = _questions(scoped(state, everywhere), state, surroundings)
        asked = questions.put(ask)
    with reading(surroundings, time.monotonic() + DEADLINE_S) as (state, everywhere):
        scope = scoped(state, everywhere)
        semantic = SemanticLeg(
            surroundings.home,
            surroundings.settings,
            redact=surroundings.redact,
            connect=surroundings.connect,
            remote=_remote(scope, surroundings),
        )
        return answer(
            request,
            scope,
            state,
            surroundings.settings,
            semantic=semantic,
            redact=surroundings.redact,
            profile=surroundings.profile,
            drifted=drifted(scope.caller, everywhere),
            asked=asked,
            open_requests=lambda: _open_requests(scope, surroundings),
        )


def _remote(scope: Scope, surroundings: Surroundings) -> Remote | None:
    endpoint = surroundings.settings.endpoint
    if endpoint is None or scope.project.kind == "home":
        return None
    keys = agreement.keys_of(endpoint, scope.project, scope.caller, scope.everywhere)
    return Remote(endpoint, keys, agreement.grants_of(surroundings), surroundings.api_key, surroundings.trust)


def _open_requests(scope: Scope, surroundings: Surroundings) -> list[agreement.Request]:
    """What a person would have to agree to for this search."""
    endpoint = surroundings.settings.endpoint
    if endpoint is None or scope.project.kind == "home":
        return []
    keys = agreement.keys_of(endpoint, scope.project, scope.caller, scope.everywhere)
    return agreement.requests(endpoint, agreement.grants_of(surroundings), scope.everywhere, keys)


def _questions(scope: Scope, state: State, surroundings: Surroundings) -> agreement.Questions:
    wanted = _open_requests(scope, surroundings)
    texts = [agreement.question(one, state, scope.everywhere) for one in wanted]
    return agreement.Questions(wanted, texts, scope.caller, surroundings, scope.everywhere)


def answer(
    request: Request,
    scope: Scope,
    state: State,
    settings: Settings,
    *,
    semantic: SemanticLeg,
    redact: Redact | None,
    profile: str = "",
    drifted: dict[str, Any] | None = None,
    asked: str = "",
    open_requests: Callable[[], list[agreement.Request]] = list,
) -> dict[str, Any]:
    """The whole answer of a search over a scope. Raises the errors of `errors.py`.

    `asked` tells how asking for consent came out, `open_requests` what could be asked for.
    """
    head = _head(request, scope)
    if drifted:
        head["drifted"] = drifted
    if scope.project.kind == "home":
        return _home(head, scope, settings.max_result_chars)
    show = Show(scope, state, redact, profile)

    def consent(meaning: Meaning) -> Meaning:
        if meaning.status != "consent_required" and not asked:
            return meaning
        wanted = open_requests() if scope.caller.reach is Reach.PROFILE else []
        if wanted and meaning.status == "consent_required":
            head["consent"] = [agreement.told(one, state, scope.everywhere) for one in wanted]
        more = asked or (agreement.hint(wanted) if wanted else "")
        return replace(meaning, detail=f"{meaning.detail} {more}".strip())

    if request.around is not None:
        head.update(_status(consent(semantic.status(scope.everywhere, _roots(scope)))))
        return _read_on(request, scope, state, settings, head, show)
    query = parse(request.query)
    if not query.terms:
        raise EmptyQuery("`query` holds nothing that can be looked for: give a word, a symbol or a phrase.")
    leg = KeywordLeg(state)
    cron = [s.id for s in scope.rows.values() if s.source == "cron"]
    leg.prepare(scope.rows, request.after, request.before, cron=cron)
    found = leg.find(query)
    if not found.scores and (looser := query.loosened()).terms:
        query, found = looser, leg.find(looser)
    _grant(state, GRACE_S)
    hits, rarity = _keyword_hits(scope, state, query, found, leg)
    meaning = _meaning(request, scope, state, semantic, leg, hits)
    _grant(state, GRACE_S)
    ranked, hits = _rank(request, scope, state, query, hits, rarity, meaning, found.skipped)
    page = _page(request, scope, state, ranked, hits, found.skipped)
    page.more = page.more or found.full
    head.update(_topic(scope, ranked, hits, page, full=found.full))
    head.update(_in_time(lambda: _extras(request, scope, state, leg, query, found, page), state, found.skipped) or {})
    _in_time(lambda: show.learn(page.hits), state, found.skipped)
    head.update(_status(consent(meaning), request.mode, page.hits))
    if found.skipped:
        head["keyword_detail"] = _skipped(found.skipped)
    return fit(request.exclude, head, page, settings.max_result_chars, show)


def _extras(
    request: Request, scope: Scope, state: State, leg: KeywordLeg, query: Query, found: Found, page: Page
) -> dict[str, Any]:
    """What makes the hits more useful, and what is said when there are few, as far as time allows."""
    until = time.monotonic() + EXTRAS_S
    if state.deadline is not None:
        until = min(until, state.deadline)
    words = any(hit.matched for hit in page.hits)
    if len(page.hits) < request.limit or not words:
        tools = leg.find(query, roles=("tool",), limit=40)
        found.skipped += tools.skipped
        _add_tool_hits(request, scope, state, query, tools, page)
    _add_context(request, scope, state, page, until)
    _add_ends(scope, state, leg, page, until)
    head: dict[str, Any] = {}
    if (len(page.hits) < FEW_HITS or not words) and scope.caller.reach is Reach.PROFILE:
        if request.session is None and time.monotonic() < until:
            head.update(_elsewhere(request, scope, state, query))
        left_out = {"hidden": scope.hidden, "no_folder": scope.no_folder}
        if any(left_out.values()):
            head["excluded"] = {k: v for k, v in left_out.items() if v}
    return head


def _head(request: Request, scope: Scope) -> dict[str, Any]:
    ref = scope.project
    project = {"kind": ref.kind, "id": one_line(ref.id, 400), "name": one_line(ref.name)}
    if scope.caller.reach is not Reach.PROFILE:
        project["id"] = project["id"] if ref.kind == "explicit" else project["name"]  # no path of the owner's disk
    elif ref.because:
        project["because"] = one_line(ref.because, 200)
    own = scope.everywhere.ref(scope.caller.acting_id).key if scope.caller.acting_id else ref.key
    if own != ref.key:
        project["widened"] = "named by the `project` argument; the calling conversation belongs elsewhere"
    head: dict[str, Any] = {
        "notice": NOTICE,
        "success": True,
        "mode": request.mode,
        "project": project,
        "results": [],
        "sessions_in_scope": scope.conversations,
        "semantic_status": "disabled",
    }
    return head


def _status(meaning: Meaning, mode: str = "keyword", hits: Sequence[Hit] = ()) -> dict[str, str]:
    """How far the search by meaning is, and what that means for these hits."""
    told: dict[str, str] = {"semantic_status": meaning.status}
    details = [meaning.detail] if meaning.detail else []
    if mode == "semantic" and meaning.status == "disabled":
        details.append("The search by meaning is switched off (`embedding_provider: none`).")
    if mode == "semantic" and hits and not meaning.similarities:
        details.append("These hits were found by their words.")
    if mode == "hybrid" and hits and not any(hit.matched for hit in hits):
        details.append("No message holds these words; these are the nearest in meaning, which may be far.")
    if details:
        told["semantic_detail"] = " ".join(details)
    return told


def _roots(scope: Scope) -> list[str]:
    """The conversations of a scope, the newest first."""
    roots: dict[str, float] = {}
    for row in scope.rows.values():
        root = scope.everywhere.lineages.root(row.id)
        roots[root] = max(roots.get(root, 0.0), row.started_at)
    return sorted(roots, key=lambda root: -roots[root])


def _home(head: dict[str, Any], scope: Scope, budget: int) -> dict[str, Any]:
    head["sessions_in_scope"] = 0
    if scope.caller.reach is Reach.PROFILE:
        head["reason"] = (
            "This conversation has no project folder (it is in Home), and Home is not searched."
            " Name one with `project`."
        )
        listed = with_conversations(scope.caller, scope.everywhere)
        if listed:
            head["candidates"] = [
                {**row, "id": one_line(row["id"], 400), "name": one_line(row["name"])} for row in listed
            ]
            while head["candidates"] and size(head) > budget:
                head["candidates"].pop()
    else:
        head["reason"] = "This chat belongs to no project, and conversations without one are not searched."
    return head


# -- choosing the hits ------------------------------------------------------


def _digest(text: str) -> bytes:
    return hashlib.blake2b(" ".join(text.split()).encode("utf-8", "replace"), digest_size=16).digest()


def _keyword_hits(
    scope: Scope, state: State, query: Query, found: Found, leg: KeywordLeg
) -> tuple[dict[int, Hit], dict[Term, float]]:
    """The keyword candidates that still hold the words in what was said, with score and coverage,
    and what part of the query's rarity each of its words makes up."""
    hits: dict[int, Hit] = {}
    ranked = found.ranked()
    for start in range(0, len(ranked), KEYWORD_POOL):
        block = ranked[start : start + KEYWORD_POOL]
        rows = _in_time(partial(state.messages, block), state, found.skipped) or {}
        for row_id in block:
            hit = _hit(scope, state, query, rows[row_id]) if row_id in rows else None
            if hit is not None:
                hit.score = found.scores[row_id] * _weight(scope, hit.message)
                hits[row_id] = hit
        if len(hits) >= KEYWORD_POOL // 4:
            break  # else the first block was mostly scaffolds or the caller's own words
    standing = [hit.terms for hit in hits.values()]
    rarity = _in_time(lambda: leg.rarity(query, standing), state, found.skipped) or dict.fromkeys(query.terms, 1.0)
    total = sum(rarity.values()) or 1.0
    rarity = {term: part / total for term, part in rarity.items()}
    for hit in hits.values():
        hit.coverage = _covered(hit.terms, rarity)
    return hits, rarity


def _covered(terms: Iterable[Term], rarity: Mapping[Term, float]) -> float:
    return min(1.0, sum(rarity.get(term, 0.0) for term in terms))


def _meaning(
    request: Request,
    scope: Scope,
    state: State,
    semantic: SemanticLeg,
    leg: KeywordLeg,
    hits: Mapping[int, Hit],
) -> Meaning:
    roots = _roots(scope)
    if request.mode == "keyword" or not roots:
        return semantic.status(scope.everywhere, roots)
    best: dict[str, list[int]] = {}
    for row_id in sorted(hits, key=lambda i: -hits[i].score * (1 + hits[i].coverage))[:FIRST_EMBEDDED]:
        root = scope.everywhere.lineages.root(hits[row_id].message.session_id)
        best.setdefault(root, []).append(row_id)
    own = scope.caller.session_id
    eligible = lambda ids: leg.eligible(ids, except_live_of=own)  # noqa: E731
    return semantic.find(Wanted(request.query, state, scope.everywhere, roots, best, eligible))


def _rank(
    request: Request,
    scope: Scope,
    state: State,
    query: Query,
    hits: dict[int, Hit],
    rarity: Mapping[Term, float],
    meaning: Meaning,
    skipped: list[str],
) -> tuple[list[tuple[int, float]], dict[int, Hit]]:
    """(message id, score), best first, of what the legs found, and the hits behind them."""
    wanted = [i for i in meaning.similarities if i not in hits]
    rows = _in_time(lambda: state.messages(wanted), state, skipped) or {}
    hits = dict(hits)
    for row_id, message in rows.items():
        hit = _hit(scope, state, query, message, by_meaning=True)
        if hit is not None:
            hits[row_id] = hit
    if any(hit.matched for hit in hits.values()) and not query.of("word", "gram"):
        hits = {i: hit for i, hit in hits.items() if hit.matched}  # what was asked is a string, not a meaning
    positions = _positions(scope, state, hits, skipped)
    together: dict[str, set[Term]] = {}
    for row_id, hit in hits.items():
        together.setdefault(positions[row_id][0], set()).update(hit.terms)
    covered = {root: _covered(terms, rarity) for root, terms in together.items()}
    candidates = [
        Candidate(
            i, *positions[i], hit.score, hit.coverage, meaning.similarities.get(i), covered[positions[i][0]]
        )
        for i, hit in hits.items()
    ]
    for row_id, hit in hits.items():
        near = row_id in meaning.similarities
        hit.source = "both" if near and hit.matched else "semantic" if near else "keyword"
        hit.at = meaning.places.get(row_id, 0)
    if request.mode == "semantic" and meaning.similarities:
        return nearest(candidates), hits
    if not candidates:
        return [], hits
    weight = SEMANTIC_WEIGHT * meaning.share
    return fuse(candidates, semantic_weight=weight), hits


def _in_time(read: Callable[[], T], state: State, skipped: list[str]) -> T | None:
    """What is read, or None where the time is up: what was found is answered all the same."""
    try:
        return read()
    except sqlite3.OperationalError as error:
        if "interrupted" not in str(error):
            raise
        skipped.append("too_slow")
        _grant(state, GRACE_S / 4)
        return None


def _grant(state: State, seconds: float) -> None:
    """This much time from now at least, for reading what was found."""
    if state.deadline is not None:
        state.deadline = max(state.deadline, time.monotonic() + seconds)


def _positions(
    scope: Scope, state: State, hits: Mapping[int, Hit], skipped: list[str]
) -> dict[int, tuple[str, int]]:
    """Where each message stands: its conversation, and its place among what was said there.

    A place is only asked for beside a message that holds the words, so the others are not looked up.
    """
    lineages = scope.everywhere.lineages
    roots = {row_id: lineages.root(hit.message.session_id) for row_id, hit in hits.items()}
    worded = {roots[row_id] for row_id, hit in hits.items() if hit.score > 0}
    crowded = [root for root, count in Counter(roots.values()).items() if count > 1 and root in worded]
    counts: dict[str, int] = {}
    positions: dict[int, tuple[str, int]] = {}
    members = sorted(m for root in crowded for m in lineages.members(root))
    for session_id, message_id in _in_time(lambda: state.order(members), state, skipped) or ():
        root = lineages.root(session_id)
        counts[root] = counts.get(root, 0) + 1
        positions[message_id] = (root, counts[root])
    for row_id, root in roots.items():  # the others, and a row that came while we looked
        positions.setdefault(row_id, (root, -row_id))
    return positions


def _page(
    request: Request,
    scope: Scope,
    state: State,
    ranked: Sequence[tuple[int, float]],
    hits: Mapping[int, Hit],
    skipped: list[str],
) -> Page:
    """The best distinct messages that the calling agent does not have before it."""
    page = Page()
    live = (_in_time(lambda: _live_texts(scope, state), state, skipped) if ranked else None) or set()
    seen: set[bytes] = set()

    def distinct() -> Iterator[tuple[int, float]]:
        for row_id, score in ranked:
            digest = _digest(hits[row_id].text)
            if digest in live or _is_live(hits[row_id].message, scope):
                continue
            if digest in seen:
                page.duplicates += 1
                continue
            seen.add(digest)
            yield row_id, score

    chosen = share(distinct(), lambda i: scope.everywhere.lineages.root(hits[i].message.session_id), request.limit)
    page.hits = [hits[i] for i in chosen.ids]
    page.same_conversation, page.more = chosen.yielded, chosen.more
    return page


def _weight(scope: Scope, message: Message) -> float:
    session = scope.rows.get(message.session_id)
    return CRON_WEIGHT if session and session.source == "cron" else 1.0


def _hit(scope: Scope, state: State, query: Query, message: Message, *, by_meaning: bool = False) -> Hit | None:
    """The message as a hit, None when a person could not see there what was looked for."""
    if message.session_id not in scope.rows:
        return None
    text = _said(message)
    folded = fold(inner(text))
    matched = query.matched(folded)
    if text and not matched and not by_meaning and _is_beginning(message):
        end = ATTACHED if message.role == "user" else ()
        for term in query.terms:
            text = said("tool", state.excerpt(message.id, term.stem or term.text, end))
            folded = fold(inner(text))
            if matched := query.matched(folded):
                break
    if not text or not (matched or by_meaning) or query.refuses(folded):
        return None
    return Hit(message, text, matched, query.needles(folded), query.standing(folded))


def _is_beginning(message: Message) -> bool:
    """Whether more of it is stored than was read. A list of parts is read whole, as is what has a NUL in it."""
    content = message.content
    return isinstance(content, str) and len(content) == MAX_CONTENT and not content.startswith(MULTIPART)


def _said(message: Message) -> str:
    """What a person saw of a message; where only its beginning was read, the end is marked as cut."""
    text = said(message.role, message.content)
    return text + " …" if text and _is_beginning(message) else text


def _is_live(message: Message, scope: Scope) -> bool:
    """Whether the calling agent has it before it."""
    return bool(message.active) and message.session_id == scope.caller.session_id


def _live_texts(scope: Scope, state: State) -> set[bytes]:
    if not scope.caller.session_id:
        return set()
    return {_digest(said(role, content)) for role, content in state.live_contents(scope.caller.session_id)}


def _add_tool_hits(
    request: Request, scope: Scope, state: State, query: Query, found: Found, page: Page
) -> None:
    """Tool output comes last: where nothing else fills the page, or where nothing else holds the words."""
    room = request.limit - len(page.hits)
    if not room and not any(hit.matched for hit in page.hits):
        room = min(max(1, request.limit // 3), request.limit - 1)  # the best hit stays
    seen = {_digest(hit.text) for hit in page.hits}
    added: list[Hit] = []
    for row_id in found.ranked()[:40]:
        message = state.messages([row_id]).get(row_id)
        if message is None or (message.session_id == scope.caller.session_id and message.active):
            continue
        hit = _hit(scope, state, query, message)
        if hit is None or OWN_ANSWER in hit.text[:1_000]:
            continue  # an answer of ours quotes what was found then, not what was said
        if _digest(hit.text) in seen:
            continue
        if len(added) == room:
            page.more = True
            break
        seen.add(_digest(hit.text))
        added.append(hit)
    page.hits = page.hits[: request.limit - len(added)] + added


def _topic(
    scope: Scope, ranked: Sequence[tuple[int, float]], hits: Mapping[int, Hit], page: Page, *, full: bool
) -> dict[str, Any]:
    """How much was said with these words in scope, and until when: is it still current?"""
    worded = [hits[i] for i, _ in ranked if hits[i].matched and hits[i].message.session_id != scope.caller.session_id]
    best = max((hit.strength for hit in worded), default=0.0)
    strong = {_digest(hit.text): hit for hit in reversed(worded) if hit.strength >= STRONG * best}.values()
    if len(strong) < 2:
        return {}
    newest = max(strong, key=lambda hit: (hit.message.timestamp, hit.message.id))
    newest.newest = True
    times = [hit.message.timestamp for hit in strong]
    topic: dict[str, Any] = {
        "messages": len(strong),
        "conversations": len({scope.everywhere.lineages.root(hit.message.session_id) for hit in strong}),
        "first": when(min(times))[:10],
        "last": when(max(times))[:10],
    }
    if full and len(strong) == len(worded):
        topic["at_least"] = True
    if newest not in page.hits:
        topic["newest_message_id"] = newest.message.id
    return {"topic": topic}


def _add_context(request: Request, scope: Scope, state: State, page: Page, until: float) -> None:
    """What stands beside each hit; nothing is shown twice."""
    shown = {hit.message.id for hit in page.hits}
    for hit in page.hits:
        if not request.context or time.monotonic() > until:
            return
        sides = _beside(scope, state, hit.message, hit.text, request.context)
        hit.context = [
            (message, words) for message, words in [*reversed(sides[0]), *sides[1]] if message.id not in shown
        ]
        shown.update(message.id for message, _ in hit.context)


def _beside(
    scope: Scope, state: State, message: Message, text: str, count: int
) -> tuple[list[tuple[Message, str]], list[tuple[Message, str]]]:
    """The `count` messages before and after one in its conversation, nearest first, copies left out."""
    rows = [m for m in scope.everywhere.lineages.members(message.session_id) if m in scope.rows]
    seen = {_digest(text)}
    sides: tuple[list[tuple[Message, str]], list[tuple[Message, str]]] = ([], [])
    for found, newer in zip(sides, (False, True), strict=True):
        at = message.id
        for _ in range(BATCHES):  # past a stretch of copies and of rows that nobody saw
            batch = state.around(rows, at, count * 3 + 2, newer=newer)
            for other in batch:
                words = said(other.role, other.content)
                if words and _digest(words) not in seen and len(found) < count:
                    seen.add(_digest(words))
                    found.append((other, words))
            if len(found) == count or not batch:
                break
            at = batch[-1].id
    return sides


def _add_ends(scope: Scope, state: State, leg: KeywordLeg, page: Page, until: float) -> None:
    """How it came out: the last message of a hit's conversation that holds the same rare words."""
    shown = {hit.message.id for hit in page.hits} | {m.id for hit in page.hits for m, _ in hit.context}
    told: set[int] = set()
    for hit in page.hits:
        if hit.message.role == "tool" or time.monotonic() > until:
            continue
        rare = sorted(dict.fromkeys(hit.terms), key=leg.document_frequency)[:2]
        rows = [m for m in scope.everywhere.lineages.members(hit.message.session_id) if m in scope.rows]
        last = leg.last_mention(rare, rows, hit.message.id, until)
        if last is None or last in shown or last in told:
            continue
        message = state.messages([last]).get(last)
        words = _said(message) if message else ""
        if message and words and not _is_live(message, scope):
            told.add(last)
            hit.ends = (message, words)


def _elsewhere(request: Request, scope: Scope, state: State, query: Query) -> dict[str, Any]:
    """Messages per other project that hold all the words, for an owner who found little here."""
    counts: dict[str, tuple[int, str]] = {}  # project id -> messages, name
    everywhere = scope.everywhere
    for session_id, count in KeywordLeg(state).count_all(query, request.after, request.before):
        if session_id not in everywhere.by_id:
            continue
        root = everywhere.lineages.root(session_id)
        ref = everywhere.ref(root)
        if ref.kind == "home" or ref.key == scope.project.key:
            continue
        if not everywhere.is_internal(root) and not everywhere.is_hidden(root):
            counts[ref.id] = (counts.get(ref.id, (0, ""))[0] + count, ref.name)
    most = sorted(counts.items(), key=lambda pair: -pair[1][0])[:5]
    listed = [{"project": one_line(i, 400), "name": one_line(name), "messages": n} for i, (n, name) in most]
    return {"elsewhere": listed} if listed else {}


def _skipped(codes: Iterable[str]) -> str:
    sentences = {
        "index_missing": "the host's search index is missing, so the messages themselves were read",
        "index_unreadable": "the host's search index could not be read, so the messages themselves were read",
        "index_damaged": "the host's search index is damaged, so the messages themselves were read",
        "rows_unreadable": "some messages could not be read",
        "too_slow": "some messages were not searched in the time allowed",
        "large_attachments": "older messages with large attachments were not searched",
    }
    text = "; ".join(sentences[code] for code in dict.fromkeys(codes))
    return text[0].upper() + text[1:] + "."


def _read_on(
    request: Request, scope: Scope, state: State, settings: Settings, head: dict[str, Any], show: Show
) -> dict[str, Any]:
    """The message asked for, and as many of its neighbours each way as fit."""
    assert request.around is not None
    message = state.messages([request.around]).get(request.around)
    if message is None or message.session_id not in scope.rows:
        raise NotInProject(
            f"No message {request.around} can be read in this project: take a `message_id` from an answer"
            " (and the same `project`, if one was named)."
        )
    text = _said(message)
    query = parse(request.query)
    folded = fold(text)
    hit = Hit(message, text, query.matched(folded), query.needles(folded), query.standing(folded))
    older, newer = _beside(scope, state, message, text, AROUND + 1)
    return fit_around(hit, older, newer, head, settings.max_result_chars, show)
