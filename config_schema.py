"""The settings, parsed once at the rim. Pure.

A value that cannot be read falls back to its default and leaves a sentence in
`problems`: a typing slip in config.yaml must not cost anybody their search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_RESULT_CHARS = (2_000, 7_500, 60_000)  # least, default, most


@dataclass(frozen=True, slots=True)
class Settings:
    """`owner_chats` holds `platform:user_id` pairs, lower case in the platform."""

    max_result_chars: int = MAX_RESULT_CHARS[1]
    owner_chats: frozenset[str] = frozenset()
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
            platform, colon, user = str(entry).strip().partition(":")
            if colon and platform.strip() and user.strip():
                chats.add(f"{platform.strip().lower()}:{user.strip()}")
            elif str(entry).strip():
                problems.append("An entry of owner_chats is not platform:user_id; it is ignored.")
        return cls(chars, frozenset(chats), tuple(problems))
