"""Where the commands write the kubeconfigs of local clusters: never over those of other clusters."""

from __future__ import annotations

import hashlib
import pathlib
import re
import socket
import urllib.parse

import click

_LOCAL_CONTEXTS = r"(?m)^current-context: local\n(?s:.*)^contexts:\n- name: local\n(  .*\n)*\Z"
"""How the kubeconfig of a local cluster looks like: there is only one context, the last of all."""

_SERVER = r"(?m)^    server: (.+)$"


def check_kubeconfig(path: pathlib.Path) -> pathlib.Path:
    """
    Give the absolute path, as it is used in other terminals, too, or refuse to write there.

    The file is overwritten now and removed in the end, so it must not be the kubeconfig of another cluster. That of
    a local cluster can be there if that was killed.
    """
    path = path.absolute()
    if not path.parent.is_dir():
        raise click.BadParameter(f"there is no directory {str(path.parent)!r}.")
    if path.exists() and not re.search(_LOCAL_CONTEXTS, path.read_text(errors="replace")):
        raise click.BadParameter(f"{str(path)!r} exists, and is not of a local cluster: it would be lost.")
    return path


def find_project_kubeconfig() -> pathlib.Path | None:
    """
    Give the path for the project in the current directory: always the same one, so that terminals can keep it.

    There is none if it is in use by another command in the same directory, or if it cannot be written.
    """
    project = pathlib.Path.cwd()
    name = f"{project.name}-{hashlib.sha256(bytes(project)).hexdigest()[:8]}.yaml"
    try:
        path = pathlib.Path.home() / ".kube" / "kopf-dev" / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = check_kubeconfig(path)
        return None if path.exists() and _is_alive(path.read_text()) else path
    except (OSError, RuntimeError, click.BadParameter):  # no home, or not a writable one, or a file of somebody else
        return None


def _is_alive(kubeconfig: str) -> bool:
    """Tell if somebody listens at the address of the cluster: those who were killed have left only the file."""
    found = re.search(_SERVER, kubeconfig)
    url = urllib.parse.urlsplit(found[1]) if found else None
    if url is None or url.hostname is None or url.port is None:
        return False
    try:
        with socket.create_connection((url.hostname, url.port), timeout=1.0):
            return True
    except OSError:
        return False
