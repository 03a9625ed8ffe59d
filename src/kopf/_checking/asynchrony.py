"""Rules about the event loop: blocking calls, coroutines that are not awaited, daemons that cannot be stopped."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kopf._checking.findings import Finding
from kopf._checking.sources import DeclaredHandler, Function, Source, walk, walk_own

_HTTP = "(get|post|put|patch|delete|head|options|request|stream)"
_BLOCKING = re.compile(
    r"time\.sleep"
    rf"|requests\.({_HTTP}|[Ss]ession\(\)\.{_HTTP})"
    rf"|httpx\.({_HTTP}|Client\(\)\.{_HTTP})"
    r"|urllib\.request\.(urlopen|urlretrieve)|urllib3\.(request|PoolManager\(\)\.(request|urlopen))"
    r"|subprocess\.(run|call|check_call|check_output|getoutput|getstatusoutput|Popen\(\)\.(wait|communicate))"
    r"|os\.(system|popen|wait|waitpid)"
    r"|socket\.(create_connection|getaddrinfo|gethostbyname|gethostbyaddr)"
    r"|kubernetes\.(\w+\.)*(\w+Api\(\)\.(create|read|list|patch|replace|delete|get|connect)_\w+|DynamicClient\(\)\..*)"
    r"|kubernetes\.watch\.Watch\(\)\.stream"
    r"|pykube\..*\(\)\.(create|update|patch|delete|reload|exists|get_by_name)"
    r"|lightkube\.(core\.client\.)?Client\(\)\.\w+"
    r"|boto3\.(client|resource)\(\)\..+|(psycopg|psycopg2|pymysql|MySQLdb)\.connect(\(\)\..+)?"
    r"|(redis|redis\.client)\.(Redis|StrictRedis)\(\)\.\w+"
    r"|smtplib\.SMTP(_SSL)?(\(\)\.\w+)?|paramiko\.SSHClient\(\)\.(connect|exec_command)"
)
_REMEDIES = {
    "time.sleep": "Use `await asyncio.sleep(...)`, or raise kopf.TemporaryError(delay=...) to be called again later.",
    "subprocess": "Use `await asyncio.create_subprocess_exec(...)`, or make the handler a regular function.",
}
_THREAD = (
    "Make the handler a regular function (it runs in a thread), use `await asyncio.to_thread(...)`, or an async client."
)

_COROUTINES = frozenset({"asyncio.sleep", "asyncio.to_thread", "asyncio.wait_for", "kopf.execute"})
_EVERYTHING = frozenset({"BaseException", "asyncio.CancelledError", "asyncio.exceptions.CancelledError"})
_SIGNALS = frozenset({"kopf.TemporaryError", "kopf.PermanentError", "kopf.AdmissionError", "kopf.execute"})
_ENDS = (ast.Return, ast.Break, ast.Raise)


def find_problems(source: Source, handler: DeclaredHandler) -> Iterator[Finding]:
    """Find the problems of the handler, and of the functions that it calls."""
    for function in source.list_reached(handler):
        if handler.is_async:
            yield from _find_blocking(source, function)
        yield from _find_unawaited(source, function)
        yield from _find_swallowed(source, function)
    if "daemon" in handler.kinds:
        yield from _find_unstoppable(source, handler)


def _find_blocking(source: Source, function: Function) -> Iterator[Finding]:
    for call, name in source.list_calls(function):
        if _BLOCKING.fullmatch(name) and not isinstance(source.parents[call], ast.Await):
            text = f"{ast.unparse(call.func)}() in {function.name}() blocks the event loop, and all handlers with it."
            remedy = next((cure for start, cure in _REMEDIES.items() if name.startswith(start)), _THREAD)
            yield source.report(call, "blocking-call", text, remedy)


def _find_unawaited(source: Source, function: Function) -> Iterator[Finding]:
    for node in walk_own(function):
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
            continue
        name = source.get_name(node.value.func, function)
        is_own = isinstance(node.value.func, ast.Name) and isinstance(source.functions.get(name), ast.AsyncFunctionDef)
        is_async = isinstance(function, ast.AsyncFunctionDef)
        if name in _COROUTINES or is_own or (is_async and name in ("kopf.apply", "stopped.wait")):
            text = f"{ast.unparse(node.value.func)}() is a coroutine, but is not awaited, so it does nothing."
            cure = f"Write `await {ast.unparse(node.value)}`" + ("." if is_async else ", in an async function.")
            yield source.report(node, "not-awaited", text, cure)


def _find_swallowed(source: Source, function: Function) -> Iterator[Finding]:
    """Find the clauses that hide errors from the framework: its own errors, and cancellations."""
    for node in walk_own(function):
        if not isinstance(node, ast.Try | ast.TryStar):
            continue
        signals = _list_signals(source, function, node)
        for clause in node.handlers:
            caught = _list_caught(source, function, clause)
            if any(name.startswith("kopf.") for name in caught):
                break  # they are treated separately
            if any(isinstance(item, ast.Raise) for item in ast.walk(clause)):
                continue
            if signals and caught & {"Exception", "BaseException"}:
                text = f"{signals[0]} never reaches Kopf: this clause catches it with all other errors."
                yield source.report(clause, "swallowed-error", text, "Catch only the errors that the code can handle.")
            elif _hides_cancellation(source, function, clause, caught):
                text = "This clause swallows cancellations, so the handler cannot be stopped."
                yield source.report(clause, "swallowed-error", text, "Write `except Exception`, or end with `raise`.")


def _list_caught(source: Source, function: Function, clause: ast.ExceptHandler) -> set[str]:
    if clause.type is None:
        return {"BaseException"}
    items = clause.type.elts if isinstance(clause.type, ast.Tuple) else [clause.type]
    return {source.get_name(item, function) for item in items}


def _list_signals(source: Source, function: Function, node: ast.Try | ast.TryStar) -> list[str]:
    """List the errors of the framework that are raised in the block."""
    found = []
    for item in walk(node.body):
        match item:
            case ast.Raise(exc=ast.Call(func=named)) | ast.Raise(exc=ast.expr() as named) | ast.Call(func=named):
                found.append(source.get_name(named, function))
    return [name for name in found if name in _SIGNALS]


def _hides_cancellation(source: Source, function: Function, clause: ast.ExceptHandler, caught: set[str]) -> bool:
    if not isinstance(function, ast.AsyncFunctionDef) or not caught & _EVERYTHING:
        return False
    ends = any(isinstance(item, ast.Return | ast.Break) for item in ast.walk(clause))
    is_looped = any(isinstance(item, ast.While | ast.For) for item in source.list_ancestors(clause, function))
    return is_looped and not ends


def _find_unstoppable(source: Source, handler: DeclaredHandler) -> Iterator[Finding]:
    is_cancelled = handler.is_async and all(
        "cancellation_timeout" in item.options or not item.is_complete for item in handler.declarations
    )
    loops = [] if is_cancelled else [node for node in walk_own(handler.node) if isinstance(node, ast.While)]
    for loop in loops:
        inner = [*walk(loop.body)]
        ends = any(isinstance(item, _ENDS) or getattr(item, "id", None) == "stopped" for item in inner)
        if isinstance(loop.test, ast.Constant) and loop.test.value and not ends:
            text = "The daemon never ends: the deletion of its object waits for it forever."
            cure = "Write `while not stopped:`, with the parameter `stopped`."
            yield source.report(loop, "daemon-stopping", text, cure)
