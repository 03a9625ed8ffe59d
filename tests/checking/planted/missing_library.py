import time

import kopf
import there_is_no_such_library  # expect: load


@kopf.on.create("widgets")
async def create_fn(**_):
    time.sleep(1)  # expect: blocking-call
