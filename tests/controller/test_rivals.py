"""Who the other operator is, by what the server says of the fields; that can be anything."""

from __future__ import annotations

import getpass
import os
import socket
from typing import Any

import pytest

from kopf._controller.rivals import _identify_us, identify_writer
from kopf._values.objects import KubeObject

MARK = "kopf.zalando.org/last-handled-configuration"
FIELDS: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{MARK}": {}}}}


def identify(managed_fields: Any) -> str:
    content = {"metadata": {"name": "obj", "annotations": {MARK: "{}"}, "managedFields": managed_fields}}
    return identify_writer(KubeObject.from_dict(content), [MARK])


def test_the_last_writer_of_the_mark() -> None:
    assert (
        identify(
            [
                {"manager": "kopf", "time": "2026-11-23T04:00:02Z", "fieldsV1": FIELDS},
                {"manager": "kubectl", "time": "2026-11-23T04:00:03Z", "fieldsV1": {"f:spec": {}}},
                {"manager": "other", "time": "2026-11-23T04:00:01Z", "fieldsV1": FIELDS},
            ]
        )
        == "'kopf' (last time at 2026-11-23T04:00:02Z)"
    )


@pytest.mark.parametrize(
    "managed_fields",
    [
        None,
        [],
        {},
        "text",
        1,
        [None, 1, "text", []],
        [{}],
        [{"fieldsV1": None}],
        [{"fieldsV1": []}],
        [{"fieldsV1": "text"}],
        [{"fieldsV1": {"f:metadata": []}}],
        [{"fieldsV1": {"f:metadata": {"f:annotations": [f"f:{MARK}"]}}}],
        {"manager": "kopf", "fieldsV1": FIELDS},
    ],
)
def test_malformed_entries_say_nothing(managed_fields: Any) -> None:
    assert identify(managed_fields) == "somebody unknown"


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([{"fieldsV1": FIELDS}], "'None' (last time at None)"),
        (
            [{"manager": ["x"], "time": {}, "fieldsV1": FIELDS}, {"time": 5, "fieldsV1": FIELDS}],
            "\"['x']\" (last time at {})",
        ),
        (
            [{"manager": "x" * 1000, "time": "y" * 1000, "fieldsV1": FIELDS}],
            f"'{'x' * 100}' (last time at {'y' * 100})",
        ),
        ([{"manager": "\x1b[31m", "time": "1", "fieldsV1": FIELDS}], r"'\x1b[31m' (last time at 1)"),
    ],
)
def test_malformed_values_are_shown_as_they_are(entries: Any, expected: str) -> None:
    assert identify(entries) == expected


@pytest.mark.parametrize("error", [KeyError("getpwuid(): uid not found: 1234"), OSError("No username set")])
def test_containers_run_as_users_without_names(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", fail)
    monkeypatch.delenv("POD_ID", raising=False)
    assert _identify_us() == f"{os.getuid()}@{socket.gethostname()} (process {os.getpid()})"
    monkeypatch.setenv("POD_ID", "operator-1")
    assert _identify_us() == "operator-1"
