"""The vectors of conversations in memory, so that the next search need not read them again.

A cache of `vectors.Store`, which says when a conversation has changed. Distances are exact, and equal to
sqlite-vec's to the last bit: sums of products of int8 are exact in float32 below 2**24, which holds for every
vector of up to 1040 values and every embedding known, and the extension too takes the roots in double precision
and rounds the result to float32.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

HELD_BYTES = 64_000_000  # of vectors, in a process and for a home: 125,000 pieces of 512 dimensions
KEY_BYTES = 16


class Far(NamedTuple):
    """A content and its cosine distance; the order of results, ties included."""

    distance: float
    conv: int
    key: bytes


class Unusable(ValueError):
    """A stored vector that is zero, or of another width than the query."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """Of one conversation, in the order of their keys: `keys` 16 bytes each, `values` (n, dim) int8, `norms` (n,)."""

    keys: bytes
    values: NDArray[Any]
    norms: NDArray[Any]

    @classmethod
    def of(cls, rows: Sequence[tuple[bytes, bytes]], dim: int) -> Vectors:
        """From (key, int8 vector of `dim` values). Raises `Unusable`."""
        import numpy as np

        if any(len(vector) != dim for _, vector in rows):
            raise Unusable
        values = np.frombuffer(b"".join(vector for _, vector in rows), np.int8).reshape(len(rows), dim)
        wide = values.astype(np.float32)
        norms = np.sqrt(np.einsum("ij,ij->i", wide, wide).astype(np.float64))
        if not norms.all():
            raise Unusable
        return cls(b"".join(key for key, _ in rows), values, norms)

    @property
    def size(self) -> int:
        return self.values.nbytes + self.norms.nbytes + len(self.keys)

    def key(self, n: int) -> bytes:
        return self.keys[n * KEY_BYTES : (n + 1) * KEY_BYTES]


def nearest(some: Mapping[int, Vectors], query: bytes, k: int) -> list[Far]:
    """The `k` nearest contents of these conversations to an int8 query, best first."""
    import numpy as np

    q = np.frombuffer(query, np.int8).astype(np.float32)
    norm = np.sqrt(np.float64(q @ q))
    parts = [
        (1 - (v.values.astype(np.float32) @ q).astype(np.float64) / (v.norms * norm)).astype(np.float32)
        for v in some.values()
    ]
    distances = np.concatenate(parts) if parts else np.empty(0, np.float32)
    if len(distances) > k:
        worst = np.partition(distances, k - 1)[k - 1]
        parts = [np.flatnonzero(part <= worst) for part in parts]  # with all that are level with the last
    else:
        parts = [np.arange(len(part)) for part in parts]
    ends = np.cumsum([0, *(len(v.norms) for v in some.values())])
    found = (
        Far(float(distances[start + n]), conv, v.key(n))
        for (conv, v), start, part in zip(some.items(), ends, parts, strict=False)
        for n in part.tolist()
    )
    return heapq.nsmallest(k, found)


class Held:
    """By model and conversation, at most `most` bytes; what was asked for longest ago goes first."""

    def __init__(self, most: int = HELD_BYTES) -> None:
        self._most = most
        self._size = 0
        self._vectors: dict[tuple[int, int], Vectors] = {}
        self._version: object = None

    def follow(self, version: object) -> None:
        """Forget everything if the file is not at this version: somebody else wrote it."""
        if version != self._version:
            self.clear()
            self._version = version

    def clear(self) -> None:
        self._vectors.clear()
        self._size = 0

    def drop(self, fp: int, conv: int | None) -> None:
        """This conversation's vectors have changed."""
        if conv is not None and (gone := self._vectors.pop((fp, conv), None)) is not None:
            self._size -= gone.size

    def take(self, fp: int, convs: Iterable[int]) -> dict[int, Vectors]:
        """Those of these conversations that are held."""
        taken = {}
        for conv in convs:
            if (found := self._vectors.pop((fp, conv), None)) is not None:
                self._vectors[fp, conv] = taken[conv] = found  # the last now
        return taken

    def keep(self, fp: int, conv: int, vectors: Vectors, wanted: Collection[int]) -> bool:
        """Hold these too, in the place of what is not `wanted`; False when that is not enough."""
        others = iter(list(self._vectors) if self._size + vectors.size > self._most else ())
        while self._size + vectors.size > self._most:
            other = next((o for o in others if o[0] != fp or o[1] not in wanted), None)
            if other is None:
                return False
            self.drop(*other)
        self._vectors[fp, conv] = vectors
        self._size += vectors.size
        return True
