"""Teaches schemathesis to write application/x-ndjson: an array becomes a line for each of its items."""

import json

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(_context, value):
    if isinstance(value, list):
        return "".join(f"{json.dumps(item)}\n" for item in value).encode()
    # Wrong on purpose.
    return json.dumps(value).encode()


@schemathesis.hook
def filter_case(_context, case):
    """A batch has no key: that is 400, and no schema can say it."""
    return case.media_type != "application/x-ndjson" or "Idempotency-Key" not in (case.headers or {})
