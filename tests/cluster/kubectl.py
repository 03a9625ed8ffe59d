"""The real ``kubectl`` for tests of one thing; whole sessions are in the scripts of `rounds`."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from typing import Any

import yaml

from kopf_cluster import LocalCluster
from tests.patience import PATIENCE


class Kubectl:
    """Runs the commands; a command must succeed unless it is told otherwise."""

    def __init__(self, path: str, cluster: LocalCluster, directory: pathlib.Path) -> None:
        self._path = path
        self._directory = directory
        self._env = {
            "PATH": os.environ["PATH"],
            "KUBECONFIG": str(cluster.kubeconfig),
            "HOME": str(directory),
            "GOGC": os.environ["GOGC"],
        }

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._path, *args],
            env=self._env,
            cwd=self._directory,
            text=True,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )

    def __call__(self, *args: str) -> str:
        done = self.run(*args)
        assert done.returncode == 0, done
        assert not done.stderr, done
        return done.stdout.strip()

    def fail(self, *args: str) -> str:
        done = self.run(*args)
        assert done.returncode == 1, done
        return done.stderr.strip()

    def json(self, *args: str) -> Any:
        return json.loads(self(*args, "-o", "json"))

    def write(self, name: str, *manifests: Any) -> str:
        path = self._directory / name
        path.write_text(yaml.safe_dump_all(manifests))
        return str(path)
