import time
from time import sleep

import kopf


@kopf.on.create("widgets")
async def create_fn(name, **_):
    time.sleep(10)  # expect: blocking-call
    wait_for(name)


def wait_for(name):
    while not name:
        sleep(1)  # expect: blocking-call
