"""The scenario, by the client of openapi-python-client."""

import datetime
import json
import os
import re
from io import BytesIO

import httpx
from bloomgate_client import AuthenticatedClient, Client
from bloomgate_client.api.filters import (
    delete_filter,
    describe_filter,
    list_filters,
    plan_filter,
    put_filter,
    rebuild_filter,
)
from bloomgate_client.api.gateways import authorize
from bloomgate_client.api.items import (
    add_item,
    add_items,
    bulk_load,
    check_item,
    check_items,
    check_many,
    remove_item,
)
from bloomgate_client.api.operations import get_liveness, get_metrics, get_readiness
from bloomgate_client.errors import UnexpectedStatus
from bloomgate_client.models import (
    AddBatchRequest,
    AddRequest,
    BatchItem,
    CheckBatchRequest,
    CheckManyRequest,
    CheckRequest,
    FilterCheck,
    Problem,
    Profile,
    ProfileOptions,
    PutFilterRequest,
    RemoveRequest,
    Wait,
)
from bloomgate_client.types import File

FILTER = "signup-emails"
LARGEST = 2**53 - 1
OF_ANOTHER_STORE = "AmFub3RoZXIgc3RvcmUuLgAAAAAAAAAAAQ"
URL = os.environ["BLOOMGATE_URL"]
KEY = os.environ["BLOOMGATE_KEY"]
EXPIRY = datetime.datetime(2099, 1, 1, tzinfo=datetime.timezone.utc)


class Raw(httpx.HTTPTransport):
    """Changes a request on its way to what the types forbid."""

    def __init__(self, method=None, path=None, body=None, media_type=None):
        super().__init__()
        self.method, self.path, self.body, self.media_type = method, path, body, media_type

    def handle_request(self, request):
        method = self.method or request.method
        url = request.url.copy_with(path=self.path or request.url.path)
        if self.body is None:
            return super().handle_request(httpx.Request(method, url, headers=request.headers))
        headers = {"X-API-Key": request.headers["X-API-Key"], "Content-Type": self.media_type}
        return super().handle_request(httpx.Request(method, url, headers=headers, content=self.body))


def connect(url, key, headers=None, transport=None):
    """A client that takes no status for granted that the document does not name."""
    options = {
        "base_url": url,
        "headers": dict(headers or {}),
        "timeout": 60.0,
        "raise_on_unexpected_status": True,
        "httpx_args": {"transport": transport} if transport else {},
    }
    if key is None:
        return Client(**options)
    return AuthenticatedClient(token=key, prefix="", auth_header_name="X-API-Key", **options)


CLIENT = connect(URL, KEY)


def say(step, *words):
    print(f"{step}:", *(str(word).lower() if isinstance(word, bool) else word for word in words))


def nothing(_):
    return []


def step(name, operation, *path, words=nothing, client=CLIENT, **request):
    """Says what an operation came to: the words of its answer, or of its problem."""
    try:
        response = operation.sync_detailed(*path, client=client, **request)
        status, answer, headers = int(response.status_code), response.parsed, response.headers
    except UnexpectedStatus as unexpected:
        # The document does not give this status for the operation.
        status, headers = unexpected.status_code, {}
        answer = Problem.from_dict(json.loads(unexpected.content))
    if isinstance(answer, Problem):
        say(name, *words_of(answer, status, headers.get("Retry-After")))
    else:
        say(name, status, *words(answer))
    return answer


def words_of(problem, status, retry_after):
    assert problem.title and problem.detail and problem.request_id, problem
    assert problem.status == status, problem
    words = [problem.status, problem.type_]
    words += [error.pointer for error in problem.errors or []]
    if problem.line:
        words += [f"line={problem.line}", f"accepted={problem.accepted}", f"blank={problem.blank}"]
    if problem.limit_bytes:
        words.append(f"limit_bytes={problem.limit_bytes}")
    if problem.needed_bytes:
        words.append(f"needed_bytes={problem.needed_bytes}")
    if retry_after:
        words.append(f"retry_after={retry_after}")
    return words


def declaration(capacity, rate=0.01):
    options = ProfileOptions(plus_tags=True)
    return PutFilterRequest(
        profile=Profile.EMAIL,
        capacity=capacity,
        false_positive_rate=rate,
        profile_options=options,
    )


def load(*lines):
    """The body of a bulk load. It is a file, whatever its type's name says."""
    return File(payload=BytesIO("\n".join(lines).encode()))


def batch(*items):
    return AddBatchRequest(items=list(items))


def verdict(answer):
    words = [answer.verdict.value]
    if answer.reason:
        words.append(answer.reason.value)
    if answer.confirmed:
        words.append("confirmed")
    return words


def verdicts(answer):
    words = [answer.verdict.value]
    for result in answer.results:
        words += [result.filter_, *verdict(result)]
    return words


def declared(answer):
    words = [answer.profile.value, answer.capacity, answer.declared_by.value]
    if answer.profile_options.plus_tags:
        words.append("plus_tags")
    return words


def described(answer):
    words = [answer.state.value, *declared(answer), answer.false_positive_rate]
    words += [answer.measured_fp_rate, answer.estimated_cardinality, answer.over_capacity]
    return words


def filter_of(answer):
    return [answer.filter_]


def removed(answer):
    return [answer.removed, answer.still_in_source]


def operations():
    step("live", get_liveness, words=lambda answer: [answer.status.value])
    step("ready", get_readiness, words=lambda answer: [answer.status.value])
    step("make", put_filter, FILTER, body=declaration(10_000), words=declared)
    step("make again", put_filter, FILTER, body=declaration(10_000), words=declared)
    step("add", add_item, FILTER, body=AddRequest(item="ann+news@x.com"), words=filter_of)
    until = AddRequest(item="cy@x.com", expires_at=EXPIRY)
    step("add until", add_item, FILTER, body=until, words=filter_of)
    everywhere = AddRequest(item="dee@x.com", wait=Wait.ALL)
    visible = lambda answer: ["visible"] if answer.visible else []
    step("add everywhere", add_item, FILTER, body=everywhere, words=visible)
    items = batch(BatchItem(item="bob@x.com"), BatchItem(item="eve@x.com", expires_at=EXPIRY))
    step("add batch", add_items, FILTER, body=items, words=lambda answer: [answer.accepted])
    lines = load('"joe@x.com"', "", '{"item": "zoe@x.com"}')
    counts = lambda answer: [answer.accepted, answer.blank]
    loaded = step("bulk load", bulk_load, FILTER, body=lines, words=counts)

    step("check", check_item, FILTER, body=CheckRequest(item="ANN@x.com"), words=verdict)
    reached = CheckRequest(item="ann@x.com", min_watermark=loaded.watermark)
    step("check reached", check_item, FILTER, body=reached, words=verdict)
    behind = CheckRequest(item="ann@x.com", min_watermark=OF_ANOTHER_STORE)
    step("check behind", check_item, FILTER, body=behind, words=verdict)
    absent = CheckRequest(item="nobody@x.com")
    step("check absent", check_item, FILTER, body=absent, words=verdict)
    confirm = CheckRequest(item="ann@x.com", confirm=True)
    step("check confirmed", check_item, FILTER, body=confirm, words=verdict)
    items = CheckBatchRequest(items=["bob@x.com", "nobody@x.com", "zoe@x.com"])
    values = lambda answer: [verdict.value for verdict in answer.verdicts]
    step("check batch", check_items, FILTER, body=items, words=values)
    checks = [
        FilterCheck(filter_=FILTER, item="bob@x.com"),
        FilterCheck(filter_="revoked-jti", item="nothing"),
    ]
    step("check many", check_many, body=CheckManyRequest(checks=checks), words=verdicts)
    ann = RemoveRequest(item="ann@x.com")
    step("remove", remove_item, FILTER, body=ann, words=removed)
    step("remove again", remove_item, FILTER, body=ann, words=removed)
    step("check removed", check_item, FILTER, body=confirm, words=verdict)

    names = lambda answer: [description.filter_ for description in answer.filters]
    step("list", list_filters, words=names)
    step("describe", describe_filter, FILTER, words=described)
    rebuilt = lambda answer: [answer.filter_, answer.state.value]
    step("rebuild", rebuild_filter, FILTER, words=rebuilt)
    numbers = lambda answer: [answer.bit_count, answer.hash_count, answer.memory_bytes]
    question = {"capacity": 1_000_000_000_000, "false_positive_rate": 0.01}
    step("plan", plan_filter, **question, words=numbers)
    step("metrics", get_metrics, words=lambda answer: re.findall("bloomgate_checks_total", answer)[:1])


def gateways():
    bearer = {"Authorization": "Bearer " + os.environ["BLOOMGATE_TOKEN"]}
    gateway = connect(URL, KEY, headers=bearer)
    step("token", authorize, "api", client=gateway)
    revoked = AddRequest(item="token-of-ann")
    step("revoke", add_item, "revoked-jti", body=revoked, words=filter_of)
    step("token revoked", authorize, "api", client=gateway)
    step("token missing", authorize, "api")
    step("token undecided", authorize, "nowhere", client=gateway)
    step("gateway unknown", authorize, "api", client=connect(URL, None, headers=bearer))


def refusals():
    def raw(**change):
        return connect(URL, KEY, transport=Raw(**change))

    checker = connect(URL, os.environ["BLOOMGATE_CHECK_KEY"])
    ann = CheckRequest(item="ann@x.com")
    malformed = raw(body="}", media_type="application/json")
    step("malformed body", check_item, FILTER, body=ann, client=malformed)
    step("no key", check_item, FILTER, body=ann, client=connect(URL, None))
    step("scope", add_item, FILTER, body=AddRequest(item="ann@x.com"), client=checker)
    step("other filter", check_item, "registered-email", body=ann, client=checker)
    step("unknown filter", check_item, "nowhere", body=ann)
    nowhere = CheckManyRequest(checks=[FilterCheck(filter_="nowhere", item="ann@x.com")])
    step("unknown filter of many", check_many, body=nowhere)
    step("no such path", describe_filter, FILTER, client=raw(path="/v2/filters"))
    step("no such method", describe_filter, FILTER, client=raw(method="PATCH"))
    step("declared by config", delete_filter, "revoked-jti")
    step("declared otherwise", put_filter, FILTER, body=declaration(20_000))
    step("too large", add_items, FILTER, body=batch(*[BatchItem(item="x" * 4_000)] * 3_000))
    of_text = raw(body="ann@x.com", media_type="text/plain")
    step("media type", check_item, FILTER, body=ann, client=of_text)
    step("rate out of range", put_filter, "absurd", body=declaration(1_000, rate=2.0))
    malformed = CheckRequest(item="ann@x.com", min_watermark="?")
    step("malformed watermark", check_item, FILTER, body=malformed)
    step("blank item", check_item, FILTER, body=CheckRequest(item=" "))
    blank = batch(BatchItem(item="ann@x.com"), BatchItem(item=" "))
    step("blank item of batch", add_items, FILTER, body=blank)
    step("line refused", bulk_load, FILTER, body=load('"joe@x.com"', '"\\u0000"'))
    step("over memory", put_filter, "absurd", body=declaration(1_000_000_000_000))
    problem = put_filter.sync("absurd", client=CLIENT, body=declaration(LARGEST))
    say("largest number", problem.status, *re.findall(r"found \d+", problem.detail))
    slow = connect(URL, os.environ["BLOOMGATE_SLOW_KEY"])
    tries = 0
    while not isinstance(list_filters.sync(client=slow), Problem) and tries < 100:
        tries += 1
    step("too many requests", list_filters, client=slow)
    step("delete", delete_filter, FILTER)
    step("describe deleted", describe_filter, FILTER)


def store_down():
    client = connect(os.environ["BLOOMGATE_URL_WITHOUT_STORE"], KEY)
    status = lambda answer: [answer.status.value]
    step("store down, ready", get_readiness, words=status, client=client)
    item = "token-of-ann"
    asked = CheckRequest(item=item)
    step("store down, check", check_item, "revoked-jti", body=asked, words=verdict, client=client)
    step("store down, add", add_item, "revoked-jti", body=AddRequest(item=item), client=client)
    step("store down, make", put_filter, FILTER, body=declaration(10_000), client=client)


def largest_count():
    client = connect(os.environ["BLOOMGATE_URL_OF_TOMORROW"], KEY)
    generation = lambda answer: [answer.generation]
    step("largest count", describe_filter, "revoked-jti", words=generation, client=client)


operations()
gateways()
refusals()
store_down()
largest_count()
