"""
Patches that need to know nothing of kinds: plain functions from the old JSON document to the new one.

The old document is never modified, and the parts that a patch does not touch are shared by both: that makes
patches cheap and comparisons of the old and the new documents cheaper.

* JSON merge-patch: RFC 7386.
* JSON-patch: RFC 6902, by the ``jsonpatch`` library.

The strategic merge-patches are apart, in `strategic`: they are for built-in kinds only.
"""

from __future__ import annotations

from typing import Any, Final

import jsonpatch
import jsonpointer

from kopf_cluster import codec, statuses

MERGE: Final = "application/merge-patch+json"
JSON: Final = "application/json-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"

# Both as in kube-apiserver: a short patch must not make a large object, or take long.
MAX_OPERATIONS: Final = 10_000
MAX_COPIED: Final = 3 * 1024 * 1024
"""How many bytes of JSON all operations ``copy`` of one patch may add."""


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON merge-patch as in RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merge_patch(result.get(key), value)
        else:
            result[key] = value
    return result


def json_patch(target: Any, operations: Any) -> Any:
    """Apply a JSON-patch as in RFC 6902; refuse as kube-apiserver does: 400 for no patch, 422 for a misfit."""
    if not isinstance(operations, list) or not all(isinstance(item, dict) for item in operations):
        raise statuses.bad_request("json: cannot unmarshal the body into a JSON-patch, a list of operations")
    if len(operations) > MAX_OPERATIONS:
        raise statuses.too_large(
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        )
    copy = codec.decode(codec.encode(target))  # several times faster than a deep copy
    copied = 0
    try:
        for operation in operations:
            if operation.get("op") == "copy":
                copied += len(codec.encode(jsonpointer.resolve_pointer(copy, operation["from"])))
                if copied > MAX_COPIED:
                    raise statuses.unprocessable()
            copy = jsonpatch.JsonPatch([operation]).apply(copy, in_place=True)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, KeyError, ValueError):
        raise statuses.unprocessable() from None
    return copy


# The refusals of patches whose outcome is no object of the kind: it is the patch to blame, not the object.


def blame_patch(outcome: dict[str, Any], why: str) -> statuses.APIStatus:
    """Make the refusal, with the patched document."""
    return statuses.invalid(
        statuses.Naming(), "", [statuses.invalid_value("patch", codec.encode(outcome).decode(), why)]
    )
