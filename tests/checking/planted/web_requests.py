import urllib.request

import kopf
import requests

URL = "https://example.com"


@kopf.timer("widgets", interval=60)
async def check_fn(name, **_):
    with urllib.request.urlopen(f"{URL}/{name}") as response:  # expect: blocking-call
        await report(response.read())


async def report(text):
    session = requests.Session()
    session.post(URL, data=text, timeout=10)  # expect: blocking-call
