"""
Make the objects that are handled halfway by the original framework: fixtures for the tests of the migration.

    python tools/generate_half_handled.py .venv-original-3.11/bin/kopf

The original is only run as a command. The objects are written as they are in the cluster when it is killed.
"""

from __future__ import annotations

import asyncio
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from kopf_cluster import LocalCluster  # noqa: E402
from tests.behaviour import migrating  # noqa: E402
from tests.behaviour.conftest import make_crd  # noqa: E402
from tests.behaviour.elsewhere import run_elsewhere  # noqa: E402
from tests.behaviour.half_handled import SCENARIOS, STORAGES, bring_there  # noqa: E402
from tests.behaviour.objects import connect, watch  # noqa: E402

TARGET = ROOT / "tests" / "behaviour" / "fixtures" / "half-handled"


async def generate(kopf: str, storage: str) -> None:
    """Make the objects of all scenarios with one of the storages."""
    async with LocalCluster() as cluster:
        cluster.apply(make_crd("KopfExample", "kopfexamples", status=False))
        async with connect(cluster) as api, watch(api, "KopfExample", "kopfexamples") as objects:
            env = {
                "KUBECONFIG": str(cluster.kubeconfig),
                "MIGRATION_WHO": "original",
                "MIGRATION_HOLDING": "yes",
                "MIGRATION_STORAGE": storage,
            }
            async with run_elsewhere(kopf, migrating.__file__, **env):
                await asyncio.gather(*(bring_there(scenario, objects) for scenario in SCENARIOS))
            for scenario in SCENARIOS:
                path = TARGET / f"{storage}-{scenario.name}.json"
                path.write_text(json.dumps(await objects.get(scenario.name), indent=2) + "\n")


async def main(kopf: str) -> None:
    TARGET.mkdir(parents=True, exist_ok=True)
    for storage in STORAGES:
        await generate(kopf, storage)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
