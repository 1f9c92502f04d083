"""Bringing the legs together: what outranks what, and what never does."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest
from project_history_recall.fusion import (
    GATE,
    PER_CONVERSATION,
    POOL,
    SEMANTIC_WEIGHT,
    YIELDS,
    Candidate,
    fuse,
    nearest,
    share,
)


def found(
    id: int,
    *,
    root: str | None = None,
    position: int = 0,
    keyword: float = 0.0,
    coverage: float = 0.0,
    similarity: float | None = None,
    together: float = 0.0,
) -> Candidate:
    """A candidate; by default alone in a conversation of its own."""
    return Candidate(id, f"c{id}" if root is None else root, position, keyword, coverage, similarity, together)


def order(candidates: Iterable[Candidate], weight: float = SEMANTIC_WEIGHT) -> list[int]:
    return [i for i, _ in fuse(list(candidates), semantic_weight=weight)]


def scores(*candidates: Candidate) -> dict[int, float]:
    return dict(fuse(candidates))


def crowd(count: int, begin: int = 1000, most: float = 0.3) -> list[Candidate]:
    """Messages that are near the query as anything is, each a little less than the one before."""
    return [found(begin + i, similarity=most - i * 0.001) for i in range(count)]


# --- one leg alone ----------------------------------------------------------------------------------


def test_nothing_found_is_nothing() -> None:
    assert fuse([]) == []
    assert nearest([]) == []


def test_without_similarities_the_order_is_that_of_the_words() -> None:
    hits = [
        found(1, keyword=2, coverage=0.5),
        found(2, keyword=9, coverage=0.5),
        found(3, keyword=4, coverage=0.5),
    ]
    assert order(hits) == [2, 3, 1]


def test_without_similarities_even_chance_words_are_given() -> None:
    assert order([found(1, keyword=0.2, coverage=0.01)]) == [1]


def test_a_message_with_more_of_the_querys_rarity_comes_first() -> None:
    assert order([found(1, keyword=5, coverage=0.1), found(2, keyword=5, coverage=0.9)]) == [2, 1]


def test_a_neighbour_that_no_word_matched_is_no_hit() -> None:
    hits = [found(1, root="a", position=1, keyword=5, coverage=1), found(2, root="a", position=2)]
    assert order(hits) == [1]


def test_the_nearest_are_in_order_of_their_similarity() -> None:
    hits = [found(1, similarity=0.2), found(2, keyword=9, coverage=1), found(3, similarity=0.7)]
    assert nearest(hits) == [(3, 1.0), (1, 0.0)]
    second, relative = nearest([*hits, found(4, similarity=0.6)])[1]
    assert second == 4
    assert relative == pytest.approx(0.8)


def test_with_weight_zero_the_order_is_that_of_the_words() -> None:
    words = [found(i, keyword=20 - i, coverage=0.5 + i / 50) for i in range(1, 12)]
    both = [replace(c, similarity=c.id / 100) for c in words]
    assert order(both, weight=0) == order(words, weight=0)


def test_with_weight_zero_what_only_means_it_is_left_out() -> None:
    assert order([found(1, keyword=5, coverage=1), found(2, similarity=0.9)], weight=0) == [1]


# --- both -------------------------------------------------------------------------------------------


def test_an_exact_symbol_comes_first_whatever_is_near() -> None:
    assert order([found(1, keyword=12, coverage=1), *crowd(POOL, most=0.95)])[0] == 1


def test_what_both_legs_found_outranks_what_either_found() -> None:
    hits = [
        found(1, keyword=5, coverage=0.8, similarity=0.5),
        found(2, keyword=5, coverage=0.8),
        found(3, similarity=0.5),
        *crowd(20),
    ]
    assert order(hits)[0] == 1


@pytest.mark.parametrize("strength", [0.5, 5, 50, 5_000])
def test_chance_words_never_outrank_meaning(strength: float) -> None:
    chance = [found(i, keyword=strength * (1 - i / 100), coverage=GATE[0]) for i in range(1, 40)]
    meant = found(500, similarity=0.6)
    ranked = order([*chance, meant, *crowd(POOL - 1)])
    assert ranked[0] == 500
    assert not set(ranked) & {c.id for c in chance}


def test_the_gate_opens_with_the_coverage_of_the_best_hit() -> None:
    def first(coverage: float) -> int:
        return order([found(1, keyword=8, coverage=coverage), found(2, similarity=0.6), *crowd(20)])[0]

    low, high = GATE
    assert [first(c) for c in (0, low, high, 1)] == [2, 2, 1, 1]
    steps = [low + (high - low) * part for part in (0.25, 0.5, 0.75, 1)]
    opening = [scores(found(1, keyword=8, coverage=c), found(2, similarity=0.6))[1] for c in steps]
    assert opening == sorted(opening)
    assert len(set(opening)) == 4


def test_the_gate_is_that_of_the_best_hit_not_of_the_most_covered() -> None:
    best = found(1, keyword=100, coverage=0.1)
    covered = found(2, keyword=0.1, coverage=1)
    assert order([best, covered, found(3, similarity=0.5)]) == [3]


def test_the_semantic_leg_grows_with_its_weight() -> None:
    hits = [found(1, keyword=5, coverage=1), found(2, similarity=0.9), *crowd(5)]
    assert order(hits, weight=0.2)[0] == 1
    assert order(hits, weight=5)[0] == 2


def test_a_clear_winner_counts_for_more_than_the_first_of_equals() -> None:
    clear = [found(1, similarity=0.9), *(found(i, similarity=0.2 - i / 1000) for i in range(2, 12))]
    close = [found(i, similarity=0.9 - i / 1000) for i in range(1, 12)]
    assert scores(*clear)[2] < scores(*close)[2]


@pytest.mark.parametrize("similarity", [-0.4, 0.0, 0.9])
def test_a_single_near_message_counts_in_full(similarity: float) -> None:
    assert order([found(1, similarity=similarity)]) == [1]
    assert len(order([found(1, similarity=similarity), found(2, similarity=similarity)])) == 2


# --- evidence ---------------------------------------------------------------------------------------


def test_what_stands_beside_a_hit_is_raised_the_more_the_nearer_it_is() -> None:
    def raised(distance: int) -> float:
        hit = found(1, root="a", position=10 + distance, keyword=9, coverage=1)
        return scores(hit, found(2, root="a", position=10, similarity=0.4))[2]

    assert raised(1) > raised(2) > raised(3) == raised(4)
    assert raised(1) == raised(-1)


def test_a_place_in_another_conversation_is_not_beside() -> None:
    hit = found(1, root="a", position=5, keyword=9, coverage=1)
    beside, elsewhere = (
        found(2, root="a", position=6, similarity=0.4),
        found(3, root="b", position=6, similarity=0.4),
    )
    given = scores(hit, beside, elsewhere, *crowd(3))
    assert given[2] > given[3]


def test_a_message_is_raised_by_what_else_its_conversation_says() -> None:
    said, *others = (found(i, root="talk", position=10 * i, similarity=0.5) for i in (1, 2, 3))
    elsewhere = [replace(c, root=f"c{c.id}") for c in others]
    assert scores(said, *others, *crowd(10))[1] > scores(said, *elsewhere, *crowd(10))[1]


def test_no_more_than_three_of_a_conversation_are_evidence() -> None:
    best = [found(i, root="talk", position=10 * i, similarity=0.5) for i in (1, 2, 3)]
    more = [found(i, root="talk", position=10 * i, similarity=0.3) for i in range(4, 9)]
    elsewhere = [replace(c, root="elsewhere") for c in more]
    assert scores(*best, *more, *crowd(9))[1] == scores(*best, *elsewhere, *crowd(9))[1]


def test_by_words_alone_too_a_message_is_raised_by_what_else_its_conversation_says() -> None:
    talk = [found(i, root="talk", position=10 * i, keyword=4, coverage=0.5) for i in (2, 3, 4)]
    assert order([found(1, keyword=4.2, coverage=0.5), *talk])[:3] == [2, 3, 4]


def test_a_conversation_that_holds_more_of_the_query_comes_first() -> None:
    hits = [
        found(1, root="half", keyword=5, coverage=0.5, similarity=0.5, together=0.5),
        found(2, root="whole", keyword=5, coverage=0.5, similarity=0.5, together=1.0),
    ]
    assert order([*hits, *crowd(5)])[:2] == [2, 1]


# --- a page -----------------------------------------------------------------------------------------


def page(limit: int, *hits: tuple[str, float]) -> list[str]:
    """The conversations of a page, in order; hits are given best first."""
    roots = [root for root, _ in hits]
    chosen = share(enumerate(score for _, score in hits), roots.__getitem__, limit)
    assert chosen.more == (chosen.yielded > 0 or len(chosen.ids) + chosen.yielded < len(hits))
    return [roots[i] for i in chosen.ids]


def test_a_conversation_yields_to_those_that_are_nearly_as_good() -> None:
    assert page(3, ("a", 1.0), ("a", 0.9), ("a", 0.8), ("b", 0.7), ("c", 0.6)) == ["a", "b", "c"]


def test_a_conversation_does_not_yield_to_what_is_far_behind() -> None:
    far = 0.8 * YIELDS - 0.01
    assert page(3, ("a", 1.0), ("a", 0.9), ("a", 0.8), ("b", far), ("c", far / 2)) == ["a", "a", "a"]
    assert page(2, ("a", 1.0), ("a", 0.9), ("b", 0.9 * YIELDS)) == ["a", "b"]


def test_where_nobody_else_matches_one_conversation_has_the_page() -> None:
    assert page(3, *[("a", 1.0 - n / 10) for n in range(5)]) == ["a"] * 3


def test_a_page_is_in_order_of_its_scores() -> None:
    assert page(4, ("a", 1.0), ("a", 0.9), ("b", 0.5), ("c", 0.1)) == ["a", "a", "b", "c"]


@pytest.mark.parametrize("seed", range(50))
def test_sharing_anything(seed: int) -> None:
    dice = random.Random(seed)
    hits = sorted(((dice.random(), dice.choice("abcdef")) for _ in range(dice.randint(0, 30))), reverse=True)
    limit = dice.randint(1, 20)
    given = page(limit, *[(root, score) for score, root in hits])
    assert len(given) == min(limit, len(hits))
    assert not hits or given[0] == hits[0][1]
    if len(hits) > limit and hits[limit - 1][0] > 0 and len({root for _, root in hits[:limit]}) == limit:
        assert max(given.count(root) for root in given) == PER_CONVERSATION


# --- whatever is given ------------------------------------------------------------------------------


def any_candidates(dice: random.Random) -> list[Candidate]:
    return [
        Candidate(
            id,
            dice.choice("abcd"),
            place,
            keyword=dice.choice((0.0, 0.0, 1.0, dice.uniform(0, 30))),
            coverage=dice.choice((0.0, 1.0, dice.random())),
            similarity=dice.choice((None, 0.0, 0.5, dice.uniform(-1, 1))),
            together=dice.choice((0.0, 1.0, dice.random())),
        )
        for place, id in enumerate(dice.sample(range(1_000), dice.randint(0, 60)))
    ]


@pytest.mark.parametrize("seed", range(200))
def test_fusing_anything(seed: int) -> None:
    dice = random.Random(seed)
    candidates = any_candidates(dice)
    weight = dice.choice((0.0, 0.05, SEMANTIC_WEIGHT))
    fused = fuse(candidates, semantic_weight=weight)
    given = [score for _, score in fused]
    assert {i for i, _ in fused} <= {c.id for c in candidates}
    assert len({i for i, _ in fused}) == len(fused)
    assert given == sorted(given, reverse=True)
    assert all(score > 0 for score in given)
    # Of equals the older: not the one that happened to be found first.
    assert fused == sorted(fused, key=lambda pair: (-pair[1], pair[0]))
    shuffled = dice.sample(candidates, len(candidates))
    assert [i for i, _ in fuse(shuffled, semantic_weight=weight)] == [i for i, _ in fused]
    assert nearest(shuffled) == nearest(candidates)
    if weight and (near := nearest(candidates)):
        assert near[0][0] in dict(fused)


def test_a_message_beyond_the_pool_is_not_given() -> None:
    assert len(order(crowd(POOL + 50))) <= POOL
