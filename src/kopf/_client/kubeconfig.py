"""
Login of a person: by the kubeconfig files, the way ``kubectl`` reads them.

The rules are of "Organizing Cluster Access Using kubeconfig Files" of the Kubernetes documentation: the files
listed in ``KUBECONFIG`` are merged, whatever comes first wins, absent files are skipped, and relative paths
inside a file are relative to that file.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import yaml

from kopf._client.credentials import ConnectionInfo, LoginError, decode_pem

DEFAULT_KUBECONFIG = "~/.kube/config"

_CLUSTER_PATHS = ("certificate-authority",)
_USER_PATHS = ("client-certificate", "client-key", "tokenFile")
_PLUGINS = ("exec", "auth-provider")


@dataclasses.dataclass
class Kubeconfig:
    """The merged content of all kubeconfig files: entries by their names, with all paths absolute."""

    paths: list[pathlib.Path] = dataclasses.field(default_factory=list)
    current_context: str | None = None
    contexts: dict[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    clusters: dict[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    users: dict[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in the files, or no files: e.g. ``kubectl config`` leaves such files."""
        return not (self.current_context or self.contexts or self.clusters)


def login_with_kubeconfig(**_: Any) -> ConnectionInfo | None:
    """
    Log in by the current context of the kubeconfig files; ``None`` if there are no files or nothing in them.

    The files are taken from ``KUBECONFIG`` if it is set, otherwise ``~/.kube/config``. Raises
    :class:`LoginError` if the files are malformed, inconsistent, or rely on authentication plugins.
    """
    source = os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
    config = read_kubeconfigs([path for path in source.split(os.pathsep) if path])
    return None if config.is_empty else make_connection_info(config)


def read_kubeconfigs(paths: list[str]) -> Kubeconfig:
    """
    Read & merge the files that exist. Raises :class:`LoginError` if any of them is unreadable or malformed.
    """
    result = Kubeconfig()
    for path in (pathlib.Path(path).expanduser() for path in paths):
        content = _read_file(path)
        if content is not None:
            result.paths.append(path)
            _merge(result, content, path)
    return result


def make_connection_info(config: Kubeconfig) -> ConnectionInfo:
    """
    Get the endpoint & credentials of the current context. Raises :class:`LoginError` if it is not possible.
    """
    where = ", ".join(str(path) for path in config.paths)
    if not config.current_context:
        raise LoginError(f"No current context in {where}: choose one with `kubectl config use-context …`.")
    context = _get_entry(config.contexts, "context", config.current_context, where)
    cluster = _get_entry(config.clusters, "cluster", context.get("cluster"), where)
    user = _get_entry(config.users, "user", context["user"], where) if context.get("user") else {}
    if not cluster.get("server"):
        raise LoginError(f"The cluster {context['cluster']!r} has no server in {where}.")
    _refuse_plugins(user, context.get("user"), where)
    try:
        return ConnectionInfo(
            server=cluster["server"],
            default_namespace=context.get("namespace") or None,
            proxy_url=cluster.get("proxy-url") or None,
            insecure=cluster.get("insecure-skip-tls-verify"),
            username=user.get("username"),
            password=user.get("password"),
            token_path=user.get("tokenFile") or None,
            token=None if user.get("tokenFile") else user.get("token") or None,
            **_get_path_or_data("ca", cluster, "certificate-authority"),
            **_get_path_or_data("certificate", user, "client-certificate"),
            **_get_path_or_data("private_key", user, "client-key"),
        )
    except ValueError as exc:
        raise LoginError(f"The context {config.current_context!r} of {where} is unusable: {exc}") from exc


def _read_file(path: pathlib.Path) -> Mapping[str, Any] | None:
    try:
        content = yaml.safe_load(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise LoginError(f"The kubeconfig {path} cannot be read: {exc.strerror or exc}.") from exc
    except yaml.YAMLError as exc:
        raise LoginError(f"The kubeconfig {path} is not valid YAML: {exc}") from exc
    if content is not None and not isinstance(content, dict):
        raise LoginError(f"The kubeconfig {path} is not a mapping, but {type(content).__name__}.")
    return content or {}


def _merge(config: Kubeconfig, content: Mapping[str, Any], path: pathlib.Path) -> None:
    config.current_context = config.current_context or content.get("current-context")
    for entries, section, key, path_fields in (
        (config.contexts, "contexts", "context", ()),
        (config.clusters, "clusters", "cluster", _CLUSTER_PATHS),
        (config.users, "users", "user", _USER_PATHS),
    ):
        for entry in content.get(section) or []:
            if not isinstance(entry, dict) or "name" not in entry:
                raise LoginError(f"The kubeconfig {path} has an entry with no name in {section!r}.")
            value = entry.get(key) or {}
            absolute = {name: str(path.absolute().parent / value[name]) for name in path_fields if value.get(name)}
            entries.setdefault(entry["name"], {**value, **absolute})


def _get_entry(entries: Mapping[str, Mapping[str, Any]], kind: str, name: str | None, where: str) -> Mapping[str, Any]:
    if name is None or name not in entries:
        known = ", ".join(repr(known) for known in entries) or "none"
        raise LoginError(f"The {kind} {name!r} is not found in {where}; those known are: {known}.")
    return entries[name]


def _refuse_plugins(user: Mapping[str, Any], name: str | None, where: str) -> None:
    for plugin in _PLUGINS:
        if user.get(plugin):
            raise LoginError(
                f"The user {name!r} of {where} authenticates with an external plugin ({plugin!r}), "
                "which needs a Kubernetes client library: install it with `pip install kubernetes`, "
                "and log in via kopf.login_via_client(); or use a token or a client certificate."
            )


def _get_path_or_data(prefix: str, entry: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Data takes precedence over the file, as in kubectl."""
    if entry.get(f"{key}-data"):
        return {f"{prefix}_data": decode_pem(entry[f"{key}-data"])}
    return {f"{prefix}_path": entry[key]} if entry.get(key) else {}
