"""Vectors from an OpenAI-compatible API. Sends nothing without a permit, and nothing but the texts.

The permit is asked before every request, a second try's too. Texts go to the one
address it was given for: a redirect is an error, and nothing is sent to where it
points. On this machine no proxy is used. An answer is bounded in time and bytes,
whatever the server does, and checked whole before any of it is returned. The key
travels in one header and is in no message and no log.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import json
import logging
import re
import socket
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple

from .config_schema import MAX_DIMENSIONS, Endpoint
from .embeddings import BatchRefused, Chunking, EmbedderUnavailable, lacking
from .errors import RecallError
from .text import one_line

if TYPE_CHECKING:
    import ssl

    import httpx
    from numpy.typing import NDArray

    from .consent import Permit

WRITTEN = Chunking(tokens=300, context=400, plainly=False)  # what models of 512 tokens and more take whole
BATCH = 10  # texts of a request: some services take no more
BATCH_CHARS = 24_000
CONNECT_S = 5.0
READ_S = 30.0  # between two parts of an answer; a local server may first load the model
ENCODE_S = 60.0  # of a whole `encode`
RETRY_S = 0.5  # before the second try, unless the server says when
MOST_RETRY_S = 20.0
VALUE_BYTES = 40  # of a number in an answer, with its spaces
SPARE_BYTES = 64_000  # of an answer beside its numbers; of one that is an error, all
SAID = 80  # characters of what a server says

logger = logging.getLogger(__name__)


def model_name(endpoint: Endpoint) -> str:
    """How the fingerprints of its vectors begin."""
    return f"endpoint/{endpoint.base_url}/{endpoint.model}/{endpoint.dimensions or 'own'}/"


class EndpointEmbedder:
    """Texts to (n, dim) float32 rows, L2-normalised, over HTTP. Threads may share it.

    `permit` is for this very endpoint; ValueError otherwise. What it raises when it has been withdrawn passes
    through. `verify` is httpx's: True, or what to trust. `dim` is None until the first answer, unless the
    endpoint's settings say it or somebody who knows sets it; an answer of another width is refused.
    """

    chunking = WRITTEN
    batch = BATCH  # texts that one request takes: who gives no more at a time loses no more

    def __init__(
        self, *, endpoint: Endpoint, permit: Permit, api_key: str | None, verify: ssl.SSLContext | bool = True
    ) -> None:
        if permit.endpoint != endpoint:
            raise ValueError("the permit is for another endpoint")
        key = (api_key or "").strip()
        if not (key.isascii() and key.isprintable() and " " not in key):
            raise EmbedderUnavailable("The endpoint's key has characters that no key has; set it anew in .env.")
        self._endpoint = endpoint
        self._permit = permit
        self._key = key
        self._verify = verify
        self._deadline: float | None = None
        self._shared = _Shared()

    @property
    def fingerprint(self) -> str:
        return model_name(self._endpoint) + str(self.chunking)

    @property
    def dim(self) -> int | None:
        return self._endpoint.dimensions or self._shared.learnt.get("dim")

    @dim.setter
    def dim(self, known: int) -> None:
        self._shared.learnt["dim"] = known

    def until(self, deadline: float) -> EndpointEmbedder:
        """The same embedder for a call that must be answered by then (`time.monotonic()`); what it learns is shared."""
        other = copy.copy(self)
        other._deadline = deadline
        return other

    def encode(self, texts: Sequence[str]) -> NDArray[Any]:
        """All of them or `EmbedderUnavailable`, at the latest after `ENCODE_S` or at the deadline given."""
        try:
            import numpy as np
        except ImportError as error:
            raise EmbedderUnavailable(lacking("numpy")) from error
        if not texts:
            return np.empty((0, self.dim or 0), dtype=np.float32)
        until = time.monotonic() + ENCODE_S
        if self._deadline is not None:
            until = min(until, self._deadline)
        late = f"The endpoint {self._endpoint.host} did not answer in time."
        if until <= time.monotonic():
            raise EmbedderUnavailable(late)
        clean = [text.encode("utf-8", "replace").decode() or " " for text in texts]
        line = self._line()
        result: Future[NDArray[Any]] = Future()

        def work() -> None:
            try:
                vectors = self._embed(clean, line, until)
            except BaseException as error:
                line.client.close()
                result.set_exception(error)
            else:
                self._shared.idle.append(line)
                result.set_result(vectors)

        # A thread, because nothing else ends a name that is not resolved or a header that is never done.
        # The profile of this call, which the permit may ask for, is in its context variables.
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(work,), name="project-history-recall-endpoint", daemon=True).start()
        try:
            return result.result(max(0.0, until - time.monotonic()))
        except TimeoutError:
            raise EmbedderUnavailable(late) from None
        finally:
            if not result.done():
                line.cut()

    def _line(self) -> _Line:
        """A connection that is idle, or a new one."""
        while self._shared.idle:
            with contextlib.suppress(IndexError):  # another thread took it
                line = self._shared.idle.pop()
                if not line.gone.is_set():
                    return line
                line.client.close()
        try:
            import httpx
        except ImportError as error:
            raise EmbedderUnavailable(lacking("httpx")) from error
        try:
            client = httpx.Client(
                verify=self._verify,
                trust_env=not self._endpoint.loopback,  # else a proxy would read what was to stay here
                follow_redirects=False,
                limits=httpx.Limits(max_connections=1),
                headers={"User-Agent": "project-history-recall", "Accept-Encoding": "identity"},
            )
        except Exception as error:  # a proxy or a certificate file that the environment names wrongly
            raise EmbedderUnavailable(
                f"The endpoint {self._endpoint.host} cannot be asked ({type(error).__name__});"
                " check the proxy and certificate variables of Hermes' environment."
            ) from None
        return _Line(client)

    def _embed(self, texts: Sequence[str], line: _Line, until: float) -> NDArray[Any]:
        import numpy as np

        width = self.dim
        found: list[NDArray[Any]] = []
        for batch in _batches(texts):
            content = self._ask(batch, line, until)
            vectors = self._checked(content, len(batch), width)
            width = vectors.shape[1]
            found.append(vectors)
        if width is not None and self._shared.learnt.setdefault("dim", width) != width:
            raise self._bad("of two widths")  # another thread learnt the other one meanwhile
        return np.concatenate(found)

    def _ask(self, texts: Sequence[str], line: _Line, until: float) -> bytes:
        """What the endpoint answers, asked again once where that may help. Raises `EmbedderUnavailable`."""
        wanted: dict[str, Any] = {"model": self._endpoint.model, "input": texts, "encoding_format": "float"}
        if self._endpoint.dimensions:
            wanted["dimensions"] = self._endpoint.dimensions
        body = json.dumps(wanted, ensure_ascii=False, separators=(",", ":")).encode()
        most = SPARE_BYTES + len(texts) * (self.dim or MAX_DIMENSIONS) * VALUE_BYTES
        for last in (False, True):
            self._permit.check()
            answer = self._post(body, most, line, until)
            logger.debug("%s: status %d, %d texts", self._endpoint.host, answer.status, len(texts))
            if answer.status == 200:
                return answer.content
            pause = answer.retry_after
            if last or pause is None or pause > MOST_RETRY_S or time.monotonic() + pause >= until:
                break
            if line.gone.wait(pause):
                break
        logger.info("%s: status %d for %d texts", self._endpoint.host, answer.status, len(texts))
        raise self._failure(answer)

    def _post(self, body: bytes, most: int, line: _Line, until: float) -> _Answer:
        import httpx

        left = max(0.01, until - time.monotonic())
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        url = self._endpoint.base_url + "/embeddings"
        timeout = httpx.Timeout(min(READ_S, left), connect=min(CONNECT_S, left))
        host = self._endpoint.host
        try:
            with line.client.stream(
                "POST", url, content=body, headers=headers, timeout=timeout, extensions={"trace": line.watch}
            ) as response:
                status = response.status_code
                if response.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
                    # Not unpacked: a small one may be very large.
                    return _unread(response, "packed")
                content = bytearray()
                for part in response.iter_raw():
                    content += part
                    if len(content) > (most if status == 200 else SPARE_BYTES):
                        return _unread(response, "too long")
                return _Answer(status, bytes(content), _retry_after(response))
        except RecallError:
            raise
        except httpx.TimeoutException as error:
            raise EmbedderUnavailable(f"The endpoint {host} did not answer in time ({type(error).__name__}).") from None
        except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
            return _Answer(0, b"", RETRY_S)
        except httpx.ConnectError as error:
            untrusted = "CERTIFICATE_VERIFY_FAILED" in str(error)
            why = "its certificate is not trusted" if untrusted else "there is no connection; is it running?"
            raise EmbedderUnavailable(f"The endpoint {host} cannot be reached: {why}") from None
        except Exception as error:  # their words may hold a header
            raise EmbedderUnavailable(f"The endpoint {host} cannot be asked ({type(error).__name__}).") from None

    def _failure(self, answer: _Answer) -> EmbedderUnavailable:
        host, status = self._endpoint.host, answer.status
        if status == 0:
            return EmbedderUnavailable(f"The endpoint {host} closed the connection without an answer.")
        if status == -1:
            return self._bad(answer.content.decode())
        what = f"The endpoint {host} answered {status}"
        if 300 <= status < 400:
            return EmbedderUnavailable(
                f"{what}, a redirect, which is not followed; set embedding_base_url to where it leads."
            )
        said = self._said(answer.content)
        if said:
            what += f': "{said}"'
        match status:
            case 401 | 403:
                return EmbedderUnavailable(f"{what}. Check its key, PROJECT_HISTORY_RECALL_API_KEY in .env.")
            case 404:
                return EmbedderUnavailable(f"{what}. Check embedding_base_url and embedding_model.")
            case 400 | 413 | 422:
                return BatchRefused(f"{what}.")
        return EmbedderUnavailable(f"{what}. Try again later.")

    def _said(self, content: bytes) -> str:
        """The words of a server's error: one short line, the key taken out."""
        text = content.decode("utf-8", "replace")
        with contextlib.suppress(ValueError, RecursionError):
            told = json.loads(text)
            while isinstance(told, dict):
                told = next((told[name] for name in ("error", "message", "detail") if name in told), "")
            text = told if isinstance(told, str) else ""
        line = one_line(text, len(text) * 8 + 8)  # whole: a key that is cut would not be found
        if self._key:
            line = line.replace(self._key, "[key]")
        return one_line(line, SAID).rstrip(".")

    def _checked(self, content: bytes, count: int, width: int | None) -> NDArray[Any]:
        """The vectors of an answer, in the order of the texts. Raises `BatchRefused` when any is not right."""
        import numpy as np

        try:
            rows = json.loads(content)["data"]
        except (ValueError, RecursionError, KeyError, TypeError):
            raise self._bad("not the JSON of embeddings") from None
        if not isinstance(rows, list) or len(rows) != count:
            raise self._bad("not one vector a text")
        ordered: list[list[float] | None] = [None] * count
        for row in rows:
            at, vector = (row.get("index"), row.get("embedding")) if isinstance(row, dict) else (None, None)
            if type(at) is not int or not 0 <= at < count or ordered[at] is not None:
                raise self._bad("not clear on which vector is of which text")
            if not isinstance(vector, list) or not {type(value) for value in vector} <= {int, float}:
                raise self._bad("not made of numbers")
            ordered[at] = vector
        widths = {len(vector or ()) for vector in ordered}
        if len(widths) != 1 or not 0 < min(widths) <= MAX_DIMENSIONS:
            raise self._bad("not of one width")
        if width is not None and widths != {width}:
            raise self._bad(f"of {min(widths)} values a vector where {width} are expected")
        try:
            vectors = np.array(ordered, dtype=np.float64)
        except OverflowError:
            raise self._bad("not finite") from None
        if not np.isfinite(vectors).all():  # Python's JSON takes NaN, and 1e999 for infinity
            raise self._bad("not finite")
        peaks = np.abs(vectors).max(axis=1, keepdims=True)
        if not peaks.all():
            raise self._bad("a vector of zeros")
        vectors /= peaks  # first: the square of a large or tiny number is none
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors.astype(np.float32)

    def _bad(self, what: str) -> BatchRefused:
        return BatchRefused(f"What the endpoint {self._endpoint.host} answered is {what}; nothing of it was kept.")


class _Answer(NamedTuple):
    """`status` is 0 without an answer and -1 for one that cannot be read; `retry_after` None when it is final."""

    status: int
    content: bytes
    retry_after: float | None


class _Line:
    """One connection to an endpoint, which another thread can cut."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.gone = threading.Event()
        self._socket: socket.socket | None = None

    def watch(self, event: str, info: Mapping[str, Any]) -> None:
        """httpx' trace of a request: keep the socket, and send nothing for a caller who has gone."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            self._socket = info["return_value"].get_extra_info("socket")
        elif event.endswith(".send_request_headers.started") and self.gone.is_set():
            raise EmbedderUnavailable("The call has ended.")

    def cut(self) -> None:
        self.gone.set()
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it has ended, or is in its handshake, which has a limit of its own
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # of TLS too, without its ceremony


class _Shared:
    """What an embedder and those made from it by `until` have in common."""

    def __init__(self) -> None:
        self.idle: list[_Line] = []
        self.learnt: dict[str, int] = {}
        weakref.finalize(self, _close, self.idle)


def _close(idle: list[_Line]) -> None:
    while idle:
        idle.pop().client.close()


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    for text in texts:
        if batch and (len(batch) >= BATCH or sum(map(len, batch)) + len(text) > BATCH_CHARS):
            yield batch
            batch = []
        batch.append(text)
    yield batch


def _unread(response: httpx.Response, why: str) -> _Answer:
    """An answer that is left where it is: without its words when it is an error."""
    if response.status_code == 200:
        return _Answer(-1, why.encode(), None)
    return _Answer(response.status_code, b"", _retry_after(response))


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds until a second try is worth it; None when it is not."""
    if response.status_code != 429 and response.status_code < 500:
        return None
    header = response.headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", header):
        return float(header)
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return RETRY_S
