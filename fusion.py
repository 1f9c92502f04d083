"""Bring the two legs together: gated, weighted fusion of relative scores by message. Pure.

A leg's score counts relative to its best, not by its rank: ranks throw away how
clear a winner is, and did worse on every set of conversations. The keyword leg
is gated by how much of the query's rarity its best hit covers, so that chance
words never outrank meaning. What stands beside a keyword hit, and what the rest
of its conversation holds, are evidence too. The constants were chosen on one
half of the evaluation sets; bench/README.md has the table of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

SEMANTIC_WEIGHT = 0.5
SHARPNESS = 1.3  # power of a relative similarity: cosines lie close together
GATE = (0.15, 0.4)  # coverage at which the keyword leg begins to count, and counts in full
NEIGHBOURS = (0.15, 0.05)  # of a keyword score, to the messages one and two away
CONVERSATION = 1.5  # of the mean of a conversation's three best, to each of its candidates
TOGETHER = 0.6  # of a score, times the coverage of its conversation's hits taken together
COVERAGE_FLOOR = 0.3  # a keyword score counts times this plus the coverage
POOL = 200  # messages a leg brings
PER_CONVERSATION = 1  # hits of a page, before the other conversations have had theirs
YIELDS = 0.35  # of a further hit's score: to those of other conversations that have at least so much


@dataclass(frozen=True, slots=True)
class Candidate:
    """A message one of the legs found.

    `keyword` is its bm25-like score (0: none), `coverage` the part of the query's
    rarity its words make up (0 to 1), `together` that of all candidates of its
    conversation, `similarity` its cosine to the query (None: not among the
    nearest). `root` and `position` say where it stands.
    """

    id: int
    root: str
    position: int
    keyword: float
    coverage: float
    similarity: float | None
    together: float = 0.0


def fuse(candidates: Sequence[Candidate], *, semantic_weight: float = SEMANTIC_WEIGHT) -> list[tuple[int, float]]:
    """(message id, score), best first. With no similarities the words alone decide, and no gate."""
    near = nearest(candidates)[:POOL] if semantic_weight else []
    gate = _gate(candidates) if near else 1.0
    words = _best_first({i: s for i, s in _with_neighbours(candidates).items() if s > 0})[:POOL]
    if not near:
        worded = {c.id for c in candidates if c.keyword > 0}
        words = [(i, score) for i, score in words if i in worded]
    fused: dict[int, float] = {}
    for i, score in words:
        fused[i] = gate * score / words[0][1]
    for i, relative in near:
        fused[i] = fused.get(i, 0.0) + semantic_weight * relative**SHARPNESS
    fused = {i: score for i, score in fused.items() if score > 0}
    evidence = _by_conversation(candidates, fused)
    return _best_first(
        {
            c.id: (fused[c.id] + CONVERSATION * evidence[c.root]) * (1 + TOGETHER * c.together)
            for c in candidates
            if c.id in fused
        }
    )


def nearest(candidates: Sequence[Candidate]) -> list[tuple[int, float]]:
    """(message id, similarity from 0 for the farthest to 1 for the nearest), best first: the semantic leg alone."""
    found = _best_first({c.id: c.similarity for c in candidates if c.similarity is not None})
    if not found:
        return []
    least, most = found[-1][1], found[0][1]
    return [(i, (s - least) / (most - least) if most > least else 1.0) for i, s in found]


class Page(NamedTuple):
    """Message ids, best first; how many yielded to other conversations; whether others stood behind the last."""

    ids: list[int]
    yielded: int
    more: bool


def share(ranked: Iterable[tuple[int, float]], root_of: Callable[[int], str], limit: int) -> Page:
    """The best `limit` of (message id, score). A conversation that has had its share yields, but only to its equals:
    its only rival may be far behind, and the one match of a page is never hidden."""
    chosen, spare = list[tuple[float, int]](), list[tuple[float, int]]()
    taken: dict[str, int] = {}
    yielded, more = 0, False
    for i, score in ranked:
        root = root_of(i)
        if taken.get(root, 0) >= PER_CONVERSATION:
            spare.append((score, i))
        elif len(chosen) < limit:
            taken[root] = taken.get(root, 0) + 1
            chosen.append((score, i))
        else:
            more = True
            break
    for score, i in spare:
        if len(chosen) >= limit and chosen[-1][0] >= YIELDS * score:
            yielded += 1
            continue
        if len(chosen) >= limit:
            chosen.pop()
            more = True
        chosen.append((score, i))
        chosen.sort(key=lambda pair: -pair[0])
    return Page([i for _, i in chosen], yielded, more or yielded > 0)


def _best_first(scores: Mapping[int, float]) -> list[tuple[int, float]]:
    # Of equals the older, which is the original of a copy.
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))


def _with_neighbours(candidates: Sequence[Candidate]) -> dict[int, float]:
    own = {c.id: c.keyword * (COVERAGE_FLOOR + c.coverage) for c in candidates}
    at = {(c.root, c.position): c.id for c in candidates}
    spread = dict(own)
    for c in candidates:
        for distance, part in enumerate(NEIGHBOURS, 1):
            for position in (c.position - distance, c.position + distance):
                beside = at.get((c.root, position))
                if beside is not None:
                    spread[c.id] += part * own[beside]
    return spread


def _gate(candidates: Sequence[Candidate]) -> float:
    best = max(candidates, key=lambda c: c.keyword * (COVERAGE_FLOOR + c.coverage))
    low, high = GATE
    return min(1.0, max(0.0, (best.coverage - low) / (high - low))) if best.keyword > 0 else 0.0


def _by_conversation(candidates: Sequence[Candidate], fused: Mapping[int, float]) -> dict[str, float]:
    scores: dict[str, list[float]] = {}
    for c in candidates:
        if c.id in fused:
            scores.setdefault(c.root, []).append(fused[c.id])
    return {root: sum(sorted(found, reverse=True)[:3]) / 3 for root, found in scores.items()}
