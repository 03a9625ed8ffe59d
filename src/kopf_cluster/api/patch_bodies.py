"""
Patches as they are sent: decoded, or refused as no patches in the words of the API server.

The server decodes a patch with Go's JSON decoder, so that the messages tell of Go's types.
"""
from __future__ import annotations

from typing import Any, Final

from kopf_cluster import codec, go_json, patches, statuses
from kopf_cluster.requests import Request

_NAMES: Final[dict[type, str]] = {
    dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}
_OPERATION: Final = "handlers.jsonPatchOp"
_NO_PATCH: Final = "Invalid JSON Patch"


def decode_patch(request: Request) -> Any:
    """Give the patch: a list of operations for a JSON-patch, or an object for others."""
    is_strategic, is_json = request.content_type == patches.STRATEGIC, request.content_type == patches.JSON
    # If fields are to be validated, which they are by default, the server decodes the patch once more beforehand.
    prefix = "" if is_strategic or request.query.get("fieldValidation") == "Ignore" else "error decoding patch: "
    try:
        patch = codec.decode(request.body)
    except (codec.DecodeError, RecursionError) as error:
        why = go_json.explain(request.body) or str(error)
        raise statuses.bad_request(f"{prefix}{why}" if prefix or is_strategic or is_json else _NO_PATCH) from None
    if patch is None:
        if is_strategic or is_json:
            return [] if is_json else {}
        raise statuses.bad_request(_NO_PATCH)
    wrong = _find_wrong_operation(patch) if is_json else _mistype(patch, dict, "value of type map[string]interface {}")
    if wrong:
        raise statuses.bad_request(prefix + wrong)
    return [{} if item is None else item for item in patch] if is_json else patch


def _find_wrong_operation(patch: Any) -> str:
    """Tell what is mistyped in a JSON-patch; nothing if all is well."""
    wrong = _mistype(patch, list, f"value of type []{_OPERATION}")
    for item in () if wrong else patch:
        wrong = wrong or _mistype({} if item is None else item, dict, f"value of type {_OPERATION}")
        for field in () if wrong or item is None else ("op", "path", "from"):
            if item.get(field) is not None:
                wrong = wrong or _mistype(item[field], str, f"struct field jsonPatchOp.{field} of type string")
    return wrong


def _mistype(value: Any, expected: type, place: str) -> str:
    return "" if type(value) is expected else f"json: cannot unmarshal {_NAMES[type(value)]} into Go {place}"
