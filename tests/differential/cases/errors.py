"""Errors: temporary, permanent, arbitrary; retries, timeouts, backoffs."""

from __future__ import annotations

from tests.differential.lives import Case, create, delete, edit, settle, start, stop, until, until_log

ONCE = (create(), settle())


def failing(raising: str, options: str = "", kind: str = "create", is_async: bool = False) -> str:
    return f"""
@kopf.on.{kind}(*E{options and ", " + options})
{"async " if is_async else ""}def fn(retry, **kw):
    see({{**kw, 'retry': retry}})
    {raising}
    return retry
"""


CASES = [
    Case("temporary", failing("if retry < 3: raise kopf.TemporaryError('not yet', delay=0.1)"), ONCE),
    Case("permanent", failing("raise kopf.PermanentError('never')"), ONCE),
    Case("arbitrary", failing("if retry < 2: raise ValueError('boom')", "backoff=0.1"), ONCE),
    Case("arbitrary-async", failing("if retry < 2: raise ValueError('boom')", "backoff=0.1", is_async=True), ONCE),
    Case(
        "temporary-async", failing("if retry < 2: raise kopf.TemporaryError('not yet', delay=0)", is_async=True), ONCE
    ),
    Case("temporary-without-delay", failing("if retry < 2: raise kopf.TemporaryError('not yet', delay=None)"), ONCE),
    Case(
        "temporary-subclass",
        """
        class Later(kopf.TemporaryError):
            def __init__(self, msg):
                super().__init__(msg, delay=0.1)
        class Never(kopf.PermanentError):
            pass
        @kopf.on.create(*E)
        def fn(retry, **kw):
            see({**kw, 'retry': retry})
            raise Later('x') if retry < 1 else Never('y')
        """,
        ONCE,
    ),
    Case("arbitrary-permanent", failing("raise ValueError('boom')", "errors=kopf.ErrorsMode.PERMANENT"), ONCE),
    Case("arbitrary-ignored", failing("raise ValueError('boom')", "errors=kopf.ErrorsMode.IGNORED"), ONCE),
    Case(
        "arbitrary-then-temporary-mode",
        failing("if retry < 2: raise ValueError('boom')", "errors=kopf.ErrorsMode.TEMPORARY, backoff=0.1"),
        ONCE,
    ),
    Case("retries", failing("raise ValueError('boom')", "retries=3, backoff=0.1"), ONCE),
    Case("retries-of-temporary", failing("raise kopf.TemporaryError('x', delay=0.1)", "retries=2"), ONCE),
    Case("retries-one", failing("raise kopf.TemporaryError('x', delay=0.1)", "retries=1"), ONCE),
    Case("retries-zero", failing("pass", "retries=0"), ONCE),
    Case("retries-enough", failing("if retry < 2: raise kopf.TemporaryError('x', delay=0.1)", "retries=3"), ONCE),
    Case("timeout-between-retries", failing("raise kopf.TemporaryError('x', delay=1.5)", "timeout=1"), ONCE),
    Case("timeout-zero", failing("pass", "timeout=0"), ONCE),
    Case(
        "timeout-in-async",
        failing("await asyncio.sleep(1.5)", "timeout=0.5", is_async=True),
        (create(), until_log("is processed"), settle()),
    ),
    Case("timeout-in-sync", failing("time.sleep(1)", "timeout=0.3"), (create(), until_log("is processed"), settle())),
    Case(
        "backoff-default",
        """
        @kopf.on.create(*E)
        def fn(retry, **kw):
            see({**kw, 'retry': retry})
            if retry < 2:
                raise ValueError('boom')
        """,
        ONCE,
        settings="settings.execution.default_backoff = 0.2",
    ),
    Case(
        "errors-of-several",
        """
        @kopf.on.create(*E)
        def good(**kw):
            see(kw)
            return 'good'
        @kopf.on.create(*E, backoff=0.1, retries=2)
        def bad(**kw):
            see(kw)
            raise ValueError('bad')
        @kopf.on.create(*E)
        def worse(**kw):
            see(kw)
            raise kopf.PermanentError('worse')
        @kopf.on.create(*E)
        def late(**kw):
            see(kw)
            if kw['retry'] < 1:
                raise kopf.TemporaryError('late', delay=0.5)
            return 'late'
        """,
        (create(), settle(), edit(field=2), settle()),
    ),
    Case(
        "errors-in-update",
        failing("if retry < 1: raise ValueError('boom')", "backoff=0.1", "update"),
        (create(), settle(), edit(field=2), settle()),
    ),
    Case(
        "errors-in-delete",
        failing("if retry < 2: raise kopf.TemporaryError('used', delay=0.1)", kind="delete"),
        (create(), settle(), delete(), settle()),
    ),
    Case(
        "errors-permanent-in-delete",
        failing("raise kopf.PermanentError('no')", kind="delete"),
        (create(), settle(), delete(), settle()),
    ),
    Case(
        "errors-in-event",
        failing("raise ValueError('boom')", kind="event")
        .replace("retry, ", "")
        .replace(", 'retry': retry", "")
        .replace("return retry", ""),
        ONCE,
    ),
    Case(
        "errors-temporary-in-event",
        """
        @kopf.on.event(*E)
        def fn(**kw):
            see(kw)
            raise kopf.TemporaryError('x', delay=0.1)
        """,
        ONCE,
    ),
    Case(
        "errors-after-a-failed-creation",
        """
        @kopf.on.create(*E)
        def create_fn(**kw):
            see(kw)
            raise kopf.PermanentError('no')
        @kopf.on.update(*E)
        def update_fn(**kw): see(kw)
        """,
        (create(), settle(), edit(field=2), settle(), stop(), start(), settle()),
    ),
    Case(
        "errors-retries-across-restarts",
        failing("raise kopf.TemporaryError('x', delay=3)", "retries=3"),
        (create(), until("fn"), stop(), start(), settle()),
    ),
    Case("errors-with-empty-message", failing("raise kopf.PermanentError()"), ONCE),
    Case("errors-with-long-message", failing("raise kopf.PermanentError('x' * 2000)"), ONCE),
    Case("errors-with-unicode", failing("raise kopf.PermanentError('äöü ☃ \\n second line')"), ONCE),
    Case("errors-stop-iteration", failing("raise StopIteration('x')", "retries=2, backoff=0.1"), ONCE),
    Case(
        "errors-cancelled",
        failing("raise asyncio.CancelledError()", "retries=2, backoff=0.1", is_async=True),
        (create(), until("fn")),
    ),
    Case(
        "errors-wrong-signature",
        """
        @kopf.on.create(*E, retries=1)
        def fn(spec, **_):
            note('called')
        @kopf.on.create(*E, retries=1)
        def positional(**kw):
            note('called positional')
        """,
        ONCE,
    ),
    Case(
        "errors-mutating-views",
        """
        @kopf.on.create(*E, retries=1)
        def fn(spec, **_):
            spec['field'] = 2
        """,
        ONCE,
    ),
    Case(
        "errors-mutating-nested",
        """
        @kopf.on.create(*E)
        @kopf.on.update(*E)
        def fn(body, spec, **kw):
            see(kw)
            spec['nested']['list'].append(1)
            body['spec']['nested']['x'] = 'y'
        @kopf.on.create(*E)
        @kopf.on.update(*E)
        def second(**kw):
            note(kw['reason'])
        """,
        (create(spec={"nested": {"list": []}}), settle(), stop(), start(), settle(), edit(field=2), settle()),
    ),
    Case(
        "errors-refused-patch",
        """
        @kopf.on.create(*E)
        def first(patch, **kw):
            see(kw)
            patch.metadata.labels['wrong'] = 'not a label!'
        @kopf.on.create(*E)
        def second(**kw): see(kw)
        """,
        (create(), until("first")),
    ),
]
