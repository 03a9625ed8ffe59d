"""
The recording client: it does what every client does, and notes down what was sent and what has come.

Credentials, headers of the connection, and retries with other credentials are below it, so they are never seen here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from kopf._client.auth.vault import Vault
from kopf._client.errors import APIError, APINetworkError, APISilenceError
from kopf._client.http.api import APIClient
from kopf._client.http.transport import Limits
from kopf._controller.observer import Observer
from kopf._recording.calls import in_background
from kopf._recording.recorder import Recorder
from kopf._settings.settings import OperatorSettings
from kopf._values import codec

_KEPT_HEADERS = ("Retry-After",)
"""The only headers of responses that mean something to the operator."""


class RecordingClient(APIClient):
    """A client whose requests and streams are recorded."""

    def __init__(self, vault: Vault, settings: OperatorSettings, observer: Observer, recorder: Recorder) -> None:
        super().__init__(vault, settings, observer)
        self._recorder = recorder
        self.for_tools = APIClient(vault, settings, observer)

    async def send(
        self,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        limits: Limits,
    ) -> bytes:
        recorder, path = self._recorder, target.partition("?")[0]
        fields = describe_request(method, target, headers)
        number = recorder.begin("req", fields, [] if body is None else [body], path)
        try:
            content = await super().send(method, target, body, headers, limits)
        except BaseException as e:
            recorder.note("res", number, describe_failure(e), [], path)
            raise
        recorder.note("res", number, {}, [content], path)
        await recorder.keep_up()
        return content

    async def stream(
        self, path: str, *, params: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[list[bytes], None]:
        recorder = self._recorder
        fields = {"target": path, "params": dict(params or {}), "headers": dict(headers or {})}
        number = recorder.begin("open", fields, [], path)
        try:
            async with aclosing(super().stream(path, params=params, headers=headers)) as stream:
                async for lines in stream:
                    recorder.note("lines", number, {}, lines, path)
                    await recorder.keep_up()
                    yield lines
        except BaseException as e:
            recorder.note("end", number, describe_failure(e), [], path)
            raise
        recorder.note("end", number, {}, [], path)


def describe_request(method: str, target: str, headers: Mapping[str, str] | None) -> dict[str, Any]:
    """Tell what is requested."""
    fields: dict[str, Any] = {"method": method, "target": target, "headers": dict(headers or {})}
    if in_background.get():
        fields["background"] = True
    return fields


def describe_failure(error: BaseException) -> Mapping[str, Any]:
    """Tell how it has failed, so that the same error can be made of it."""
    match error:
        case APIError():
            status = {
                "kind": "Status",
                "message": error.message,
                "reason": error.reason,
                "code": error.code,
                "details": error.details,
            }
            headers = {name: error.headers[name] for name in _KEPT_HEADERS if name in error.headers}
            return {"failure": "refused", "status": error.status, "headers": headers, "text": codec.dumps(status)}
        case APISilenceError():
            return {"failure": "silence", "text": str(error)}
        case APINetworkError():
            return {"failure": "network", "text": str(error)}
        case Exception():
            return {"failure": "error", "text": f"{type(error).__name__}: {error}"}
        case _:
            return {"failure": "cancelled"}
