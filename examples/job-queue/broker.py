"""Messages of a stream in Redis, each delivered again and again until it is acknowledged."""

import contextlib
import dataclasses
import os
from collections.abc import AsyncIterator

import redis.asyncio
import redis.exceptions

GROUP = "kopf"


@dataclasses.dataclass(frozen=True)
class Message:
    """What is in the queue."""

    id: str
    """Unique in its queue, and good for the name of an object."""
    text: str


class Messages:
    """All messages of one consumer: first the unacknowledged ones, then the new ones, as they come."""

    def __init__(self, client: redis.asyncio.Redis, queue: str, consumer: str) -> None:
        self._client = client
        self._queue = queue
        self._consumer = consumer

    async def __aiter__(self) -> AsyncIterator[Message]:
        position = "0"  # from the first one of the pending
        while True:
            streams = await self._client.xreadgroup(GROUP, self._consumer, {self._queue: position}, count=1, block=0)
            found = streams[0][1] if streams else []
            if not found:
                position = ">"  # and then the new ones
            for id, fields in found:
                yield Message(id, fields["text"])
                position = id if position != ">" else position

    async def acknowledge(self, message: Message) -> None:
        """Do not deliver it again."""
        await self._client.xack(self._queue, GROUP, message.id)


@contextlib.asynccontextmanager
async def subscribe(queue: str, consumer: str) -> AsyncIterator[Messages]:
    """Connect to the server in the environment variable ``REDIS_URL``."""
    async with redis.asyncio.from_url(os.environ["REDIS_URL"], decode_responses=True) as client:
        with contextlib.suppress(redis.exceptions.ResponseError):  # it is there already
            await client.xgroup_create(queue, GROUP, id="0", mkstream=True)
        yield Messages(client, queue, consumer)
