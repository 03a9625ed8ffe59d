import os
import subprocess

import kopf


@kopf.daemon("widgets")
async def watch_fn(stopped, name, **_):
    while not stopped:
        subprocess.run(["ping", "-c", "1", name], check=False)  # expect: blocking-call
        os.system(f"logger {name}")  # expect: blocking-call
        await stopped.wait(60)
