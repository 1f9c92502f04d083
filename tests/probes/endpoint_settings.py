"""Ask the host for an endpoint's settings, its key and whom to trust, as the plugin does; report what it says."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import probing
from agent import secret_scope

NAME = "PROJECT_HISTORY_RECALL_API_KEY"
authority, folder = sys.argv[1], Path(sys.argv[2])

probing.load()
(package,) = (
    name for name, module in sys.modules.items()
    if name.startswith("hermes_plugins.project_history_recall") and hasattr(module, "register")
)  # fmt: skip
plugin = importlib.import_module(f"{package}.host")


def scoped(secrets: dict[str, str] | None) -> Any:
    token = secret_scope.set_secret_scope(secrets)
    try:
        return plugin.secret(NAME)
    finally:
        secret_scope.reset_secret_scope(token)


os.environ[NAME] = "sk-env"
secret = {"environment": plugin.secret(NAME), "scope": scoped({NAME: "sk-scope"})}
secret_scope.set_multiplex_active(True)  # several profiles in one process: the environment may be anybody's
secret |= {"none": scoped({}), "nobody's": plugin.secret(NAME)}
secret_scope.set_multiplex_active(False)

settings = plugin.read_settings(None, probing.HOME)
endpoint = settings.endpoint
told: list[Any] = [settings.embedding_provider]
told += [endpoint.base_url, endpoint.model, endpoint.dimensions] if endpoint else list(settings.problems)


def verify() -> str:
    value = plugin.tls_trust("https://api.example.com/v1")
    return str(value) if isinstance(value, bool) else str(value.verify_mode.name)


(folder / "broken.pem").write_text("no certificate")
files = {"a file": authority, "no file": str(folder / "none.pem"), "no certificate": str(folder / "broken.pem")}
trust = {"nothing": verify()}
for variable in ("HERMES_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
    for way, value in {**files, "off": "false"}.items():
        os.environ[variable] = value
        trust[f"{variable}: {way}"] = verify()
    del os.environ[variable]

field: dict[str, Any] = {}
refused = False
try:
    from hermes_cli import plugins_settings  # 0.22
except ImportError:
    pass
else:
    where = probing.HOME / "plugins" / probing.PLUGIN
    fields = {f["key"]: f for f in plugins_settings.plugin_settings_fields(probing.PLUGIN, where)}
    shown = fields["embedding_api_key"]
    field = {name: shown.get(name, "not told") for name in ("type", "env", "has_value", "value")}
    try:
        plugins_settings.save_plugin_settings(probing.PLUGIN, where, {"embedding_api_key": "sk"})
    except ValueError:
        refused = True

probing.report(secret=secret, settings=told, trust=trust, field=field, refused=refused)
