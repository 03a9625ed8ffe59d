from __future__ import annotations

import threading

from kopf._client.auth.vault import Vault
from kopf._client.client_observer import ClientObserver
from kopf._client.http.api import APIClient
from kopf._events import log_posting
from kopf._events.log_posting import EventRecorder
from kopf._settings.settings import OperatorSettings


class Losses(ClientObserver):
    def __init__(self) -> None:
        self.causes: list[str] = []

    def event_dropped(self, cause: str) -> None:
        self.causes.append(cause)


async def test_each_lost_event_of_threads_is_counted() -> None:
    settings, losses = OperatorSettings(), Losses()
    events = EventRecorder(APIClient(Vault(settings), settings, losses), settings)

    def post() -> None:
        for number in range(log_posting._INBOX_SIZE + 3):
            ref = {"name": f"obj{number}", "namespace": "default"}
            events.enqueue(ref, type="Normal", reason="Test", message="", backoffs=())  # type: ignore[arg-type]

    thread = threading.Thread(target=post)
    thread.start()
    thread.join()  # the event loop is blocked, and takes no events meanwhile
    assert losses.causes == ["overflow"] * 3
