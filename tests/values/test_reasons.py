from __future__ import annotations

import json

from kopf._values.reasons import Reason


def test_reasons_are_strings() -> None:
    assert [str(reason) for reason in Reason] == ["create", "update", "delete", "resume", "noop", "free", "gone"]
    assert f"{Reason.CREATE}" == "create"
    assert json.dumps(Reason.CREATE) == '"create"'
    assert Reason("update") is Reason.UPDATE
