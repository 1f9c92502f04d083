"""The settings, parsed once at the rim. Pure.

A value that cannot be read falls back to its default and leaves a sentence in
`problems`: a typing slip in config.yaml must not cost anybody their search. An
endpoint has no default to fall back to: one that cannot be used is none at all.
No sentence repeats a value, which may hold a secret.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_RESULT_CHARS = (2_000, 7_500, 60_000)  # least, default, most
INDEX_BUDGET_S = (0.0, 3.0, 5.0)  # the whole answer has 8 s
PROVIDERS = ("local", "endpoint", "none")
MAX_DIMENSIONS = 8_192
MAX_MODEL = 200  # characters of a model's name

_URL = re.compile(r"(?P<scheme>[^:/?#]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?P<query>\?[^#]*)?(?P<fragment>#.*)?")
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^\[\]:]*)(?::(?P<port>[0-9]{1,5}))?")
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_.])?")
_PATH = re.compile(r"(/(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+)*")
_DEFAULT_PORT = {"http": 80, "https": 443}
# Two generations of IDNA turn these into two different hosts.
_TWO_READINGS = re.compile("[\u00df\u03c2\u200c\u200d]")
# "gpt-oss:120b-cloud", "gemma4:cloud": names with which a local Ollama passes a text on to its makers.
_CLOUD = re.compile(r"(?:^|[^a-z0-9])cloud(?:$|[^a-z0-9])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible API that makes embeddings, as it is asked for and as it is consented to.

    base_url: scheme, host, port and path in one spelling: lower case, no default port, no slash at the
        end, a host of other scripts in its `xn--` form. `/embeddings` is added to it.
    dimensions: how many values to ask for, 1 to 8192; None leaves it to the model.

    None can be built that is not in that spelling. Raises ValueError with a sentence that quotes nothing.
    """

    base_url: str
    model: str
    dimensions: int | None = None

    def __post_init__(self) -> None:
        if _canonical(self.base_url) != self.base_url:
            raise ValueError("The address of the endpoint is not in its one spelling; Endpoint.parse makes it so.")
        if not self.model or self.model != self.model.strip() or len(self.model) > MAX_MODEL:
            raise ValueError(f"embedding_model must name a model in 1 to {MAX_MODEL} characters.")
        if not self.model.isprintable():
            raise ValueError("embedding_model has control or invisible characters; type it anew.")
        if self.dimensions is not None and not 1 <= self.dimensions <= MAX_DIMENSIONS:
            raise ValueError(f"embedding_dimensions is not a whole number from 1 to {MAX_DIMENSIONS}.")

    @classmethod
    def parse(cls, base_url: Any, model: Any, dimensions: Any = None) -> Endpoint:
        """From what a person set. Raises ValueError with one sentence on what to change."""
        if not isinstance(base_url, str) or not base_url.strip():
            raise ValueError("embedding_base_url is not set; an example is http://localhost:11434/v1.")
        if not isinstance(model, str) or not model.strip():
            raise ValueError("embedding_model is not set; it names the model that the endpoint is to use.")
        return cls(_canonical(base_url.strip(" ")), model.strip(" "), _dimensions(dimensions))

    @property
    def host(self) -> str:
        """The host and its port, for logs and questions; an IPv6 address in its brackets."""
        return self.base_url.partition("://")[2].partition("/")[0]

    @property
    def loopback(self) -> bool:
        """Whether it is plainly this machine: `localhost`, 127.0.0.0/8 or ::1, in no other disguise."""
        match = _AUTHORITY.fullmatch(self.host)
        return match is not None and _is_loopback(match["host"])

    @property
    def needs_grant(self) -> bool:
        """Whether a text sent to it may leave this machine.

        A local server may have given a model of somebody else's a name of its own; no name tells that.
        """
        return not self.loopback or _CLOUD.search(self.model) is not None


def _canonical(url: str) -> str:
    """The one spelling of an endpoint's address. Raises ValueError."""
    if not url.isprintable() or "\\" in url or " " in url:
        raise ValueError("embedding_base_url has spaces, backslashes or control characters; type it anew.")
    match = _URL.fullmatch(url)
    if match is None or match["scheme"].lower() not in _DEFAULT_PORT:
        raise ValueError("embedding_base_url must begin with https://, or with http:// on this machine.")
    scheme = match["scheme"].lower()
    if "@" in match["authority"]:
        raise ValueError("embedding_base_url must not hold a user or password; the key is a setting of its own.")
    if match["query"] is not None or match["fragment"] is not None:
        raise ValueError("embedding_base_url must not have a query (?) or a fragment (#).")
    authority = _AUTHORITY.fullmatch(match["authority"])
    if authority is None or (authority["port"] is not None and not 1 <= int(authority["port"]) <= 65_535):
        raise ValueError("embedding_base_url has no host and port that can be read.")
    host = _canonical_host(authority["host"])
    path = match["path"].rstrip("/")
    if not _PATH.fullmatch(path) or {".", ".."} & set(path.split("/")):
        raise ValueError("embedding_base_url has a path that is not plain; it often is just /v1.")
    if path.endswith("/embeddings"):
        raise ValueError("embedding_base_url must end before /embeddings, which is added to it.")
    if scheme == "http" and not _is_loopback(host):
        raise ValueError("embedding_base_url must begin with https://: http:// is for localhost, 127.0.0.1 and [::1].")
    port = int(authority["port"] or _DEFAULT_PORT[scheme])
    return f"{scheme}://{host}{'' if port == _DEFAULT_PORT[scheme] else f':{port}'}{path}"


def _canonical_host(host: str) -> str:
    bad = ValueError("embedding_base_url has no host that can be read.")
    try:
        if host.startswith("["):
            address = ipaddress.IPv6Address(host[1:-1])
            if address.scope_id is not None:
                raise ValueError("embedding_base_url must not name a zone (%) in its host.")
            if address.ipv4_mapped is not None:  # which versions of Python write differently
                raise ValueError("embedding_base_url has an IPv4 address in IPv6 clothes; write the IPv4 address.")
            return f"[{address}]"
        if _TWO_READINGS.search(host):
            raise ValueError("embedding_base_url has a host of two readings; write it in its xn-- form.")
        host = host.lower() if host.isascii() else host.encode("idna").decode("ascii").lower()
    except (ipaddress.AddressValueError, UnicodeError):
        raise bad from None
    if not _HOST.fullmatch(host) or ".." in host:
        raise bad
    return host


def _is_loopback(host: str) -> bool:
    # By text and not by `is_loopback`, which takes ::ffff:127.0.0.1 for it in some versions of Python.
    try:
        return host in ("localhost", "[::1]") or ipaddress.IPv4Address(host) in ipaddress.IPv4Network("127.0.0.0/8")
    except ipaddress.AddressValueError:
        return False


def _dimensions(given: Any) -> int | None:
    if given is None or given == "":
        return None
    number = int(given) if isinstance(given, float) and given.is_integer() else given
    if isinstance(number, str) and re.fullmatch(r"\s*[0-9]{1,6}\s*", number):
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MAX_DIMENSIONS:
        raise ValueError(f"embedding_dimensions is not a whole number from 1 to {MAX_DIMENSIONS}.")
    return number


@dataclass(frozen=True, slots=True)
class Settings:
    """`owner_chats` holds `platform:user_id` pairs, lower case in the platform.

    `endpoint` is None unless `embedding_provider` is "endpoint", and then too when it cannot be used:
    `problems` says why, and no other provider takes its place.
    """

    max_result_chars: int = MAX_RESULT_CHARS[1]
    owner_chats: frozenset[str] = frozenset()
    embedding_provider: str = "local"
    index_budget_s: float = INDEX_BUDGET_S[1]
    problems: tuple[str, ...] = ()
    endpoint: Endpoint | None = None

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
        endpoint = None
        if provider == "endpoint":
            named = (raw.get(key) for key in ("embedding_base_url", "embedding_model", "embedding_dimensions"))
            try:
                endpoint = Endpoint.parse(*named)
            except ValueError as error:
                problems.append(str(error))
        least_s, budget, most_s = INDEX_BUDGET_S
        given = raw.get("index_budget_s")
        if given is not None:
            try:
                budget = min(most_s, max(least_s, float(str(given).strip())))
            except ValueError:
                problems.append(f"index_budget_s is not a number of seconds; {budget:g} is used.")
        return cls(chars, frozenset(chats), provider, budget, tuple(problems), endpoint)
