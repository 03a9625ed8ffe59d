"""The operator as a process: activities, probes, exit codes, loading, selectors, scopes, embedding."""

from __future__ import annotations

from tests.differential.lives import (
    Case,
    create,
    delete,
    edit,
    fault,
    launch,
    leave,
    probe,
    raw,
    settle,
    start,
    stop,
    until,
    until_note,
)

SEE = "def fn(**kw):\n    see(kw)\n"
BOTH = (create(), create(kind="child"), create(kind="sub"), create(kind="wide"), settle())
KINDS = ("kex", "child", "sub", "wide")


def selecting(*args: str, kind: str = "create") -> str:
    return "\n".join(
        f"@kopf.on.{kind}({arg}, id='fn{number}', param={number})\ndef fn{number}(**kw):\n    see(kw)\n"
        for number, arg in enumerate(args)
    )


CASES = [
    Case(
        "startup",
        """
        @kopf.on.startup()
        def first(**kw): see(kw)
        @kopf.on.startup()
        async def second(**kw): see(kw)
        @kopf.on.cleanup()
        def cleanup(**kw): see(kw)
        @kopf.on.cleanup()
        async def cleanup_async(**kw): see(kw)
        @kopf.on.create(*E)
        def fn(**kw): see(kw)
        """,
        (create(), settle()),
    ),
    Case(
        "probe",
        """
        @kopf.on.probe()
        def now(**kw):
            return 'now'
        @kopf.on.probe(id='number')
        async def number_fn(**kw):
            return 5
        @kopf.on.create(*E)
        def fn(**kw): see(kw)
        """,
        (probe(), probe("/healthz"), create(), settle()),
        args=("--standalone", "-A", "--liveness=http://127.0.0.1:{port}/healthz"),
    ),
    Case(
        "probe-without-handlers",
        f"@kopf.on.create(*E)\n{SEE}",
        (probe(),),
        args=("--standalone", "-A", "--liveness=http://127.0.0.1:{port}/healthz"),
    ),
    Case(
        "probe-failing",
        f"""
@kopf.on.probe()
def probe_fn(**kw):
    raise kopf.PermanentError('no')
@kopf.on.probe()
def other_fn(**kw):
    return 'x'
@kopf.on.create(*E)
{SEE}""",
        (probe(),),
        args=("--standalone", "-A", "--liveness=http://127.0.0.1:{port}/healthz"),
    ),
    Case(
        "startup-permanent",
        f"""
@kopf.on.startup()
def startup_fn(**kw):
    see(kw)
    raise kopf.PermanentError('no')
@kopf.on.cleanup()
def cleanup_fn(**kw): see(kw)
@kopf.on.create(*E)
{SEE}""",
        (launch(), leave()),
    ),
    Case(
        "startup-retried",
        f"""
@kopf.on.startup(backoff=0.1)
def startup_fn(retry, **kw):
    see({{**kw, 'retry': retry}})
    if retry == 0:
        raise ValueError('boom')
    if retry == 1:
        raise kopf.TemporaryError('later', delay=0.1)
@kopf.on.create(*E)
{SEE}""",
        (create(), settle()),
    ),
    Case(
        "startup-retries",
        f"""
@kopf.on.startup(backoff=0.1, retries=2)
def startup_fn(retry, **kw):
    see({{**kw, 'retry': retry}})
    raise ValueError('boom')
@kopf.on.create(*E)
{SEE}""",
        (launch(), leave()),
    ),
    Case(
        "startup-ignored",
        f"""
@kopf.on.startup(errors=kopf.ErrorsMode.IGNORED)
def startup_fn(**kw):
    see(kw)
    raise ValueError('boom')
@kopf.on.create(*E)
{SEE}""",
        (create(), settle()),
    ),
    Case(
        "cleanup-failing",
        f"""
@kopf.on.cleanup()
def first(**kw):
    see(kw)
    raise kopf.PermanentError('no')
@kopf.on.cleanup()
def second(**kw): see(kw)
@kopf.on.create(*E)
{SEE}""",
        (create(), settle()),
    ),
    Case(
        "cleanup-retried",
        f"""
@kopf.on.cleanup(backoff=0.1)
def first(retry, **kw):
    see({{**kw, 'retry': retry}})
    if retry < 1:
        raise ValueError('boom')
@kopf.on.create(*E)
{SEE}""",
        (create(), settle()),
    ),
    Case(
        "login-by-default",
        "import kopf\n@kopf.on.create('kopfexamples')\ndef fn(**kw): pass\n",
        (create(), settle()),
        is_bare=True,
    ),
    Case(
        "login-failing",
        "import kopf\n@kopf.on.login(retries=1)\ndef login_fn(**kw):\n    raise kopf.PermanentError('no')\n"
        "@kopf.on.create('kopfexamples')\ndef fn(**kw): pass\n",
        (launch(), leave()),
        is_bare=True,
    ),
    Case(
        "login-with-nothing",
        "import kopf\n@kopf.on.login()\ndef login_fn(**kw):\n    return None\n"
        "@kopf.on.create('kopfexamples')\ndef fn(**kw): pass\n",
        (launch(), leave()),
        is_bare=True,
    ),
    Case("exit-file-fails", "raise ValueError('boom')\n", (launch(), leave()), is_bare=True),
    Case("exit-syntax-error", "this is not python\n", (launch(), leave()), is_bare=True),
    Case("exit-no-such-file", "", (launch(file="absent.py"), leave())),
    Case("exit-no-such-module", "", (launch("-m", "absent.module"), leave())),
    Case("exit-no-files", "", (launch(file=""), leave())),
    Case("exit-wrong-option", "", (launch("--no-such-option"), leave())),
    Case("exit-wrong-value", "", (launch("--priority=x"), leave())),
    Case(
        "exit-by-sigterm-in-a-handler",
        """
        @kopf.on.create(*E)
        async def fn(**kw):
            note('begin')
            await asyncio.sleep(0.5)
            note('end')
        """,
        (create(), until_note("begin"), stop(), start(), settle()),
    ),
    Case(
        "exit-in-a-sync-handler",
        """
        @kopf.on.create(*E)
        def fn(**kw):
            note('begin')
            time.sleep(0.5)
            note('end')
        """,
        (create(), until_note("begin"), stop(), start(), settle()),
    ),
    Case(
        "loading-two-files",
        f"import kopf\n@kopf.on.create(*E)\n{SEE}",
        (start("second.py"), create(), settle()),
        files={"second.py": "@kopf.on.create(*E)\ndef second(**kw):\n    see(kw)\n"},
    ),
    Case(
        "loading-modules",
        "",
        (start("-m", "package.module"), create(), settle()),
        files={
            "package/__init__.py": "",
            "package/module.py": "from package import sibling\n@kopf.on.create(*E)\ndef fn(**kw):\n    see(kw)\n    note(__name__)\n",
            "package/sibling.py": "@kopf.on.create(*E)\ndef second(**kw):\n    see(kw)\n    note(__name__)\n",
        },
    ),
    Case(
        "loading-sibling-files",
        f"import helper\n@kopf.on.create(*E)\n{SEE}    note([helper.X, __name__])\n",
        (create(), settle()),
        files={"helper.py": "X = 1\n"},
    ),
    Case(
        "selector-forms",
        selecting(
            "'kopfexamples'",
            "'kopfexample'",
            "'KopfExample'",
            "'kex'",
            "'kopf.dev', 'kopfexamples'",
            "'kopf.dev/v1', 'kopfexamples'",
            "'kopf.dev', 'v1', 'kex'",
            "'kopfexamples.kopf.dev'",
            "'kopfexamples.v1.kopf.dev'",
        ),
        BOTH,
    ),
    Case(
        "selector-names",
        selecting(
            "kind='KopfExample'",
            "plural='kopfexamples'",
            "singular='kopfexample'",
            "shortcut='kex'",
            "group='kopf.dev', version='v1', plural='kopfexamples'",
        ),
        BOTH,
    ),
    Case("selector-categories", selecting("category='examples'"), BOTH, kinds=KINDS),
    Case(
        "selector-everything-in-a-group",
        selecting("'kopf.dev', kopf.EVERYTHING", "'kopf.dev/v1', kopf.EVERYTHING", "'kopf.dev', 'v1', kopf.EVERYTHING"),
        BOTH,
        kinds=KINDS,
    ),
    Case(
        "selector-everything",
        selecting("kopf.EVERYTHING, labels={'mine': 'yes'}"),
        (
            create(labels={"mine": "yes"}),
            create(kind="child", labels={"mine": "yes"}),
            create(kind="configmap", spec={}, labels={"mine": "yes"}, extra={"data": {}}),
            settle(),
        ),
        kinds=(*KINDS, "configmap"),
    ),
    Case(
        "selector-callable",
        selecting("lambda resource: resource.kind == 'KopfChild'"),
        BOTH,
        kinds=KINDS,
        watches="kopfchildren",
    ),
    Case(
        "selector-ambiguous",
        selecting("'kopfexamples'", "'kopfchildren'"),
        (*BOTH, create(kind="other"), settle()),
        kinds=(*KINDS, "other"),
        watches="kopfchildren",
    ),
    Case("selector-unknown", selecting("'nonexistents'", "'kopfexamples'"), BOTH),
    Case(
        "selector-core",
        selecting("'v1', 'configmaps'", "'', 'v1', 'configmaps'", "'configmaps.v1'", "'configmap'", "'cm'"),
        (create(kind="configmap", spec={}, extra={"data": {}}), settle()),
        kinds=("configmap",),
        watches="configmaps",
    ),
    Case(
        "selector-two-resources",
        "@kopf.on.create('kopfexamples')\n@kopf.on.create('kopfchildren')\n" + SEE,
        BOTH,
        kinds=KINDS,
    ),
    Case(
        "selector-new-kinds",
        selecting("'kopfexamples'", "'other.dev', 'kopflates'"),
        (
            create(),
            settle(),
            raw(
                "crd",
                {
                    "metadata": {"name": "kopflates.other.dev"},
                    "spec": {
                        "group": "other.dev",
                        "scope": "Namespaced",
                        "names": {"kind": "KopfLate", "plural": "kopflates", "singular": "kopflate"},
                        "versions": [
                            {
                                "name": "v1",
                                "served": True,
                                "storage": True,
                                "schema": {
                                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                                },
                            }
                        ],
                    },
                },
            ),
            settle(),
            create(kind="late"),
            settle(),
        ),
        kinds=("kex", "late"),
    ),
    Case(
        "scope-namespace",
        f"@kopf.on.create(*E)\n{SEE}",
        (start(), create(), create(namespace="ns1"), create(namespace="ns2"), settle()),
        given=tuple(raw("namespace", {"metadata": {"name": name}}) for name in ("ns1", "ns2")),
        args=("--standalone", "-n", "ns1"),
    ),
    Case(
        "scope-namespaces-by-globs",
        f"@kopf.on.create(*E)\n{SEE}",
        (
            start(),
            create(),
            create(namespace="ns1"),
            create(namespace="ns2"),
            settle(),
            raw("namespace", {"metadata": {"name": "ns3"}}),
            settle(),
            create(namespace="ns3"),
            settle(),
        ),
        given=tuple(raw("namespace", {"metadata": {"name": name}}) for name in ("ns1", "ns2")),
        args=("--standalone", "-n", "ns*,!ns2"),
    ),
    Case(
        "scope-wide-with-a-namespace",
        "@kopf.on.create('kopfwideexamples')\n@kopf.on.create('kopfexamples')\n" + SEE,
        (create(), create(kind="wide"), settle()),
        kinds=("kex", "wide"),
        args=("--standalone", "-n", "default"),
    ),
    Case(
        "api-errors",
        f"@kopf.on.create(*E)\n@kopf.on.update(*E)\n{SEE}    return 1\n",
        (fault(status=500, verb="patch", times=2), create(), until("fn"), settle(), edit(field=2), settle()),
        settings="settings.networking.error_backoffs = [0.1, 0.1, 0.1]",
    ),
    Case(
        "api-conflicts",
        f"@kopf.on.create(*E)\n@kopf.on.delete(*E)\n{SEE}    return 1\n",
        (fault(status=409, verb="patch", times=2), create(), until("fn"), settle(), delete(), settle()),
        settings="settings.networking.error_backoffs = [0.1, 0.1, 0.1]",
    ),
    Case(
        "embedded",
        """
        import asyncio, threading, kopf, os, signal
        from tests.differential.inside.witness import see, note
        @kopf.on.login()
        def login(**kw):
            return kopf.login_with_kubeconfig(**kw)
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(login)
        @kopf.on.create('kopf.dev', 'v1', 'kopfexamples', registry=registry)
        def fn(**kw):
            see(kw)
            return 'embedded'
        ready, stop = threading.Event(), threading.Event()
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        def run():
            asyncio.run(kopf.operator(registry=registry, settings=settings, clusterwide=True, standalone=True,
                                      ready_flag=ready, stop_flag=stop, memo=kopf.Memo(given=1)))
            note('over')
        thread = threading.Thread(target=run)
        thread.start()
        note(ready.wait(10))
        signal.signal(signal.SIGTERM, lambda *_: (stop.set(), thread.join(), os._exit(7)))
        while True:
            signal.pause()
        """,
        (create(), settle()),
        is_bare=True,
    ),
]
