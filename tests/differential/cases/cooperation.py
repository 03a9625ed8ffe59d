"""Peering, freezing, and admission."""

from __future__ import annotations

from tests.differential.lives import (
    Case,
    Step,
    command,
    create,
    delete,
    edit,
    launch,
    patch,
    raw,
    settle,
    start,
    stop,
    until,
    until_log,
)

SEE = "def fn(**kw):\n    see(kw)\n"
PEERING = (raw("cpeering", {"metadata": {"name": "default"}}),)
NAMED = (raw("cpeering", {"metadata": {"name": "mine"}}),)
PEER = {"lastseen": "<now>", "lifetime": 300}
OLD = {"lastseen": "2020-01-01T00:00:00+00:00", "lifetime": 60, "priority": 100}


def peer(priority: int, name: str = "default") -> Step:
    return patch({"status": {"another": {**PEER, "priority": priority}}}, name, kind="cpeering")


HOOK = """
@kopf.on.startup()
def configure_webhooks(settings, **_):
    import ssl
    settings.admission.server = kopf.WebhookServer(addr='127.0.0.1', port=int(os.environ['WEBHOOK_PORT']), insecure=False,
        certfile=os.environ['FOLDER'] + '/cert.pem', pkeyfile=os.environ['FOLDER'] + '/key.pem', cafile=os.environ['FOLDER'] + '/cert.pem')
    settings.admission.managed = 'auto.kopf.dev'
"""


def admission(name: str, source: str, *life: Step, kinds: tuple[str, ...] = ("kex",)) -> Case:
    ready = until_log("configure_webhooks")
    return Case(
        f"admission-{name}",
        HOOK + "@kopf.on.event(*E)\ndef seen(**kw):\n    see(kw)\n" + source,
        (start(), ready, settle(), *life, settle()),
        kinds=kinds,
        webhooks=True,
    )


CASES = [
    Case("peering-alone", f"@kopf.on.create(*E)\n{SEE}", (start(), create(), settle()), given=PEERING, args=("-A",)),
    admission(
        "validate",
        """
@kopf.on.validate(*E)
def check(spec, warnings, **kw):
    note(sorted(kw))
    warnings.append('be careful')
    if spec.get('field') == 'bad':
        raise kopf.AdmissionError('it is bad', code=418)
    if spec.get('field') == 'worse':
        raise kopf.PermanentError('it is worse')
    if spec.get('field') == 'late':
        raise kopf.TemporaryError('try later')
    if spec.get('field') == 'wrong':
        raise ValueError('it is wrong')
""",
        create(),
        create("bad", spec={"field": "bad"}),
        create("worse", spec={"field": "worse"}),
        create("late", spec={"field": "late"}),
        create("wrong", spec={"field": "wrong"}),
        edit(field="bad"),
        edit(field=2),
        delete(),
    ),
    Case("peering-none", f"@kopf.on.create(*E)\n{SEE}", (start(), create(), settle()), args=("-A",)),
    Case(
        "peering-lower",
        f"@kopf.on.create(*E)\n{SEE}",
        (start("--priority=10"), create(), settle()),
        given=(*PEERING, peer(1)),
        args=("-A",),
    ),
    Case(
        "peering-higher",
        f"@kopf.on.create(*E)\n{SEE}",
        (
            launch("--priority=10"),
            settle(),
            create(),
            settle(),
            patch({"status": {"another": None}}, "default", kind="cpeering"),
            until("fn"),
            settle(),
        ),
        given=(*PEERING, peer(100)),
        args=("-A",),
    ),
    Case(
        "peering-outdated",
        f"@kopf.on.create(*E)\n{SEE}",
        (start("--priority=10"), create(), settle()),
        given=(*PEERING, patch({"status": {"another": OLD}}, "default", kind="cpeering")),
        args=("-A",),
    ),
    Case(
        "peering-named",
        f"@kopf.on.create(*E)\n{SEE}",
        (start("--peering=mine"), create(), settle()),
        given=NAMED,
        args=("-A",),
    ),
    Case(
        "peering-standalone", f"@kopf.on.create(*E)\n{SEE}", (start(), create(), settle()), given=(*PEERING, peer(100))
    ),
    Case(
        "peering-in-a-namespace",
        f"@kopf.on.create(*E)\n{SEE}",
        (start(), create(), settle()),
        given=(raw("peering", {"metadata": {"name": "default"}}),),
        args=("-n", "default"),
    ),
    Case(
        "freeze",
        f"@kopf.on.create(*E)\n{SEE}",
        (
            start(),
            create(),
            settle(),
            command("freeze", "-A", "--id=me", "--peering=default", "--lifetime=300", "--priority=200"),
            settle(),
            create("frozen"),
            settle(),
            command("resume", "-A", "--id=me", "--peering=default"),
            until("fn", 2),
            settle(),
        ),
        given=PEERING,
        args=("-A",),
    ),
    admission(
        "mutate",
        """
@kopf.on.mutate(*E)
def change(patch, spec, labels, **kw):
    patch.spec['added'] = 'yes'
    patch.metadata.labels['mutated'] = 'yes'
    if 'remove' in spec:
        patch.spec['remove'] = None
""",
        create(spec={"field": 1, "remove": 1}),
        edit(field=2),
    ),
    admission(
        "ids-and-operations",
        """
@kopf.on.validate(*E, id='only-create', operations=['CREATE'])
def check(operation, **kw):
    note(f'create {operation}')
@kopf.on.validate(*E, operation='DELETE')
def check_delete(operation, **kw):
    note(f'delete {operation}')
    raise kopf.AdmissionError('undeletable')
@kopf.on.mutate(*E, labels={'mine': 'yes'})
def labelled(name, **kw):
    note(f'labelled {name}')
@kopf.on.validate(*E, field='spec.field', value='x')
def by_field(name, **kw):
    note(f'by field {name}')
""",
        create(),
        create("mine", labels={"mine": "yes"}),
        create("x", spec={"field": "x"}),
        edit(field=3),
        delete(),
    ),
    admission(
        "kwargs",
        """
@kopf.on.validate(*E, param='some')
def check(old, new, diff, dryrun, subresource, operation, userinfo, headers, param, memo, body, **kw):
    note([operation, dryrun, subresource, param, bool(userinfo.get('username')), bool(headers), dict(memo)])
    note([plain(old and old['spec']), plain(new and new['spec']), plain(diff) if operation == 'UPDATE' else None])
""",
        create(),
        create("dry", dry=True),
        edit(field=2),
        delete(),
    ),
    admission(
        "fields",
        """
@kopf.on.validate(*E, field='spec.field')
def check(old, new, diff, operation, **kw):
    note([operation, plain(old and old['spec']), plain(new and new['spec'])])
    note(plain(diff) if operation == 'UPDATE' else None)
""",
        create(spec={"field": 1, "other": 1}),
        settle(),
        edit(field=2),
        edit(other=2),
        edit(field=None),
        delete(),
    ),
    admission(
        "errors-without-texts",
        """
@kopf.on.validate(*E)
def check(spec, **kw):
    if spec.get('field') == 'denied':
        raise kopf.AdmissionError('')
    if spec.get('field') == 'failed':
        raise kopf.PermanentError()
""",
        create("denied", spec={"field": "denied"}),
        create("failed", spec={"field": "failed"}),
    ),
    admission(
        "two",
        """
@kopf.on.validate(*E)
def one(spec, warnings, **kw):
    warnings.append('one')
    if spec.get('field') == 'bad':
        raise kopf.AdmissionError('one says no', code=403)
@kopf.on.validate(*E)
def two(spec, warnings, **kw):
    warnings.append('two')
    if spec.get('field') == 'bad':
        raise kopf.AdmissionError('two says no', code=410)
""",
        create(),
        create("bad", spec={"field": "bad"}),
    ),
    admission(
        "configurations",
        """
@kopf.on.validate(*E, id='some.id', labels={'a': 'b'}, ignore_failures=True, side_effects=True, subresource='status')
def one(**kw):
    pass
@kopf.on.mutate(*E, operations=['CREATE', 'UPDATE'])
def two(**kw):
    pass
@kopf.on.validate('kopfwideexamples', persistent=True)
def three(**kw):
    pass
""",
        create(),
        kinds=("kex", "validating", "mutating"),
    ),
    admission(
        "configurations-after-exit",
        """
@kopf.on.validate(*E)
def one(**kw):
    pass
@kopf.on.mutate(*E, persistent=True)
def two(**kw):
    pass
""",
        create(),
        settle(),
        stop(),
        settle(),
        kinds=("kex", "validating", "mutating"),
    ),
]
