"""Bring the two legs together: gated, weighted reciprocal rank fusion by message. Pure.

Each leg gives a message its relative score over (K + rank), so that a clear
winner counts for more than the first of equals. The keyword leg is gated by how
much of the query's rarity its best hit covers: chance words never outrank
meaning. What stands beside a keyword hit, and what the rest of a conversation
says, are evidence too. The constants were chosen on one half of the evaluation
sets and are reported on the other; bench/README.md has the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

K = 5
SEMANTIC_WEIGHT = 0.5
GATE = (0.1, 0.3)  # coverage at which the keyword leg begins to count, and counts in full
NEIGHBOURS = (0.15, 0.05)  # of a keyword score, to the messages one and two away
CONVERSATION = 0.3  # of the mean of a conversation's three best, to each of its candidates
COVERAGE_FLOOR = 0.3  # a keyword score counts times this plus the coverage
POOL = 200  # messages a leg brings


@dataclass(frozen=True, slots=True)
class Candidate:
    """A message one of the legs found.

    `keyword` is its bm25-like score (0: none), `coverage` the part of the query's
    rarity its words make up (0 to 1), `similarity` its cosine to the query (None:
    not among the nearest). `root` and `position` say where it stands.
    """

    id: int
    root: str
    position: int
    keyword: float
    coverage: float
    similarity: float | None


def fuse(candidates: Sequence[Candidate], *, semantic_weight: float = SEMANTIC_WEIGHT) -> list[tuple[int, float]]:
    """(message id, score), best first. With no similarities it is the keyword leg's own order."""
    scores = _with_neighbours(candidates)
    if all(c.similarity is None for c in candidates):
        return _best_first({c.id: scores[c.id] for c in candidates if c.keyword > 0})
    gate = _gate(candidates)
    fused: dict[int, float] = dict.fromkeys((c.id for c in candidates), 0.0)
    words = _best_first({i: s for i, s in scores.items() if s > 0})[:POOL]
    for rank, (i, score) in enumerate(words, 1):
        fused[i] += gate * score / words[0][1] / (K + rank)
    near = _best_first({c.id: c.similarity for c in candidates if c.similarity is not None})[:POOL]
    least, most = near[-1][1], near[0][1]
    for rank, (i, similarity) in enumerate(near, 1):
        relative = (similarity - least) / (most - least) if most > least else 1.0
        fused[i] += semantic_weight * relative / (K + rank)
    fused = {i: score for i, score in fused.items() if score > 0}
    evidence = _by_conversation(candidates, fused)
    return _best_first({c.id: fused[c.id] + CONVERSATION * evidence[c.root] for c in candidates if c.id in fused})


def nearest(candidates: Sequence[Candidate]) -> list[tuple[int, float]]:
    """(message id, similarity), best first: the semantic leg's own order."""
    return _best_first({c.id: c.similarity for c in candidates if c.similarity is not None})


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
