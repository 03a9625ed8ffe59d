"""The client of the console: how ``kopf explain`` asks a running operator."""

from __future__ import annotations

import os
import urllib.parse
from typing import cast

import aiohttp

from kopf._insight.explaining.explanation import Explanation, Query
from kopf._values import codec

_TIMEOUT = 30.0
"""How long the operator may take to answer, in seconds; a blocked one answers sooner."""

_MAX_ANSWER = 16 * 1024 * 1024

_SCHEMA = "kopf.dev/explanation/v1"


class ConsoleClientError(Exception):
    """The operator has not answered; the text is the reason."""


async def ask_operator(endpoint: str, token: str | None, query: Query) -> Explanation:
    """Ask the operator at the endpoint (a URL) to explain the object. Raises :class:`ConsoleClientError`."""
    place = {} if query.namespace is None else {"namespace": query.namespace}
    parameters = urllib.parse.urlencode({"resource": query.resource, "name": query.name, **place})
    url = f"{endpoint.rstrip('/')}/api/explain?{parameters}"
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
            session.get(url, allow_redirects=False) as response,  # others must not get the token
        ):
            content = await response.content.read(_MAX_ANSWER)
            while not response.content.at_eof() and len(content) < _MAX_ANSWER:
                content += await response.content.read(_MAX_ANSWER)
            status = response.status
    except TimeoutError:
        raise ConsoleClientError(f"it has not answered in {_TIMEOUT:g} seconds") from None
    except aiohttp.ClientConnectorError as e:
        raise ConsoleClientError(f"the connection has failed: {_describe(e.os_error)}") from e
    except (aiohttp.ClientError, OSError, ValueError) as e:
        raise ConsoleClientError(str(e) or type(e).__name__) from e
    return _parse(status, content)


def _describe(error: OSError) -> str:
    """Describe the error in the words of the system: messages of libraries describe calls and protocols."""
    if error.errno is not None and error.errno > 0:  # errors of name resolution are negative
        return os.strerror(error.errno)
    return error.strerror or str(error)


def _parse(status: int, content: bytes) -> Explanation:
    if status == 401:
        raise ConsoleClientError("it needs a token, which is missing or wrong: see --token" if content else "HTTP 401")
    try:
        answer = codec.decode(content)
    except ValueError:
        answer = None
    if isinstance(answer, dict) and status != 200 and isinstance(answer.get("error"), str):
        raise ConsoleClientError(answer["error"])
    if status != 200 or not isinstance(answer, dict):
        raise ConsoleClientError(f"it answers with HTTP {status}, and is not the console of an operator")
    if answer.get("schema") != _SCHEMA:
        raise ConsoleClientError("it has another version of Kopf")
    return cast(Explanation, answer)
