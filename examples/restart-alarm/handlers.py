"""If the containers of a Pod restart 3 times in 10 minutes, there is a Kubernetes event of type Warning on the Pod."""

import collections
import time

import kopf

RESTARTS = 3
SECONDS = 600


@kopf.on.event("pods")
def watch_restarts(status, body, memo: kopf.Memo, **_):
    count = sum(container["restartCount"] for container in status.get("containerStatuses", []))
    times = memo.setdefault("times", collections.deque(maxlen=RESTARTS))
    times.extend([time.time()] * (count - memo.get("count", count)))  # when it is first seen: those before do not count
    memo.count = count
    if len(times) == RESTARTS and times[-1] - times[0] <= SECONDS:
        kopf.warn(
            body, reason="RestartsTooOften", message=f"{RESTARTS} restarts in {times[-1] - times[0]:.0f} seconds."
        )
        times.clear()
