"""
The differences that stay: each is a row in ``docs/migration.md``, which tells what it is, why, and what to do.

An explanation tells by which lines of the outcomes, and in which cases, the difference is seen. All other lines must be
the same; and an explanation that is not needed any more, has to go.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import re


@dataclasses.dataclass(frozen=True)
class Explanation:
    """One difference in some of the cases."""

    row: str | None
    """The row in ``docs/migration.md``; or none, if it is a fault of this project that is known and not mended yet."""
    cases: tuple[str, ...]
    """The names of the cases, with ``*`` and ``?``."""
    lines: tuple[str, ...]
    """Regular expressions of the whole lines: ``- `` those of the original, ``+ `` ours."""
    is_luck: bool = False
    """Whether it is a matter of luck, or of speed, if the difference is seen."""

    def explains(self, line: str) -> bool:
        return any(re.fullmatch(pattern, line) for pattern in self.lines)

    def concerns(self, case: str) -> bool:
        return any(fnmatch.fnmatch(case, pattern) for pattern in self.cases)


# Parts of the lines.
CALL = r"life \d calls [^|]+ \|"
EVENTS = r"life \d events [^|]+ \|"
LOG = r"life \d log [^|]+ \|"
STEP = r"step \d+ \w+ \|"
ALL = (r".*",)

EXPLANATIONS = [
    # Causes.
    Explanation(
        "resume-mixed-in",
        (
            "resume-given",
            "resume-given-with-create",
            "create-in-downtime",
            "recreated-while-down",
            "random-*",
        ),
        (
            rf"\+ {CALL} (resume|change|fn)\w* reason=create param=null retry=\d",
            rf"\+ {STEP} KopfExample default/obj status fn: \"resumed\"",
            rf"\+ {LOG} (INFO|ERROR) Handler '(resume|change|fn)\w*' (succeeded|failed).*",
            rf"[+-] {LOG} INFO Creation is processed: . succeeded; . failed.",
        ),
    ),
    # The creation is not over when its handler changes the labels, as the resuming handler is next.
    Explanation(
        "resume-mixed-in",
        ("random-20261583",),
        (
            rf"- {STEP} KopfExample default/b labels by-update4: \"yes\"",
            rf"[+-] {STEP} KopfExample default/b annotations kopf.zalando.org/last-handled-configuration: .*",
            rf"- {CALL} update4 reason=update param=null retry=0",
            rf"[+-] {EVENTS} event3 reason=None param=null retry=0.*",
            rf"- {LOG} ERROR Handler 'update4' failed permanently: never",
            rf"- {LOG} INFO Updating is processed: 0 succeeded; 1 failed.",
        ),
    ),
    Explanation(
        "resumed-by-each",
        ("resume-interrupted",),
        (
            rf"\+ {CALL} quick reason=resume param=null retry=0",
            rf"\+ {LOG} INFO Handler 'quick' succeeded.",
        ),
    ),
    # The calls are compared in their order: with one less of them, all after it are different.
    Explanation(
        "deletion-in-one-patch",
        ("random-20261211", "random-20261364", "random-20261461"),
        (rf"[+-] {EVENTS} event\d reason=None param=null retry=0.*",),
    ),
    Explanation(
        "selected-by-the-server",
        ("random-*",),
        (
            rf'- {EVENTS} event\d reason=None param=null retry=0 \| (event: {{)?"?type"?: "MODIFIED"}}?',
            rf'\+ {EVENTS} event\d reason=None param=null retry=0 \| (event: {{)?"?type"?: "ADDED"}}?',
        ),
        is_luck=True,
    ),
    Explanation(
        "edits-in-between",
        ("edited-while-held",),
        (
            rf"\+ {CALL} \w+ reason=update param=null retry=0",
            rf"\+ {LOG} INFO Handler '\w+' succeeded.",
            rf"\+ {LOG} INFO Updating is processed: 3 succeeded; 0 failed.",
        ),
    ),
    Explanation(
        "deletion-afresh",
        ("delete-unfinished-*",),
        (
            rf"- {CALL} second reason=delete param=null retry=1",
            rf"\+ {CALL} \w+ reason=delete param=null retry=0",
            rf"\+ {LOG} INFO Handler '\w+' succeeded.",
        ),
    ),
    Explanation(
        "updates-afresh",
        ("resume-edited",),
        (
            rf"[+-] {CALL} fn reason=(resume|update) param=null retry=\d",
            rf"\+ {LOG} ERROR Handler 'fn' failed temporarily: again",
            rf"- {LOG} INFO Resuming is superseded by updating: .*",
        ),
    ),
    Explanation(
        "optional-deletions-go-on",
        ("delete-optional-remains",),
        (
            rf"\+ {CALL} optional reason=delete param=null retry=\d",
            rf"\+ {LOG} (ERROR|INFO) Handler 'optional' (failed temporarily: again|succeeded\.)",
            rf"\+ {LOG} INFO Deletion is processed: . succeeded; . failed.",
        ),
    ),
    Explanation(
        "declared-after-execution",
        ("sub-declared-after-execution",),
        (
            rf"\+ {CALL} second reason=create param=null retry=0",
            rf"\+ {LOG} INFO Handler 'parent/second' succeeded.",
        ),
    ),
    Explanation(
        "ids-of-one-annotation",
        ("ids-of-one-annotation",),
        (
            rf"\+ {CALL} second reason=create param=null retry=1",
            rf"[+-] {CALL} (first|second) reason=create param=null retry=0",
            rf"[+-] {LOG} INFO Handler 'a[./]b' succeeded.",
            rf"\+ {LOG} ERROR Handler 'a.b' failed temporarily: again",
            rf"[+-] {LOG} INFO Creation is processed: . succeeded; . failed.",
        ),
    ),
    Explanation("types-in-diffs", ("update-kinds-of-values",), (rf"[+-] {CALL} update_fn .* diff: .*",)),
    Explanation(
        "null-is-absent",
        ("filter-field-*", "filter-when-with-field"),
        (
            rf"- {STEP} KopfExample default/null (annotations|finalizers).*",
            rf"- {EVENTS} fn0 reason=None .*",
            r"- life \d events KopfExample default/null fn0 \| .*",
            r"- life \d (calls|log) KopfExample default/null \| .*",
        ),
    ),
    Explanation("value-absent", ("filter-field-value-absent-*", "filter-field-value-callback"), ALL),
    Explanation(
        "left-alone-after-restarts",
        ("restart-with-another-version",),
        (
            r"- NEVER: it does not settle",
            rf"\+ ({STEP}|{CALL}|{LOG}) .*",
        ),
        is_luck=True,
    ),
    Explanation(
        "fields-of-scalars",
        ("field-of-scalar", "field-deep"),
        (
            rf"[+-] {STEP} KopfExample default/obj annotations kopf.zalando.org/last-handled-configuration: .*",
            rf"- {LOG} ERROR Throttling for \d+ seconds due to an unexpected error: TypeError.*",
            rf"- {LOG} INFO Throttling is over. Switching back to normal operations.",
        ),
    ),
    Explanation(
        "filters-see-param",
        ("kwargs-in-filters", "kwargs-in-value-filters"),
        (r"[+-] life 1 notes \| annotations body .*",),
    ),
    # Errors.
    Explanation(
        "timeouts-cancel",
        ("timeout-in-async",),
        (
            rf"- {STEP} KopfExample default/obj status fn: 0",
            rf"- {LOG} INFO Handler 'fn' succeeded.",
            rf"[+-] {LOG} INFO Creation is processed: .*",
            rf"\+ {LOG} ERROR Handler 'fn' failed permanently: Handler 'fn' has timed out after 0.5 seconds.",
        ),
    ),
    Explanation(
        "stop-iteration",
        ("errors-stop-iteration",),
        (
            r"- NEVER: the operator does not exit",
            rf"\+ {STEP} .*",
            rf"\+ {CALL} fn reason=create .*",
            rf"\+ {LOG} .*",
        ),
    ),
    Explanation(
        "cancelled-by-themselves",
        ("errors-cancelled",),
        (
            rf"- {LOG} WARNING Handler 'fn' is cancelled. Will escalate.",
            rf"\+ {LOG} ERROR Handler 'fn' failed with an exception and will .* coroutine raised CancelledError.*",
            rf"\+ {CALL} fn reason=create param=null retry=1",
            rf"\+ {LOG} INFO Creation is processed: 0 succeeded; 1 failed.",
        ),
    ),
    Explanation(
        "unserializable-results",
        ("results-not-serializable",),
        (
            rf"\+ {STEP} KopfExample default/obj .*",
            rf"- {LOG} INFO Handler 'fn' succeeded\.",
            rf"\+ {LOG} (ERROR Handler 'fn' succeeded, but|INFO Handler 'other'|INFO Creation is processed).*",
        ),
    ),
    Explanation(
        "lifecycles-that-choose-nothing",
        ("lifecycle-choosing-nothing",),
        (
            r"- life 1 notes \| asked again at once",
            r"\+ life 1 notes \| asked again later",
        ),
        is_luck=True,
    ),
    Explanation("retries-of-parents", ("sub-with-retries-of-the-parent",), ALL),
    Explanation("conflicts-are-retried", ("api-conflicts",), ALL),
    # In the background.
    Explanation("timers-stop-forever", ("timer-permanent-error",), ALL),
    Explanation(
        "daemons-that-end-late",
        ("daemon*", "timer*"),
        (
            r"- NEVER: it does not settle",
            rf"\+ {STEP} exit code: 0",
        ),
        is_luck=True,
    ),
    Explanation(
        "daemons-that-end-late",
        ("daemon-held-by-a-slow-one",),
        (
            rf"- {CALL} delete_fn reason=delete param=null retry=0",
            r"- life \d notes \| deleted",
            rf"- {LOG} INFO (Handler 'delete_fn' succeeded|Deletion is processed: 1 succeeded; 0 failed).",
        ),
        is_luck=True,
    ),
    Explanation(
        "finalizers-of-exited-daemons",
        ("daemon-sees-changes", "daemon-arbitrary-errors", "timer-retries"),
        (rf"- {STEP} KopfExample default/obj finalizers: .*",),
        is_luck=True,
    ),
    # The operator.
    Explanation(
        "cleanup-after-failed-startup",
        ("startup-permanent",),
        (
            r"\+ life 1 calls - cleanup_fn \| .*",
            r"\+ life 1 log activities \| INFO Activity 'cleanup_fn' succeeded.",
        ),
    ),
    Explanation("silent-probes", ("probe",), (rf"- {LOG} INFO Activity '(now|number)' succeeded.",)),
    Explanation(
        "failing-probes",
        ("probe-failing",),
        (
            rf"- {STEP} 500: .*",
            rf"\+ {STEP} 503: .*",
            r"- life 1 log activities \| INFO Activity 'other_fn' succeeded.",
        ),
    ),
    Explanation(
        "hopeless-operators-exit",
        ("exit-no-files", "login-failing"),
        (
            r"- NEVER: the operator does not exit",
            rf"\+ {STEP} exit code: [12]",
            r"- life 1 log activities \| INFO Activity 'login_with_kubeconfig' succeeded.",
        ),
    ),
    Explanation("module-names", ("loading-sibling-files",), (r"[+-] life 1 notes \| \[1, '\w+(.py)?'\]",)),
    Explanation(
        "login-by-default",
        ("login-by-default", "freeze"),
        (r"[+-] life \d log activities \| INFO Activity 'login_\w+' succeeded.",),
    ),
    Explanation(
        "logs-are-posted",
        ("login-by-default", "posting-default-of-logs"),
        (r"\+ event KopfExample default/obj: \w+ Logging: .*",),
    ),
    Explanation(
        "events-without-tracebacks",
        ("posting-of-errors",),
        (r"[+-] event KopfExample default/obj: Error Logging: .Handler .*",),
    ),
    Explanation("posting-disabled", ("posting-disabled",), (r"- event KopfExample default/obj: Warning Warn: .*",)),
    Explanation("events-of-cluster-scoped", ("posting-for-wide",), (r"[+-] event KopfWideExample (default)?/obj: .*",)),
    Explanation("events-are-cut", ("posting-long",), (r"[+-] event KopfExample default/obj: Normal Long: 'x+.*",)),
    Explanation(
        "webhooks-owner",
        ("admission-configurations*",),
        (rf"\+ {STEP} \w+ /auto.kopf.dev annotations kopf.dev/webhooks-owner: .*",),
    ),
    Explanation(
        "texts-of-errors",
        ("admission-validate",),
        (rf"[+-] {STEP} 500: admission webhook \"check.auto.kopf.dev\" denied the request: .*",),
    ),
    Explanation(
        "mutations-of-deletions",
        ("admission-configurations-after-exit",),
        (
            rf"- {STEP} MutatingWebhookConfiguration .*\"operations\": \[\"\*\"\].*",
            rf"\+ {STEP} MutatingWebhookConfiguration .*\"operations\": \[\"CONNECT\", \"CREATE\", \"UPDATE\"\].*",
        ),
    ),
    Explanation("adopt-adds-nothing-empty", ("adopt-by-wide",), (r"[+-] life 1 notes \| \['generateName', .*\]",)),
    Explanation(
        "errors-of-helpers",
        ("adopt-nothing", "label-with-none"),
        (
            r"- life 1 notes \| (None|RecursionError|AttributeError)",
            r"\+ life 1 notes \| (None|TypeError)",
        ),
    ),
    # The words of log lines.
    Explanation(
        "words-of-throttling",
        (
            "filter-when-*",
            "errors-refused-patch",
            "results-not-serializable",
        ),
        (
            rf"- {LOG} ERROR Throttling for \d+ seconds due to an unexpected error: .*",
            rf"- {LOG} INFO Throttling is over. Switching back to normal operations.",
            rf"\+ {LOG} ERROR The object could not be handled, so it is left alone for \d+ seconds: .*",
        ),
    ),
    Explanation(
        "words-of-ignored-errors",
        (
            "arbitrary-ignored",
            "errors-in-event",
            "startup-ignored",
            "index-errors",
            "daemon-errors-ignored",
        ),
        (
            rf"- {LOG} ERROR (Handler|Activity|Indexer|Daemon) '\w+' failed with an exception and will ignore it: .*",
            rf"\+ {LOG} ERROR (Handler|Activity|Indexer|Daemon) '\w+' failed with an exception and will be ignored: .*",
        ),
    ),
    Explanation(
        "words-of-limits",
        ("retries-zero", "timeout-zero"),
        (
            rf"[+-] {LOG} .* has exceeded \d+ retries.",
            rf"[+-] {LOG} .* has timed out after .*",
        ),
    ),
    Explanation(
        "words-of-empty-errors",
        ("errors-with-empty-message", "admission-errors-without-texts"),
        (
            rf"[+-] {LOG} .* failed permanently: (PermanentError|AdmissionError)(\(('')?\))?",
            rf"\+ {LOG} INFO Webhook 'check' denied the change: AdmissionError",
            rf"[+-] {STEP} .* denied the request: (PermanentError|AdmissionError)(\(('')?\))?",
        ),
    ),
    Explanation(
        "words-of-requests",
        ("api-errors",),
        (
            rf"- {LOG} ERROR Request attempt #\d+/\d+ failed; will retry: .*",
            rf"\+ {LOG} WARNING A request has failed and will be repeated in [\d.]+ seconds: .*",
        ),
    ),
    Explanation(
        "words-of-supersession",
        ("delete-unfinished-*", "random-*"),
        (rf"- {LOG} INFO \w+ is superseded by \w+: .*",),
        is_luck=True,
    ),
    Explanation("words-of-memos", ("memos",), (rf"[+-] {LOG} ERROR Handler 'update_fn' failed .*",)),
    Explanation(
        "words-of-exceptions",
        ("*",),
        (
            rf"- {LOG} ERROR .* failed with an exception and will .*",
            rf"\+ {LOG} ERROR .* failed with an exception and will .*: \w+: .*",
        ),
        is_luck=True,
    ),
    Explanation(
        "words-of-denials",
        ("*",),
        (
            rf"- {LOG} ERROR Webhook '\w+' failed permanently: .*",
            rf"\+ {LOG} INFO Webhook '\w+' denied the change: .*",
        ),
        is_luck=True,
    ),
    Explanation("quiet-successes", ("*",), (rf"- {LOG} INFO (Timer|Webhook) '[^']+' succeeded\.",), is_luck=True),
    Explanation("quiet-successes", ("admission-*",), (rf"- {LOG} INFO Handler '[^']+' succeeded\.",), is_luck=True),
    Explanation(
        "words-of-inconsistencies", ("*",), (rf"- {LOG} WARNING Merge-patching finished with inconsistencies: .*",)
    ),
]

# The other rows: what both frameworks do looks the same in the outcomes, or is not lived through. The tests of ours.
TESTED_ELSEWHERE = {
    "order-of-diffs": "values/test_diffs.py::test_items_are_in_the_order_of_the_fields_and_new_ones_are_the_last",
    "warnings-of-equal-ids": "behaviour/test_identities.py::test_different_functions_with_one_id_are_warned_of",
    "ids-of-any-characters": "storage/test_annotation_names.py::test_any_ids_make_names_that_are_valid_for_kubernetes",
    "refused-patches-are-kept": "behaviour/test_refused_changes.py::"
    "test_handlers_with_statuses_are_not_repeated_while_their_progress_is_refused",
    "long-delays": "controller/changes/test_progress.py::test_too_long_delays_are_limited",
    "handlers-that-cannot-work": "behaviour/test_embedding.py::"
    "test_functions_that_can_never_work_are_refused_before_anything_runs",
    "exceptions-of-other-kinds": "handlers/test_executor.py::test_other_exceptions_are_errors",
    "reviews-in-json": "admission/servers/test_review_server.py::test_only_documents_in_json_are_accepted",
    "patches-of-validating": "admission/test_mutations.py::test_validating_handlers_do_not_patch",
    "warnings-of-several-lines": "admission/test_kwargs.py::test_warnings_are_of_one_line",
    "results-over-values": "behaviour/test_results.py::test_results_join_what_the_handler_has_put_there_or_replace_it",
    "types-of-events": "behaviour/test_posting.py::test_debug_messages_become_normal_events",
    "dropped-fields-are-posted": "behaviour/test_schemas.py::"
    "test_conditions_that_are_dropped_by_the_schema_are_warned_of",
    "words-on-terminals": "cli/test_terminal.py::test_for_people",
    "words-when-ready": "cli/test_terminal.py::test_for_people",
}

FAULTS: list[Explanation] = []
