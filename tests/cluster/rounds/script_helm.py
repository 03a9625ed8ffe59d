"""What people do with ``helm``: releases, their histories, hooks, tests, and definitions; their ends."""

from __future__ import annotations

import re

from tests.cluster.rounds.scripts import fail, run, same

WAIT = "--wait --timeout 120s"

STEPS = [
    # The server knows its version; the definition that the chart brings is not there yet.
    run("install shop chart --dry-run=server", 'version: "v1.36', absent=["kind: Good\n"]),
    run(f"install shop chart {WAIT}", "STATUS: deployed", "REVISION: 1", "DESCRIPTION: Install complete"),
    run("list", re.compile(r"^shop\s+default\s+1\s.*deployed\s+shop-0\.1\.0\s+1\.0", re.MULTILINE)),
    run(
        "status shop",
        "STATUS: deployed",
        re.compile(r"^shop-web +1/1 +1 +1 ", re.MULTILINE),
        re.compile(r"^shop-apple +\d+s$", re.MULTILINE),
    ),
    run("get manifest shop", 'data: {color: "red", version: "v1.36', "kind: Good"),
    # Upgrades, good and bad, and the way back.
    run(f"upgrade shop chart --set color=blue {WAIT}", "REVISION: 2", "DESCRIPTION: Upgrade complete"),
    run(f"upgrade shop chart --set replicas=2 --reuse-values --no-hooks {WAIT}", "REVISION: 3"),
    same("get values shop -o json", '{"color":"blue","replicas":2}'),
    run("status shop", re.compile(r"^shop-web +2/2 +2 +2 ", re.MULTILINE)),
    fail(
        f"upgrade shop chart --set image= --no-hooks {WAIT}",
        "UPGRADE FAILED",
        'Deployment.apps "shop-web" is invalid: spec.template.spec.containers[0].image: Required value',
    ),
    run(f"rollback shop 1 {WAIT}", "Rollback was a success! Happy Helming!"),
    run(
        "history shop",
        re.compile(r"^3\s.*superseded\s", re.MULTILINE),
        re.compile(r"^4\s.*failed\s", re.MULTILINE),
        re.compile(r"^5\s.*deployed\s.*Rollback to 1", re.MULTILINE),
    ),
    run("status shop", re.compile(r"^shop-web +1/1 +1 +1 ", re.MULTILINE)),
    run("test shop --timeout 120s", "TEST SUITE:     shop-test", "Phase:          Succeeded"),
    # Another namespace, its own history, and what is kept of a release.
    run(
        f"upgrade --install other chart -n elsewhere --create-namespace --no-hooks {WAIT}",
        'Release "other" does not exist',
        "STATUS: deployed",
    ),
    run(
        "list -A",
        re.compile(r"^other\s+elsewhere\s+1\s", re.MULTILINE),
        re.compile(r"^shop\s+default\s+5\s", re.MULTILINE),
    ),
    same("uninstall other -n elsewhere --keep-history", 'release "other" uninstalled'),
    run(f"rollback other 1 -n elsewhere {WAIT}", "Rollback was a success!"),
    same(f"uninstall shop {WAIT}", 'release "shop" uninstalled'),
    fail("status shop", "release: not found"),
    same("list -q", ""),
]
