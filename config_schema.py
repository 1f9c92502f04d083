"""The settings, parsed once at the rim. Pure.

A value that cannot be read falls back to its default and leaves a sentence in
`problems`: a typing slip in config.yaml must not cost anybody their search.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_RESULT_CHARS = (2_000, 7_500, 60_000)  # least, default, most
INDEX_BUDGET_S = (0.0, 3.0, 5.0)  # the whole answer has 8 s
PROVIDERS = ("local", "none")


@dataclass(frozen=True, slots=True)
class Settings:
    """`owner_chats` holds `platform:user_id` pairs, lower case in the platform."""

    max_result_chars: int = MAX_RESULT_CHARS[1]
    owner_chats: frozenset[str] = frozenset()
    embedding_provider: str = "local"
    index_budget_s: float = INDEX_BUDGET_S[1]
    problems: tuple[str, ...] = ()

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Settings:
        problems: list[str] = []
        least, default, most = MAX_RESULT_CHARS
        chars = default
        given = raw.get("max_result_chars")
        if given is not None:
            try:
                chars = min(most, max(least, int(str(given).strip())))
            except ValueError:
                problems.append(f"max_result_chars is not a whole number; {default} is used.")
        chats: set[str] = set()
        listed = raw.get("owner_chats") or []
        for entry in listed.split(",") if isinstance(listed, str) else listed if isinstance(listed, list) else [listed]:
            # `- telegram: 42`, with a space, is a mapping in YAML.
            pairs = entry.items() if isinstance(entry, Mapping) else [str(entry).partition(":")[::2]]
            for platform, user in ((str(p).strip().lower(), str(u or "").strip()) for p, u in pairs):
                if platform and re.fullmatch(r"[^\s\[\]{}]+", user):
                    chats.add(f"{platform}:{user}")
                elif platform or user:
                    problems.append("An entry of owner_chats is not platform:user_id; it is ignored.")
        provider = str(raw.get("embedding_provider") or "local").strip().lower()
        if provider not in PROVIDERS:
            problems.append(f"embedding_provider is one of {', '.join(PROVIDERS)}; local is used.")
            provider = "local"
        least_s, budget, most_s = INDEX_BUDGET_S
        given = raw.get("index_budget_s")
        if given is not None:
            try:
                budget = min(most_s, max(least_s, float(str(given).strip())))
            except ValueError:
                problems.append(f"index_budget_s is not a number of seconds; {budget:g} is used.")
        return cls(chars, frozenset(chats), provider, budget, tuple(problems))
