"""
The files of kubeconfigs: where they are written, for the administrator and for other users, and that they are removed.
"""
from __future__ import annotations

import pathlib
import secrets
import tempfile

from kopf_cluster.access.credentials import write_privately


class Kubeconfigs:
    """All kubeconfigs that one cluster has written.

    Args:
        wanted: Where to write that of the administrator; a temporary file by default.
    """

    def __init__(self, wanted: pathlib.Path | None) -> None:
        super().__init__()
        self._wanted = wanted
        self._temporary: pathlib.Path | None = None
        self._written: list[pathlib.Path] = []
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    def write(self, text: str) -> pathlib.Path:
        """Write that of the administrator, always at the same path."""
        path = self._wanted or self._find_temporary()
        write_privately(path, text)
        return path

    def write_another(self, text: str) -> pathlib.Path:
        """Write that of somebody else, at a path of its own."""
        path = self._find_directory() / f"user-{len(self._written)}.yaml"
        write_privately(path, text)
        self._written.append(path)
        return path

    def remove(self) -> None:
        self._written.clear()
        path, self._temporary = self._wanted or self._temporary, None
        if path is not None:
            path.unlink(missing_ok=True)
        directory, self._directory = self._directory, None
        if directory is not None:
            directory.cleanup()

    def _find_temporary(self) -> pathlib.Path:
        """Give the file of the administrator; in no directory of its own, which is the dearest of what a start does."""
        if self._temporary is None:
            self._temporary = pathlib.Path(tempfile.gettempdir()) / f"kopf-local-cluster-{secrets.token_hex(8)}.yaml"
        return self._temporary

    def _find_directory(self) -> pathlib.Path:
        self._directory = self._directory or tempfile.TemporaryDirectory(prefix="kopf-local-cluster-")
        return pathlib.Path(self._directory.name)
