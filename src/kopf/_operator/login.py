"""Login: the handlers that bring credentials, and the task that calls them whenever the credentials run out."""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kopf._client.credentials import ConnectionInfo, Credentials, LoginError
from kopf._client.kubeconfig import login_with_kubeconfig
from kopf._client.piggyback import login_via_client, login_via_pykube
from kopf._client.service_account import login_with_service_account
from kopf._client.vault import Vault
from kopf._handlers.errors import ErrorsMode, PermanentError
from kopf._handlers.handlers import ActivityHandler
from kopf._handlers.registry import OperatorRegistry
from kopf._reactor.activities import ActivityError, run_activity
from kopf._settings.settings import OperatorSettings
from kopf._values.ids import HandlerId
from kopf._values.reasons import Activity

logger = logging.getLogger("kopf.activities.authentication")

_LIBRARIES: Mapping[str, Callable[..., ConnectionInfo | None]] = {
    "kubernetes": login_via_client,
    "pykube": login_via_pykube,
}


def login_by_default(**kwargs: Any) -> ConnectionInfo | None:
    """
    Log in when no login handlers are declared.

    If the operator has imported a client library, the login goes through that library, and configures
    it on the way. Otherwise, the kubeconfig or the service account is used directly. If that is not
    possible, but a client library is installed, it is asked: it can know more ways of authentication.
    """
    try:
        for name, login in _LIBRARIES.items():
            if name in sys.modules and (info := login(**kwargs)) is not None:
                return info
        return _login_natively(kwargs)
    except LoginError as e:
        raise PermanentError(str(e)) from e  # a broken configuration does not mend itself: say it and exit


def _login_natively(kwargs: Mapping[str, Any]) -> ConnectionInfo | None:
    try:
        return login_with_service_account(**kwargs) or login_with_kubeconfig(**kwargs)
    except LoginError:
        if (info := _login_via_installed_library(kwargs)) is not None:
            return info
        raise


def _login_via_installed_library(kwargs: Mapping[str, Any]) -> ConnectionInfo | None:
    for name, login in _LIBRARIES.items():
        if importlib.util.find_spec(name) is not None and (info := login(**kwargs)) is not None:
            return info
    return None


_DEFAULT_HANDLER = ActivityHandler(
    id=HandlerId("login_by_default"),
    fn=login_by_default,
    activity=Activity.AUTHENTICATION,
    errors=ErrorsMode.PERMANENT,
)


class Authenticator:
    """Keeps the vault populated."""

    def __init__(
        self,
        vault: Vault,
        registry: OperatorRegistry,
        settings: OperatorSettings,
        memo: Any,
        indices: Mapping[str, Any],
    ) -> None:
        self._vault = vault
        self._registry = registry
        self._settings = settings
        self._memo = memo
        self._indices = indices

    async def login(self) -> None:
        """Call the login handlers and put what they have brought to the vault; raises :class:`LoginError`."""
        handlers: Sequence[ActivityHandler] = self._registry.get_activities(Activity.AUTHENTICATION)
        try:
            results = await run_activity(
                Activity.AUTHENTICATION,
                handlers or [_DEFAULT_HANDLER],
                settings=self._settings,
                memo=self._memo,
                indices=self._indices,
            )
        except ActivityError as e:
            results = {key: outcome.result for key, outcome in e.outcomes.items() if outcome.result is not None}
            if not results:
                raise _explain(e) from e
        credentials: list[Credentials] = list(results.values())
        self._vault.populate(credentials)

    async def run(self) -> None:
        """Log in anew whenever the credentials run out, forever. If it fails, so do those who need them."""
        while True:
            await self._vault.wait_until_depleted()
            logger.info("Re-authentication has been initiated.")
            try:
                await self.login()
            except LoginError as e:
                self._vault.fail(e)
                raise
            logger.info("Re-authentication has finished.")


def _explain(error: ActivityError) -> LoginError:
    reasons = [outcome.exception for outcome in error.outcomes.values() if outcome.exception is not None]
    return LoginError("; ".join(str(reason) or type(reason).__name__ for reason in reasons))
