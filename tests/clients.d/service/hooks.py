"""What schemathesis does not know by itself: how items are written, one a line."""

import json

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(_, value):
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode("utf-8", "surrogatepass")
