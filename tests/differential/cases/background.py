"""Daemons and timers."""

from __future__ import annotations

from tests.differential.lives import Case, create, delete, edit, kill, label, settle, start, stop, until, until_note

DAEMON = """
@kopf.daemon(*E)
async def fn(stopped, **kw):
    see({**kw, 'stopped': stopped})
    note('begin')
    await stopped.wait()
    note('end')
"""
LIFE = (create(), until_note("begin"), settle(), edit(field=2), settle(), delete(), settle())


def ticking(options: str, body: str = "pass") -> str:
    return f"@kopf.timer(*E, {options})\ndef tick(**kw):\n    see(kw)\n    {body}\n"


CASES = [
    Case("daemon", DAEMON, LIFE),
    Case("timer", ticking("interval=0.3"), (create(), until("tick", 3), delete(), settle()), first={"tick": 3}),
    Case(
        "daemon-sync",
        """
        @kopf.daemon(*E)
        def fn(stopped, **kw):
            see(kw)
            note('begin')
            while not stopped:
                stopped.wait(0.1)
            note('end')
        """,
        LIFE,
    ),
    Case(
        "daemon-exits",
        """
        @kopf.daemon(*E)
        async def fn(**kw):
            see(kw)
            return 'over'
        """,
        (create(), settle(), edit(field=2), settle(), delete(), settle()),
    ),
    Case(
        "daemon-exits-beside-handlers",
        """
        @kopf.daemon(*E)
        async def fn(**kw):
            see(kw)
            note('begin')
        @kopf.on.create(*E)
        @kopf.on.update(*E)
        @kopf.on.delete(*E)
        def change_fn(**kw): see(kw)
        """,
        LIFE,
    ),
    Case(
        "daemon-beside-deletion",
        DAEMON
        + """
@kopf.on.delete(*E)
def delete_fn(**kw):
    see(kw)
    return 'deleted'
""",
        LIFE,
    ),
    Case(
        "timer-beside-deletion",
        ticking("interval=30")
        + """
@kopf.on.delete(*E)
def delete_fn(**kw):
    see(kw)
    return 'deleted'
""",
        (create(), until("tick"), settle(), delete(), settle()),
    ),
    Case(
        "daemon-and-timer-beside-deletion",
        DAEMON
        + ticking("interval=30")
        + """
@kopf.on.delete(*E)
def delete_fn(**kw):
    see(kw)
    if kw['retry'] < 1:
        raise kopf.TemporaryError('used', delay=0.1)
""",
        LIFE,
    ),
    Case("daemon-stopped-with-the-operator", DAEMON, (create(), until_note("begin"), settle(), stop())),
    Case(
        "daemon-after-restart",
        DAEMON,
        (create(), until_note("begin"), settle(), stop(), start(), until_note("begin"), settle()),
    ),
    Case(
        "daemon-after-kill",
        DAEMON,
        (create(), until_note("begin"), settle(), kill(), start(), until_note("begin"), delete(), settle()),
    ),
    Case(
        "daemon-deleted-in-downtime",
        DAEMON,
        (create(), until_note("begin"), settle(), stop(), delete(), start(), settle()),
    ),
    Case(
        "daemon-gone-in-the-next-version",
        DAEMON,
        (create(), until_note("begin"), settle(), stop(), start(file="next.py"), settle(), edit(field=2), settle()),
        files={"next.py": "@kopf.on.update(*E)\ndef fn(**kw):\n    see(kw)\n"},
    ),
    Case(
        "daemon-cancelled",
        """
        @kopf.daemon(*E, cancellation_timeout=2)
        async def fn(**kw):
            note('begin')
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                note('cancelled')
                raise
        """,
        LIFE,
    ),
    Case(
        "daemon-cancelled-after-backoff",
        """
        @kopf.daemon(*E, cancellation_backoff=0.3, cancellation_timeout=2)
        async def fn(stopped, **kw):
            note('begin')
            try:
                await stopped.wait()
                note('stopped')
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                note('cancelled')
        """,
        LIFE,
    ),
    Case(
        "daemon-abandoned",
        """
        @kopf.daemon(*E, cancellation_timeout=0.3)
        async def fn(stopped, **kw):
            note('begin')
            while True:
                try:
                    await asyncio.sleep(1000)
                except asyncio.CancelledError:
                    if count('cancelled') > 1:
                        raise
                    note('disobeys')
        """,
        LIFE,
    ),
    Case(
        "daemon-temporary-errors",
        """
        @kopf.daemon(*E)
        async def fn(retry, **kw):
            see({**kw, 'retry': retry})
            if retry < 3:
                raise kopf.TemporaryError('again', delay=0.1)
            return retry
        """,
        (create(), until("fn", 4), settle()),
    ),
    Case(
        "daemon-arbitrary-errors",
        """
        @kopf.daemon(*E, backoff=0.1, retries=3)
        async def fn(retry, **kw):
            see({**kw, 'retry': retry})
            raise ValueError('boom')
        """,
        (create(), until("fn", 3), settle(), edit(field=2), settle(), delete(), settle()),
    ),
    Case(
        "daemon-permanent-error",
        """
        @kopf.daemon(*E)
        async def fn(**kw):
            see(kw)
            raise kopf.PermanentError('no')
        """,
        (create(), until("fn"), settle(), edit(field=2), settle(), delete(), settle()),
    ),
    Case(
        "daemon-errors-ignored",
        """
        @kopf.daemon(*E, errors=kopf.ErrorsMode.IGNORED)
        async def fn(**kw):
            see(kw)
            raise ValueError('boom')
        """,
        (create(), until("fn"), settle()),
    ),
    Case(
        "daemon-filtered",
        """
        @kopf.daemon(*E, labels={'mine': 'yes'})
        async def fn(stopped, **kw):
            see(kw)
            note('begin')
            await stopped.wait()
            note('end')
        """,
        (
            create(),
            settle(),
            label(mine="yes"),
            until_note("begin"),
            settle(),
            label(mine=None),
            until_note("end"),
            settle(),
            edit(field=2),
            settle(),
            label(mine="yes"),
            until_note("begin", 2),
            settle(),
            delete(),
            settle(),
        ),
    ),
    Case(
        "daemon-filtered-by-field",
        """
        @kopf.daemon(*E, field='spec.field', value='on')
        async def fn(stopped, **kw):
            see(kw)
            note('begin')
            await stopped.wait()
            note('end')
        """,
        (
            create(),
            settle(),
            edit(field="on"),
            until_note("begin"),
            settle(),
            edit(field="off"),
            until_note("end"),
            settle(),
        ),
    ),
    Case(
        "daemon-sees-changes",
        """
        @kopf.daemon(*E)
        async def fn(stopped, spec, **kw):
            note('begin')
            while not stopped and spec['field'] != 2:
                await stopped.wait(0.05)
            note(f"field is {spec['field']}")
        """,
        (create(), until_note("begin"), edit(field=2), until_note("field is 2"), settle()),
    ),
    Case(
        "daemon-patches",
        """
        @kopf.daemon(*E)
        async def fn(patch, **kw):
            patch.status['daemon'] = 'was here'
            patch.metadata.labels['daemon'] = 'was-here'
            return {'x': 1}
        """,
        (create(), settle()),
    ),
    Case(
        "daemon-initial-delay",
        """
        @kopf.daemon(*E, initial_delay=0.5)
        async def fn(stopped, **kw):
            see(kw)
            note('begin')
            await stopped.wait()
        """,
        LIFE,
    ),
    Case(
        "daemon-sees-why-it-is-stopped",
        """
        @kopf.daemon(*E)
        async def fn(stopped, **kw):
            note('begin')
            await stopped.wait()
            note(kopf.DaemonStoppingReason.RESOURCE_DELETED in stopped.reason)
        """,
        LIFE,
    ),
    Case(
        "timer-initial-delay",
        ticking("interval=0.3, initial_delay=0.5"),
        (create(), until("tick", 2)),
        first={"tick": 2},
    ),
    Case(
        "timer-idle",
        ticking("idle=0.5, interval=30"),
        (create(), until("tick"), edit(field=2), until("tick", 2)),
        first={"tick": 2},
    ),
    Case(
        "timer-sharp",
        ticking("interval=0.3, sharp=True", "time.sleep(0.1)"),
        (create(), until("tick", 3)),
        first={"tick": 3},
    ),
    Case(
        "timer-result",
        """
        @kopf.timer(*E, interval=30)
        def tick(patch, **kw):
            see(kw)
            patch.status['ticked'] = True
            return 'tock'
        """,
        (create(), until("tick"), settle(), delete(), settle()),
    ),
    Case(
        "timer-temporary-errors",
        """
        @kopf.timer(*E, interval=30)
        def tick(retry, **kw):
            see({**kw, 'retry': retry})
            if retry < 2:
                raise kopf.TemporaryError('again', delay=0.1)
        """,
        (create(), until("tick", 3), settle()),
    ),
    Case(
        "timer-arbitrary-errors",
        """
        @kopf.timer(*E, interval=0.2, backoff=0.1)
        def tick(retry, **kw):
            see({**kw, 'retry': retry})
            if retry < 2:
                raise ValueError('boom')
        """,
        (create(), until("tick", 4)),
        first={"tick": 4},
    ),
    Case(
        "timer-permanent-error",
        """
        @kopf.timer(*E, interval=0.3)
        def tick(**kw):
            see(kw)
            if count('tick') > 1:
                raise kopf.PermanentError('over')
        """,
        (create(), until("tick", 2), settle()),
        first={"tick": 3},
    ),
    Case(
        "timer-retries",
        """
        @kopf.timer(*E, interval=30, retries=2, backoff=0.1)
        def tick(retry, **kw):
            see({**kw, 'retry': retry})
            raise ValueError('boom')
        """,
        (create(), until("tick", 2), settle()),
    ),
    Case(
        "timer-filtered",
        """
        @kopf.timer(*E, interval=30, labels={'mine': 'yes'})
        def tick(**kw): see(kw)
        """,
        (
            create(),
            settle(),
            label(mine="yes"),
            until("tick"),
            settle(),
            label(mine=None),
            settle(),
            label(mine="yes"),
            until("tick", 2),
            settle(),
            delete(),
            settle(),
        ),
    ),
    Case(
        "timer-and-others",
        ticking("interval=30")
        + """
@kopf.on.create(*E)
@kopf.on.update(*E)
def change_fn(**kw): see(kw)
""",
        (create(), until("tick"), settle(), edit(field=2), settle(), stop(), start(), until("tick"), settle()),
    ),
    Case(
        "daemon-held-by-a-slow-one",
        """
        @kopf.daemon(*E)
        async def fn(stopped, **kw):
            note('begin')
            await stopped.wait()
            await asyncio.sleep(0.5)
            note('end')
        @kopf.on.delete(*E)
        def delete_fn(**kw):
            see(kw)
            note('deleted')
        """,
        LIFE,
    ),
    Case(
        "daemon-of-foreign-finalizer",
        DAEMON,
        (
            create(finalizers=["example.com/f"]),
            until_note("begin"),
            settle(),
            delete(),
            until_note("end"),
            settle(),
            edit(field=2),
            settle(),
        ),
    ),
]
