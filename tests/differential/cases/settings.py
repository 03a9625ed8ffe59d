"""Settings: storages, finalizers, postings; the Kubernetes events; the log lines."""

from __future__ import annotations

from tests.differential.lives import Case, create, delete, edit, saved, settle, start, stop

HANDLERS = """
@kopf.on.create(*E)
@kopf.on.update(*E)
@kopf.on.delete(*E)
def first(**kw):
    see(kw)
    return 'first'

@kopf.on.create(*E)
@kopf.on.update(*E)
def second(**kw):
    see(kw)
    if os.environ['LIFE'] == '1' and 'hold' in kw['annotations']:
        raise kopf.TemporaryError('held', delay=6)
    return 'second'

@kopf.on.create(*E)
@kopf.on.update(*E)
def third(**kw): see(kw)
"""
LIFE = (
    create(),
    settle(),
    edit(field=2),
    settle(),
    stop(),
    start(),
    settle(),
    edit(field=3),
    settle(),
    delete(),
    settle(),
)
POSTING = """
@kopf.on.create(*E)
def fn(body, logger, **kw):
    kopf.event(body, type='Custom', reason='Any', message='any message')
    kopf.info(body, reason='Info', message='info message')
    kopf.warn(body, reason='Warn', message='warn message')
    try:
        raise ValueError('boom')
    except ValueError:
        kopf.exception(body, reason='Exc', message='exc message:')
    logger.info('logged')
    logger.warning('warned')
    logger.error('failed')
"""


def storing(progress: str, diffbase: str = "kopf.AnnotationsDiffBaseStorage()") -> str:
    return f"settings.persistence.progress_storage = {progress}\nsettings.persistence.diffbase_storage = {diffbase}"


def case(name: str, settings: str) -> Case:
    return Case(f"storage-{name}", HANDLERS, LIFE, settings=settings)


CASES = [
    case(
        "annotations",
        storing(
            "kopf.AnnotationsProgressStorage(prefix='my.example.com')",
            "kopf.AnnotationsDiffBaseStorage(prefix='my.example.com', key='last')",
        ),
    ),
    Case("posting", POSTING, (create(), settle()), settings="settings.posting.enabled = True"),
    case(
        "status",
        storing(
            "kopf.StatusProgressStorage(field='status.my.progress')",
            "kopf.StatusDiffBaseStorage(field='status.my.base')",
        ),
    ),
    case(
        "status-named",
        storing(
            "kopf.StatusProgressStorage(name='my', touch_field='status.my.touch')",
            "kopf.StatusDiffBaseStorage(name='my')",
        ),
    ),
    case(
        "multi",
        storing(
            "kopf.MultiProgressStorage([kopf.AnnotationsProgressStorage(prefix='my.example.com'), kopf.StatusProgressStorage()])",
            "kopf.MultiDiffBaseStorage([kopf.AnnotationsDiffBaseStorage(prefix='my.example.com'), kopf.StatusDiffBaseStorage()])",
        ),
    ),
    case("smart", storing("kopf.SmartProgressStorage(name='my', prefix='my.example.com')")),
    case("v1-off", storing("kopf.AnnotationsProgressStorage(prefix='my.example.com', v1=False)")),
    case(
        "ignored-fields",
        storing("kopf.SmartProgressStorage()", "kopf.AnnotationsDiffBaseStorage(ignored_fields=['spec.field'])"),
    ),
    case("finalizer", "settings.persistence.finalizer = 'my.example.com/finalizer'"),
    Case("storage-held", HANDLERS, (create(annotations={"hold": "yes"}), saved("third"), stop(), start(), settle())),
    Case(
        "storage-changed",
        HANDLERS,
        (create(), settle(), stop(), start(file="next.py"), settle(), edit(field=2), settle()),
        files={
            "next.py": HANDLERS
            + """
@kopf.on.startup()
def configure(settings, **_):
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix='my.example.com')
    settings.persistence.diffbase_storage = kopf.MultiDiffBaseStorage([
        kopf.AnnotationsDiffBaseStorage(prefix='my.example.com'), kopf.AnnotationsDiffBaseStorage()])
"""
        },
    ),
    Case(
        "storage-custom",
        """
        class Storage(kopf.AnnotationsDiffBaseStorage):
            def build(self, *, body, extra_fields=None, **kw):
                essence = super().build(body=body, extra_fields=extra_fields, **kw)
                essence.get('spec', {}).pop('ignored', None)
                return essence
        @kopf.on.startup()
        def configure(settings, **_):
            settings.persistence.diffbase_storage = Storage()
        @kopf.on.create(*E)
        @kopf.on.update(*E)
        def fn(**kw): see(kw)
        """,
        (create(spec={"field": 1, "ignored": 1}), settle(), edit(ignored=2), settle(), edit(field=2), settle()),
    ),
    Case("posting-of-logs", POSTING + "    raise kopf.PermanentError('over')\n", (create(), settle()), events=True),
    Case("posting-of-cycles", HANDLERS, (create(), settle(), edit(field=2), settle(), delete(), settle()), events=True),
    Case(
        "posting-from-warnings",
        POSTING,
        (create(), settle()),
        events=True,
        settings="settings.posting.level = logging.WARNING",
    ),
    Case(
        "posting-default-of-logs", POSTING, (create(), settle()), settings="settings.posting = type(settings.posting)()"
    ),
    Case("posting-disabled", POSTING, (create(), settle()), settings="settings.posting.enabled = False"),
    Case(
        "posting-disabled-logs-only",
        POSTING,
        (create(), settle()),
        settings="settings.posting.enabled = True\nsettings.posting.loggers = False",
    ),
    Case(
        "posting-named",
        POSTING,
        (create(), settle()),
        settings="settings.posting.enabled = True\n"
        "settings.posting.reporting_component = 'kopf'\nsettings.posting.reporting_instance = 'me'\nsettings.posting.event_name_prefix = 'my-'",
    ),
    Case(
        "posting-of-errors",
        """
        @kopf.on.create(*E, backoff=0.1, retries=2)
        def fn(**kw):
            raise ValueError('boom')
        @kopf.on.create(*E)
        def temporary(retry, **kw):
            if not retry:
                raise kopf.TemporaryError('later', delay=0.1)
        """,
        (create(), settle()),
        events=True,
    ),
    Case(
        "posting-for-wide",
        """
        @kopf.on.create('kopfwideexamples')
        def fn(body, **kw):
            kopf.info(body, reason='Info', message='wide')
        """,
        (create(kind="wide"), settle()),
        kinds=("wide",),
        watches="kopfwideexamples",
        settings="settings.posting.enabled = True",
    ),
    Case(
        "posting-for-others",
        """
        @kopf.on.create(*E)
        def fn(**kw):
            ref = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'cm', 'namespace': 'default', 'uid': '123'}}
            kopf.info(ref, reason='Info', message='for another')
            kopf.info([ref, ref], reason='Both', message='for a list')
        """,
        (create(), settle()),
        settings="settings.posting.enabled = True",
    ),
    Case(
        "posting-long",
        """
        @kopf.on.create(*E)
        def fn(body, **kw):
            kopf.info(body, reason='Long', message='x' * 3000)
            kopf.info(body, reason='Empty', message='')
            kopf.info(body, reason='Lines', message='a' + chr(10) + 'b')
        """,
        (create(), settle()),
        settings="settings.posting.enabled = True",
    ),
    Case(
        "posting-in-delete",
        """
        @kopf.on.delete(*E)
        def fn(body, **kw):
            kopf.warn(body, reason='Bye', message='deleted')
        """,
        settings="settings.posting.enabled = True",
    ),
    Case(
        "executor",
        """
        import concurrent.futures
        @kopf.on.startup()
        def configure(settings, **_):
            settings.execution.executor = concurrent.futures.ThreadPoolExecutor(max_workers=2, thread_name_prefix='mine')
        @kopf.on.create(*E)
        def fn(**kw):
            note(threading.current_thread().name.split('_')[0].split('-')[0])
        """,
        (create(), settle()),
    ),
]
