from __future__ import annotations

import asyncio
import concurrent.futures
import subprocess
import threading
import time

import pytest
from aiohttp import ClientSession, ClientTimeout, web

from tests.fastforward import fast_forwarding, is_fast
from tests.patience import PATIENCE

pytestmark = pytest.mark.fastforward

DAY = 24 * 60 * 60


async def test_the_loop_is_chosen_by_the_marker() -> None:
    assert is_fast()


async def test_timers_fire_in_order_and_on_time_but_in_no_real_time() -> None:
    loop = asyncio.get_running_loop()
    started, real_started = loop.time(), time.monotonic()
    fired: list[tuple[str, int]] = []

    async def tick(name: str, delay: float) -> None:
        await asyncio.sleep(delay)
        fired.append((name, round(loop.time() - started)))

    await asyncio.gather(tick("c", 3 * DAY), tick("a", DAY), tick("b", 2 * DAY))
    assert fired == [("a", DAY), ("b", 2 * DAY), ("c", 3 * DAY)]
    assert time.monotonic() - real_started < PATIENCE


async def test_http_over_real_sockets_is_never_overtaken_by_timeouts() -> None:
    async def slow(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(100)
        return web.Response(body=await request.read())

    app = web.Application(client_max_size=10**8)
    app.router.add_post("/", slow)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        payload = b"x" * 1_000_000  # many rounds of the loop for each
        real_started = time.monotonic()
        async with ClientSession(timeout=ClientTimeout(total=101)) as session:
            for _ in range(10):
                async with session.post(f"http://127.0.0.1:{port}/", data=payload) as response:
                    assert await response.read() == payload
            with pytest.raises(asyncio.TimeoutError):
                await session.post(f"http://127.0.0.1:{port}/", timeout=ClientTimeout(total=99))
        assert time.monotonic() - real_started < PATIENCE
    finally:
        await runner.cleanup()


async def test_no_time_passes_while_threads_work() -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    future = loop.run_in_executor(None, time.sleep, 0.05)
    async with asyncio.timeout(0.01):
        await future
    assert loop.time() == started


async def test_many_jobs_never_lose_to_their_timeouts() -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as executor:
        loop = asyncio.get_running_loop()
        for n in range(300):
            async with asyncio.timeout(DAY):
                assert await loop.run_in_executor(executor, lambda n=n: n) == n  # type: ignore[misc]


@pytest.mark.fastforward("exit")
async def test_programs_get_all_their_input() -> None:
    process = await asyncio.create_subprocess_exec("cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    async with asyncio.timeout(PATIENCE):
        output, _ = await process.communicate(b"hello")
    assert output == b"hello"


@pytest.mark.fastforward("exit")
async def test_all_goes_on_besides_threads_in_real_time() -> None:
    released = threading.Event()
    future = asyncio.get_running_loop().run_in_executor(None, released.wait, 10)
    await asyncio.sleep(0.01)
    assert not is_fast()
    assert not future.done()
    released.set()
    assert await future


@pytest.mark.fastforward("exit")
async def test_the_exit_is_fast() -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    with fast_forwarding():
        await asyncio.sleep(DAY)
    assert DAY <= loop.time() - started < DAY + 10
    assert not is_fast()


async def test_calls_from_other_threads_wake_the_loop_up() -> None:
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(event.set))
    thread.start()
    await event.wait()  # no timers: the loop waits truly
    thread.join()
