"""A slip in config.yaml costs a setting, never a search; an endpoint has one spelling and no disguise."""

from __future__ import annotations

import os
import ssl
import tomllib
from pathlib import Path
from typing import Any

import pytest
from project_history_recall import host as hermes
from project_history_recall.config_schema import PROVIDERS, Endpoint, Settings

from demo import hosts


def test_nothing_set_is_the_defaults() -> None:
    assert Settings.parse({}) == Settings() == Settings.parse({"max_result_chars": None, "owner_chats": None})
    assert Settings().max_result_chars == 7_500
    assert Settings().owner_chats == frozenset()


@pytest.mark.parametrize(
    ("given", "used"),
    [(9_000, 9_000), ("9000", 9_000), (" 9000 ", 9_000), (2_000, 2_000), (60_000, 60_000), (1_999, 2_000), (0, 2_000),
     (-5, 2_000), ("1", 2_000), (60_001, 60_000), (10**30, 60_000)],
)  # fmt: skip
def test_a_budget_is_taken_and_kept_within_its_bounds(given: Any, used: int) -> None:
    assert Settings.parse({"max_result_chars": given}) == Settings(max_result_chars=used)


@pytest.mark.parametrize("given", ["", "many", "1e4", [], {}, [9_000], True, float("nan"), float("inf"), "9" * 9_999])
def test_a_budget_that_is_no_number_leaves_the_default_and_a_sentence(given: Any) -> None:
    settings = Settings.parse({"max_result_chars": given})
    assert settings.max_result_chars == 7_500
    assert len(settings.problems) == 1
    assert "max_result_chars" in settings.problems[0]


@pytest.mark.parametrize(
    ("given", "used"), [(5, 5), ("2.5", 2.5), (" 1 ", 1), (0, 0), (-1, 0), (99, 5), ("9" * 9_999, 5), (float("nan"), 0)]
)
def test_the_seconds_of_a_search_are_taken_and_kept_within_their_bounds(given: Any, used: float) -> None:
    assert Settings.parse({"index_budget_s": given}) == Settings(index_budget_s=used)


@pytest.mark.parametrize("given", ["", "long", "3s", [], {}, True])
def test_seconds_that_are_no_number_leave_the_default_and_a_sentence(given: Any) -> None:
    settings = Settings.parse({"index_budget_s": given})
    assert settings.index_budget_s == Settings().index_budget_s
    assert settings.problems == ("index_budget_s is not a number of seconds; 3 is used.",)


@pytest.mark.parametrize(
    ("given", "chats"),
    [
        (["telegram:42"], {"telegram:42"}),
        (["telegram:42", "matrix:@me:example.org"], {"telegram:42", "matrix:@me:example.org"}),
        (["telegram:42", "telegram:42"], {"telegram:42"}),
        ([" Telegram : 42 "], {"telegram:42"}),
        (["slack:U0AbC"], {"slack:U0AbC"}),
        ("telegram:42", {"telegram:42"}),
        ("telegram:42, discord:7", {"telegram:42", "discord:7"}),
        ([{"telegram": 42}], {"telegram:42"}),
        ({"telegram": 42, "discord": "7"}, {"telegram:42", "discord:7"}),
        ("", set()),
        ([], set()),
        (["", " "], set()),
    ],
)
def test_the_owners_chats_are_read_as_people_list_them(given: Any, chats: set[str]) -> None:
    settings = Settings.parse({"owner_chats": given})
    assert settings.owner_chats == chats
    assert not settings.problems


@pytest.mark.parametrize(
    "entry", ["telegram", "telegram:", ":42", 42, None, True, ["telegram:42"], {"telegram": [1, 2]}, {"telegram": None}]
)
def test_an_entry_that_names_no_chat_is_left_out_and_told(entry: Any) -> None:
    settings = Settings.parse({"owner_chats": [entry, "discord:7"]})
    assert settings.owner_chats == {"discord:7"}
    assert len(settings.problems) == 1


def test_a_problem_names_no_value() -> None:
    settings = Settings.parse({"max_result_chars": "hunter2", "owner_chats": ["hunter2"]})
    assert len(settings.problems) == 2
    assert "hunter2" not in "".join(settings.problems)


# --- the endpoint -----------------------------------------------------------------------------------

HERE = "http://localhost:11434/v1"
THERE = "https://api.example.com/v1"


@pytest.mark.parametrize(
    ("given", "spelling"),
    [
        (THERE, THERE),
        (THERE + "/", THERE),
        (THERE + "///", THERE),
        (f"  {THERE}  ", THERE),
        ("HTTPS://API.Example.COM/v1", THERE),
        ("https://api.example.com:443/v1", THERE),
        ("https://api.example.com:0443/v1", THERE),
        ("https://api.example.com", "https://api.example.com"),
        ("https://api.example.com/V1/Teams", "https://api.example.com/V1/Teams"),
        ("https://api.example.com:8443/v1", "https://api.example.com:8443/v1"),
        ("https://bücher.example/v1", "https://xn--bcher-kva.example/v1"),
        ("https://例え.example/v1", "https://xn--r8jz45g.example/v1"),
        ("http://localhost:80/v1", "http://localhost/v1"),
        ("http://LocalHost:11434/v1", HERE),
        ("http://[0:0:0:0:0:0:0:1]:8080/v1", "http://[::1]:8080/v1"),
        ("https://[2001:DB8::0:1]/v1", "https://[2001:db8::1]/v1"),
    ],
)
def test_an_address_has_one_spelling(given: str, spelling: str) -> None:
    endpoint = Endpoint.parse(given, "m")
    assert endpoint.base_url == spelling
    assert Endpoint.parse(spelling, "m") == endpoint == Endpoint(spelling, "m")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("https://me:hunter2@api.example.com/v1", "user or password"),
        ("https://hunter2@api.example.com/v1", "user or password"),
        ("http://localhost@hunter2.example/v1", "user or password"),
        ("https://api.example.com/v1?key=hunter2", "query"),
        ("https://api.example.com/v1?", "query"),
        ("https://api.example.com/v1#hunter2", "fragment"),
        ("https://api.example.com/v1#", "fragment"),
        ("ftp://hunter2.example/v1", "begin with https"),
        ("file:///etc/hunter2", "begin with https"),
        ("hunter2.example/v1", "begin with https"),
        ("hunter2:8080", "begin with https"),
        ("https:/hunter2.example", "begin with https"),
        ("//hunter2.example/v1", "begin with https"),
        ("https://", "no host"),
        ("https:///v1", "no host"),
        ("https://:443/v1", "no host"),
        ("https://hunter2.example:0/v1", "no host and port"),
        ("https://hunter2.example:65536/v1", "no host and port"),
        ("https://hunter2.example:1x/v1", "no host and port"),
        ("https://hunter2.example:١٢٣/v1", "no host and port"),
        ("https://[::1]hunter2.example/v1", "no host and port"),
        ("https://[hunter2]/v1", "no host"),
        ("https://[::1/v1", "no host and port"),
        ("https://[fe80::1%25hunter2]/v1", "zone"),
        ("http://[::1%lo]/v1", "zone"),
        ("https://[::ffff:127.0.0.1]/v1", "IPv4"),
        ("https://hunter2..example/v1", "no host"),
        ("https://hunter2%2eexample/v1", "no host"),
        ("https://hunter2 .example/v1", "spaces"),
        ("https://hunter2.example\\v1", "backslashes"),
        ("https://hunter2.exam\tple/v1", "control"),
        ("https://hunter2.example/v1\n", "control"),
        ("https://hunter2.example/\u202ev1", "control"),
        ("https://hunter2.example/\x00", "control"),
        ("https://straße.example/v1", "two readings"),
        ("https://exam\u200dple.com/v1", "control"),
        ("https://hunter2.example/../v1", "path"),
        ("https://hunter2.example/./v1", "path"),
        ("https://hunter2.example//v1", "path"),
        ("https://hunter2.example/v1%zz", "path"),
        ("https://hunter2.example/é", "path"),
        ("https://hunter2.example/v1/embeddings", "before /embeddings"),
        ("https://hunter2.example/v1/embeddings/", "before /embeddings"),
        ("http://api.hunter2.example/v1", "begin with https"),
        ("", "not set"),
        ("   ", "not set"),
        (None, "not set"),
        (11434, "not set"),
        (["https://api.example.com"], "not set"),
    ],
)
def test_an_address_that_is_not_plain_is_refused_in_one_sentence_without_its_words(given: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as refused:
        Endpoint.parse(given, "m")
    assert "hunter2" not in str(refused.value)
    assert str(refused.value).endswith(".")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [HERE, "http://127.0.0.1:8080/v1", "http://127.255.0.9/v1", "http://[::1]:1234", "https://localhost:8443/v1",
     "http://１２７.0.0.1/v1"],
)  # fmt: skip
def test_this_machine_needs_no_grant(url: str) -> None:
    endpoint = Endpoint.parse(url, "bge-m3")
    assert endpoint.loopback
    assert not endpoint.needs_grant


@pytest.mark.parametrize(
    "host",
    ["api.example.com", "localhost.example.com", "localhost.", "mylocalhost", "sub.localhost", "127.0.0.1.example.com",
     "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.01", "127.0.0.1.", "0.0.0.0", "10.0.0.1",
     "192.168.1.5", "128.0.0.1", "[::]", "[::2]", "[fe80::1]", "[::127.0.0.1]", "localhost_", "ip6-localhost"],
)  # fmt: skip
def test_what_is_not_plainly_this_machine_is_another(host: str) -> None:
    endpoint = Endpoint.parse(f"https://{host}/v1", "bge-m3")
    assert not endpoint.loopback
    assert endpoint.needs_grant
    with pytest.raises(ValueError, match="begin with https"):
        Endpoint.parse(f"http://{host}/v1", "bge-m3")


@pytest.mark.parametrize(
    "model",
    ["gpt-oss:120b-cloud", "gemma4:cloud", "GLM-4.6:Cloud", "qwen3-embedding:8b:cloud", "someone/embed:CLOUD",
     "embed-cloud", "cloud", "cloud/embed", "library/embed:8b-cloud:latest"],
)  # fmt: skip
def test_a_model_that_a_local_server_passes_on_to_a_cloud_needs_a_grant(model: str) -> None:
    assert Endpoint.parse(HERE, model).needs_grant


@pytest.mark.parametrize("model", ["bge-m3", "nomic-embed-text:latest", "soundcloud-embed", "cloudy:7b", "mycloud"])
def test_other_models_of_a_local_server_need_none(model: str) -> None:
    assert not Endpoint.parse(HERE, model).needs_grant


@pytest.mark.parametrize(
    "model", ["", "  ", None, 3, ["m"], "a\nb", "a\x00b", "a\u202eb", "a\u200bb", "\ud800", "m" * 201]
)
def test_a_model_that_is_none_is_refused(model: Any) -> None:
    with pytest.raises(ValueError, match="embedding_model"):
        Endpoint.parse(HERE, model)


@pytest.mark.parametrize(
    ("given", "used"), [(None, None), ("", None), (512, 512), ("512", 512), (" 512 ", 512), (512.0, 512), (8192, 8192)]
)
def test_dimensions_are_taken_as_people_write_them(given: Any, used: int | None) -> None:
    assert Endpoint.parse(HERE, "m", given).dimensions == used


@pytest.mark.parametrize("given", [0, -1, 8_193, "many", "5.5", 5.5, True, [512], float("nan"), float("inf"), "9" * 99])
def test_dimensions_that_are_none_are_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="embedding_dimensions"):
        Endpoint.parse(HERE, "m", given)


def test_no_endpoint_can_be_built_around_the_rules() -> None:
    for url in ("http://api.example.com/v1", "https://me@api.example.com", "HTTPS://api.example.com", THERE + "/"):
        with pytest.raises(ValueError):  # noqa: PT011  any of the sentences above
            Endpoint(url, "m")
    for model in ("", " m", "a\nb"):
        with pytest.raises(ValueError, match="embedding_model"):
            Endpoint(THERE, model)
    with pytest.raises(ValueError, match="embedding_dimensions"):
        Endpoint(THERE, "m", 0)


def test_the_host_is_told_with_its_port() -> None:
    assert [Endpoint.parse(url, "m").host for url in (THERE, HERE, "http://[::1]:8080")] == [
        "api.example.com", "localhost:11434", "[::1]:8080",
    ]  # fmt: skip


def test_httpx_asks_the_host_that_was_consented_to() -> None:
    httpx = pytest.importorskip("httpx")
    for url in (THERE, HERE, "https://bücher.example:8443/v1", "http://[::1]:8080/v1", "https://2130706433/v1"):
        endpoint = Endpoint.parse(url, "m")
        asked = httpx.URL(endpoint.base_url + "/embeddings")
        assert asked.netloc.decode() == endpoint.host
        assert str(asked) == endpoint.base_url + "/embeddings"


def test_the_settings_hold_the_endpoint_they_name() -> None:
    settings = Settings.parse(
        {"embedding_provider": "Endpoint", "embedding_base_url": HERE, "embedding_model": "bge-m3",
         "embedding_dimensions": 1024}
    )  # fmt: skip
    assert settings.endpoint == Endpoint(HERE, "bge-m3", 1024)
    assert (settings.embedding_provider, settings.problems) == ("endpoint", ())


def test_an_endpoint_that_cannot_be_used_is_told_and_no_other_provider_takes_its_place() -> None:
    for given in ({}, {"embedding_base_url": "http://hunter2.example", "embedding_model": "m"},
                  {"embedding_base_url": HERE, "embedding_model": "m", "embedding_dimensions": "hunter2"}):  # fmt: skip
        settings = Settings.parse({"embedding_provider": "endpoint", **given})
        assert (settings.embedding_provider, settings.endpoint) == ("endpoint", None)
        (problem,) = settings.problems
        assert "hunter2" not in problem


@pytest.mark.parametrize("provider", ["local", "none", None])
def test_an_endpoint_that_is_not_chosen_is_none(provider: Any) -> None:
    settings = Settings.parse({"embedding_provider": provider, "embedding_base_url": THERE, "embedding_model": "m"})
    assert settings.endpoint is None
    assert settings.problems == ()


def test_a_provider_that_nobody_knows_is_told() -> None:
    settings = Settings.parse({"embedding_provider": "hunter2"})
    assert settings.embedding_provider == "local"
    (problem,) = settings.problems
    assert all(provider in problem for provider in PROVIDERS)
    assert "hunter2" not in problem


# --- where the settings come from -------------------------------------------------------------------


def manifest() -> Any:
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((hosts.ROOT / "plugin.yaml").read_text("utf-8"))


def test_the_form_and_the_reader_know_the_same_settings() -> None:
    fields = manifest()["config_schema"]
    assert set(fields) == {*hermes.SETTINGS, "embedding_api_key"}
    assert tuple(fields["embedding_provider"]["choices"]) == PROVIDERS
    defaults = {name: field["default"] for name, field in fields.items() if "default" in field}
    assert Settings.parse(defaults) == Settings()


def test_pip_and_hermes_install_the_same_dependencies() -> None:
    project = tomllib.loads((hosts.ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert manifest()["python_dependencies"] == project["dependencies"]


NAME = "PROJECT_HISTORY_RECALL_API_KEY"


def test_the_key_is_a_secret_and_no_setting() -> None:
    assert manifest()["config_schema"]["embedding_api_key"]["env"] == NAME
    assert "embedding_api_key" not in hermes.SETTINGS
    settings = Settings.parse({"embedding_api_key": "hunter2", "embedding_provider": "endpoint"})
    assert "hunter2" not in repr(settings)


def test_without_hermes_a_secret_is_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, told in ((" sk-1 ", "sk-1"), ("", None), ("  ", None)):
        monkeypatch.setenv(NAME, value)
        assert hermes.secret(NAME) == told
    monkeypatch.delenv(NAME)
    assert hermes.secret(NAME) is None
    assert NAME not in os.environ


def test_without_hermes_httpx_decides_whom_to_trust() -> None:
    assert hermes.tls_trust(THERE) is True


@pytest.fixture(scope="module")
def told(probe: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each real host says of the settings, the key and the certificates."""
    folder = tmp_path_factory.mktemp("settings")
    home = folder / "home"
    chosen = {"embedding_provider": "endpoint", "embedding_base_url": HERE, "embedding_model": "bge-m3",
              "embedding_dimensions": 1024}  # fmt: skip
    hosts.install_plugin(home, config={"plugins": {"entries": {hosts.PLUGIN: {"settings": chosen}}}})
    authority = Path(ssl.get_default_verify_paths().openssl_cafile)
    answer: dict[str, Any] = probe("endpoint_settings", home, authority if authority.is_file() else "", folder)
    return answer


def test_each_host_gives_the_key_of_the_turns_own_profile(told: dict[str, Any]) -> None:
    assert told["secret"] == {"environment": "sk-env", "scope": "sk-scope", "none": None, "nobody's": None}


def test_each_host_gives_the_endpoint_that_is_set(told: dict[str, Any]) -> None:
    assert told["settings"] == ["endpoint", HERE, "bge-m3", 1024]


def test_the_form_of_the_host_keeps_the_key_out_of_the_settings(told: dict[str, Any], host: hosts.Host) -> None:
    if host.name != "0.22":
        pytest.skip("only Hermes 0.22 has a form")
    assert told["field"] == {"type": "secret", "env": NAME, "has_value": True, "value": "not told"}
    assert told["refused"]


def test_no_variable_of_the_environment_makes_a_host_trust_everybody(told: dict[str, Any]) -> None:
    assert told["trust"]
    for way, verify in told["trust"].items():
        assert verify in ("True", "CERT_REQUIRED"), way
