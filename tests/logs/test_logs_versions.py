"""JSON logs are the same with all versions of the library that formats them; ``make logins`` checks more of them."""

from __future__ import annotations

import os
import sys

import pytest

from tests.downloads import get_old
from tests.logs.json_logging import check_json_logs

pytestmark = pytest.mark.timeout(300)  # the first time, they are downloaded


def test_the_installed_version() -> None:
    check_json_logs(sys.executable)


@pytest.mark.parametrize("version", ["2.0.7", *(["2.0.0", "3.0.1", "3.3.0"] if "KOPF_LOGINS" in os.environ else [])])
def test_old_versions(version: str) -> None:
    check_json_logs(sys.executable, get_old(f"python-json-logger-{version}", [f"python-json-logger=={version}"]))
