"""The reviews as the API servers make them, and a webhook server of the user's own that asks the operator for them."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import jsonpatch

import kopf
from tests.behaviour.objects import get_patience
from tests.behaviour.running import Operator

Obj = dict[str, Any]


def make_object(spec: Obj | None = None, status: Obj | None = None, **metadata: Any) -> Obj:
    """Make an object; all kwargs but the spec & status go to its metadata."""
    obj: Obj = {
        "apiVersion": "kopf.dev/v1",
        "kind": "KopfExample",
        "metadata": {"name": "obj", "namespace": "default", "uid": "uid1", **metadata},
        "spec": {"field": "value"} if spec is None else spec,
    }
    return obj | ({} if status is None else {"status": status})


OBJECT = make_object()


def make_review(
    operation: str = "CREATE",
    new: Obj | None = None,
    old: Obj | None = None,
    *,
    version: str = "v1",
    **fields: Any,
) -> Obj:
    """Make a review; whatever is not specified, is as the API server would have it for this operation."""
    if operation in ("CREATE", "UPDATE") and new is None:
        new = OBJECT
    if operation in ("UPDATE", "DELETE") and old is None:
        old = OBJECT
    gvr = {"group": "kopf.dev", "version": "v1", "resource": "kopfexamples"}
    gvk = {"group": "kopf.dev", "version": "v1", "kind": "KopfExample"}
    request = {
        "uid": "1ca13837-ad60-4c9e-abb8-86f29d6c0e84",
        "kind": gvk,
        "resource": gvr,
        "requestKind": gvk,
        "requestResource": gvr,
        "name": "obj",
        "namespace": "default",
        "operation": operation,
        "userInfo": {"username": "admin", "uid": "admin", "groups": ["system:masters", "system:authenticated"]},
        "object": new,
        "oldObject": old,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return {
        "kind": "AdmissionReview",
        "apiVersion": f"admission.k8s.io/{version}",
        "request": {key: value for key, value in {**request, **fields}.items() if value is not ...},
    }


class Reviewer:
    """A webhook server that is the test itself."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._fn: kopf.WebhookFn | None = None
        self._called = asyncio.Event()

    def configure(self, settings: kopf.OperatorSettings) -> None:
        settings.admission.server = self

    async def __call__(self, fn: kopf.WebhookFn) -> AsyncIterator[kopf.WebhookClientConfig]:
        self._fn = fn
        self._called.set()
        yield {"url": "https://127.0.0.1:1/root"}
        await asyncio.Event().wait()

    async def start(self, **kwargs: Any) -> None:
        """Start the operator, unless it runs; wait until it has called the server."""
        if not self._operator.is_running:
            await self._operator.launch(**kwargs)
        async with asyncio.timeout(get_patience()):
            await self._called.wait()

    async def stop(self) -> None:
        if self._operator.is_running:
            await self._operator.stop()

    async def ask(self, review: Any, **kwargs: Any) -> Obj:
        """Ask for the review; give the whole answer. The errors are those of the framework."""
        await self.start()
        assert self._fn is not None
        answer = await self._fn(review, **kwargs)
        return json.loads(json.dumps(answer))  # type: ignore[no-any-return]

    async def review(
        self,
        operation: str = "CREATE",
        new: Obj | None = None,
        old: Obj | None = None,
        *,
        webhook: str | None = None,
        headers: kopf.Headers | None = None,
        sslpeer: kopf.SSLPeer | None = None,
        **fields: Any,
    ) -> Obj:
        """Make a review, ask for it, and give the response."""
        review = make_review(operation, new, old, **fields)
        answer = await self.ask(review, webhook=webhook, headers=headers, sslpeer=sslpeer)
        assert {key: answer[key] for key in answer if key != "response"} == {
            key: review[key] for key in review if key != "request"
        }
        response: Obj = answer["response"]
        assert response.pop("uid") == review["request"]["uid"]
        return response


def describe(arg: object) -> str:
    """Make an id of a parameter: the same one in all processes, i.e. with no addresses, and with sets being sorted."""
    if isinstance(arg, set):
        return ",".join(sorted(map(str, arg)))
    return re.sub(r"<(function|\w+\.<lambda>).*? at 0x\w+>", "fn", str(arg))


def read_patch(response: Obj) -> list[Obj]:
    """Decode the patch of the response."""
    assert response["allowed"]
    assert response["patchType"] == "JSONPatch"
    return json.loads(base64.b64decode(response["patch"], validate=True))  # type: ignore[no-any-return]


def apply_response(response: Obj, obj: Obj) -> Obj:
    """Apply the patch of the response, if any, as the API server would do."""
    assert response["allowed"]
    if "patch" not in response:
        return obj
    return jsonpatch.apply_patch(obj, json.dumps(read_patch(response)))  # type: ignore[no-any-return]
