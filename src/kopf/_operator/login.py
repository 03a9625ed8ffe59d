"""Login: the handlers that bring credentials, and the task that calls them whenever the credentials run out."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kopf._client.auth.credentials import AiohttpSession, ConnectionInfo, Credentials, LoginError, PluginError
from kopf._client.auth.service_account import login_with_service_account
from kopf._client.auth.vault import Vault, logging_in
from kopf._client.http.retry_delays import add_jitter
from kopf._handlers.handler_errors import ErrorsMode, PermanentError, TemporaryError, name_error
from kopf._handlers.handlers import ActivityHandler
from kopf._handlers.registry import OperatorRegistry
from kopf._logging.log_levels import is_human
from kopf._operator.activities import Activities, ActivityError
from kopf._values.ids import HandlerId
from kopf._values.reasons import Activity

logger = logging.getLogger("kopf._core.engines.activities")
"""
The logger of logins; the handlers' own log goes to ``kopf.activities.authentication``. Users know both names, and
silence them if logins are frequent: this one is a module of the original framework.
"""

_LIBRARIES = ("kubernetes", "pykube", "kubernetes_asyncio")
"""The client libraries that can log in, the preferred one first."""

_CONFIGURED = (*_LIBRARIES, "kubernetes.aio")
"""The imported modules that the login also configures; the last one is an optional part of the first one."""

_PLUGIN_BACKOFFS = (1, 5, 15)
"""
The delays between attempts to run a failing plugin of the kubeconfig, in seconds. They are short for users who wait at
a terminal, but long enough for a short failure of the network.
"""

_RENEWAL_BACKOFFS = (1, 2, 4, 8, 15, 30)
"""
The delays between attempts to replace credentials that have worked before, in seconds: their renewal (by the kubelet, a
script, a human) can be late, and a server can refuse good ones, e.g. while it starts.
"""


def login_by_default(*, retry: int, **kwargs: Any) -> ConnectionInfo | None:
    """
    Log in when no login handlers are declared.

    If the operator has imported client libraries, the login goes through them, and also configures all of them.
    Otherwise, it uses the service account or the kubeconfig directly. For features of kubeconfigs that only the
    libraries support, it uses an installed library.
    """
    try:
        imported = [name for name in _CONFIGURED if {name, name.partition(".")[0]} <= sys.modules.keys()]
        if imported and (info := _login_via_imported(imported, kwargs)) is not None:
            return info
        return _login_natively(kwargs)
    except LoginError as e:
        if isinstance(e, PluginError) and retry < len(_PLUGIN_BACKOFFS):
            raise TemporaryError(str(e), delay=_PLUGIN_BACKOFFS[retry]) from e
        raise PermanentError(str(e)) from e  # a broken configuration stays broken: exit with the error


def _login_natively(kwargs: Mapping[str, Any]) -> ConnectionInfo | None:
    if (info := login_with_service_account(**kwargs)) is not None:
        return info
    from kopf._client.auth.kubeconfig import AuthProviderError, login_with_kubeconfig  # pods have no kubeconfigs

    try:
        return login_with_kubeconfig(**kwargs)
    except AuthProviderError as e:
        try:
            info = _login_via_installed(kwargs)
        except LoginError as library_error:
            raise LoginError(f"{e} {library_error}") from library_error
        if info is None:
            raise
        return info


def _login_via_imported(names: Iterable[str], kwargs: Mapping[str, Any]) -> ConnectionInfo | None:
    """Log in via all libraries, as handlers can use any of them; the credentials are those of the first one."""
    from kopf._client.auth.piggyback import login_via_library  # most operators use no library

    infos: list[ConnectionInfo] = []
    failures: list[LoginError] = []
    for name in names:
        try:
            info = login_via_library(name, **kwargs)
        except LoginError as e:
            failures.append(e)
        else:
            infos += [info] if info is not None else []
    if failures and not infos:
        raise failures[0]
    for failure in failures:
        logger.warning("One of the imported client libraries is not configured: %s", failure)
    return infos[0] if infos else None


def _login_via_installed(kwargs: Mapping[str, Any]) -> ConnectionInfo | None:
    """Log in via the first of the libraries that is installed."""
    from kopf._client.auth.piggyback import login_via_library  # most operators use no library

    found = (login_via_library(name, **kwargs) for name in _LIBRARIES)
    return next((info for info in found if info is not None), None)


_DEFAULT_HANDLER = ActivityHandler(
    id=HandlerId("login_by_default"),
    fn=login_by_default,
    activity=Activity.AUTHENTICATION,
    errors=ErrorsMode.PERMANENT,
)


class Authenticator:
    """Keeps the vault populated."""

    def __init__(self, vault: Vault, registry: OperatorRegistry, activities: Activities) -> None:
        self._vault = vault
        self._registry = registry
        self._activities = activities

    async def login(self, *, verbose: bool = True, again: bool = False) -> None:
        """
        Call the login handlers, and put their credentials in the vault; with ``again``, even refused ones.

        If not ``verbose``, only failures are logged.

        Raises :class:`LoginError` if they have failed, or have returned nothing usable.
        """
        handlers: Sequence[ActivityHandler] = self._registry.get_activities(Activity.AUTHENTICATION)
        is_told = verbose and (bool(handlers) or not is_human())  # users have not declared the default handler
        try:
            with logging_in():
                results = await self._activities.run(
                    Activity.AUTHENTICATION,
                    handlers or [_DEFAULT_HANDLER],
                    is_quiet=not is_told or not handlers,
                )
        except ActivityError as e:
            results = {key: outcome.result for key, outcome in e.outcomes.items() if outcome.result is not None}
            if not results:
                raise _explain(e) from e
        if is_told and not handlers and results:  # without results, it is neither a failure nor a success
            logging.getLogger("kopf.activities.authentication").info("%s succeeded.", _DEFAULT_HANDLER)
        self._vault.populate([_check(key, result) for key, result in results.items()], again=again)

    async def run(self) -> None:
        """
        Log in again whenever the credentials run out, forever. If it fails, all requests fail, too.

        There are several attempts if credentials have worked before, and only one if they never did.
        """
        self._vault.authenticators += 1
        try:
            await self._log_in_on_demand()
        finally:
            self._vault.authenticators -= 1

    async def _log_in_on_demand(self) -> None:
        delays: Iterator[float] = iter(())
        losses = 0
        while True:
            await self._vault.wait_until_depleted()
            if losses != self._vault.losses:
                losses, delays = self._vault.losses, iter(_RENEWAL_BACKOFFS)
            logger.info("Re-authentication has been initiated.")
            try:
                await self._renew(delays)
            except LoginError as e:
                self._vault.fail(e)
                raise
            logger.info("Re-authentication has finished.")

    async def _renew(self, delays: Iterator[float]) -> None:
        is_repeated = False
        while True:
            try:
                return await self.login(again=is_repeated)
            except LoginError as e:
                delay = None if self._is_final(e) else next(delays, None)
                if delay is None:
                    raise
                logger.warning("The login has failed, and is tried again in %g seconds: %s", delay, e)
            await asyncio.sleep(add_jitter(delay))
            is_repeated = True

    def _is_final(self, error: LoginError) -> bool:
        """Tell if declared handlers have given up, which have their own retries; the default one has few."""
        return isinstance(error.__cause__, ActivityError) and bool(
            self._registry.get_activities(Activity.AUTHENTICATION)
        )


def _check(handler_id: HandlerId, result: Any) -> Credentials:
    if isinstance(result, ConnectionInfo | AiohttpSession):
        return result
    raise LoginError(
        f"The login handler {handler_id!r} has returned something other than kopf.ConnectionInfo, kopf.AiohttpSession, "
        f"or None: {type(result).__name__}."
    )


def _explain(error: ActivityError) -> LoginError:
    reasons = [outcome.exception for outcome in error.outcomes.values() if outcome.exception is not None]
    return LoginError("; ".join(name_error(reason) for reason in reasons))
