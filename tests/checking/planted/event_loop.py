import datetime

import kopf


@kopf.on.event("widgets")
def event_fn(patch, status, **_):
    patch.status["phase"] = datetime.datetime.now().isoformat()  # expect: endless-loop
    patch.status["seen"] = status.get("seen", 0) + 1  # expect: endless-loop
