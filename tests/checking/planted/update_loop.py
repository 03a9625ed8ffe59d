import time

import kopf


@kopf.on.update("widgets")
def update_fn(patch, **_):
    now = time.time()
    patch.spec["size"] = int(now)  # expect: endless-loop
