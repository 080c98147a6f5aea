"""Runs the whole flow against a running service, by the client that was generated for it.

    whole_flow.py URL KEY serving      the flow, and every refusal that can be forced
    whole_flow.py URL KEY store-down   what is refused while the store is out of reach
"""

import sys
from io import BytesIO

from bloomgate_client import AuthenticatedClient
from bloomgate_client.api.filters import (
    delete_filter,
    describe_filter,
    list_filters,
    plan_filter,
    put_filter,
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
from bloomgate_client.models import (
    AddBatchRequest,
    AddRequest,
    BatchItem,
    CheckBatchRequest,
    CheckManyRequest,
    CheckRequest,
    DeclaredBy,
    FilterCheck,
    Problem,
    ProbeStatus,
    Profile,
    ProfileOptions,
    PutFilterRequest,
    Reason,
    RemoveRequest,
    State,
    Verdict,
)
from bloomgate_client.types import UNSET, File

FILTER = "signup-emails"
MAX_WHOLE = 2**53 - 1


def connect(url, key):
    """A client that takes no status for granted that the document does not name."""
    return AuthenticatedClient(
        base_url=url, token=key, raise_on_unexpected_status=True, timeout=60.0
    )


def declaration(capacity=10_000):
    return PutFilterRequest(
        profile=Profile.EMAIL,
        capacity=capacity,
        false_positive_rate=0.01,
        profile_options=ProfileOptions(plus_tags=True),
    )


def expect_problem(answer, status, name):
    assert isinstance(answer, Problem), f"expected {status} {name}, found {answer}"
    assert (answer.status, answer.type_) == (status, f"/problems/{name}"), answer
    assert answer.title and answer.detail and answer.request_id, answer
    return answer


def load(client, lines):
    body = File(payload=BytesIO("".join(f"{line}\n" for line in lines).encode()))
    return bulk_load.sync(FILTER, client=client, body=body)


def flow(client):
    made = put_filter.sync_detailed(FILTER, client=client, body=declaration())
    assert made.status_code == 201 and made.parsed.declared_by is DeclaredBy.API, made
    again = put_filter.sync_detailed(FILTER, client=client, body=declaration())
    assert again.status_code == 200 and again.parsed.filter_ == FILTER, again

    added = add_item.sync(FILTER, client=client, body=AddRequest(item="ann+news@x.com"))
    assert added.filter_ == FILTER and added.watermark and added.estimated_fp_rate > 0, added
    batch = AddBatchRequest(items=[BatchItem(item="bob@x.com"), BatchItem(item="eve@x.com")])
    added = add_items.sync(FILTER, client=client, body=batch)
    assert added.accepted == 2, added
    loaded = load(client, ['"joe@x.com"', "", '{"item": "zoe@x.com"}'])
    assert (loaded.accepted, loaded.blank) == (2, 1), loaded

    check = CheckRequest(item="ANN@x.com", min_watermark=loaded.watermark)
    checked = check_item.sync(FILTER, client=client, body=check)
    # Until the next poll it is not known whether another process has written before.
    assert checked.verdict is Verdict.MAYBE, checked
    assert checked.reason in (Reason.MATCH, Reason.BEHIND), checked
    checked = check_item.sync(FILTER, client=client, body=CheckRequest(item="ANN@x.com"))
    assert checked.verdict is Verdict.MAYBE and checked.reason is Reason.MATCH, checked
    checked = check_item.sync(FILTER, client=client, body=CheckRequest(item="nobody@x.com"))
    assert checked.verdict is Verdict.DEFINITELY_NOT, checked
    assert checked.verdict.value == "definitely-not" and checked.reason is UNSET, checked
    items = ["bob@x.com", "nobody@x.com", "zoe@x.com"]
    checked = check_items.sync(FILTER, client=client, body=CheckBatchRequest(items=items))
    assert checked.verdicts == [Verdict.MAYBE, Verdict.DEFINITELY_NOT, Verdict.MAYBE], checked

    checks = [FilterCheck(filter_=FILTER, item=item) for item in items[:2]]
    checked = check_many.sync(client=client, body=CheckManyRequest(checks=checks))
    assert checked.verdict is Verdict.MAYBE, checked
    verdicts = [result.verdict for result in checked.results]
    assert verdicts == [Verdict.MAYBE, Verdict.DEFINITELY_NOT], checked
    assert checked.results[1].filter_ == FILTER and checked.results[1].reason is UNSET, checked

    confirm = CheckRequest(item="ann@x.com", confirm=True)
    checked = check_item.sync(FILTER, client=client, body=confirm)
    assert checked.verdict is Verdict.MAYBE and checked.confirmed is True, checked
    removed = remove_item.sync(FILTER, client=client, body=RemoveRequest(item="ann@x.com"))
    assert removed.removed and not removed.still_in_source and removed.watermark, removed
    checked = check_item.sync(FILTER, client=client, body=confirm)
    assert checked.verdict is Verdict.DEFINITELY_NOT and checked.confirmed is True, checked

    listed = list_filters.sync(client=client)
    assert FILTER in [description.filter_ for description in listed.filters], listed
    described = describe_filter.sync(FILTER, client=client)
    assert described.state is State.LIVE and described.profile is Profile.EMAIL, described
    assert described.profile_options.plus_tags is True, described
    assert described.measured_fp_rate == 0.5, described
    assert described.estimated_cardinality == 5 and not described.over_capacity, described
    assert get_liveness.sync(client=client).status is ProbeStatus.OK
    assert get_readiness.sync(client=client).status is ProbeStatus.OK
    assert "bloomgate_checks_total" in get_metrics.sync(client=client)


def counts(client):
    plan = plan_filter.sync(client=client, capacity=1_000_000_000_000, false_positive_rate=0.01)
    assert plan.bit_count == 9_585_058_377_368 and plan.hash_count == 7, plan
    assert plan.memory_bytes * 8 >= plan.bit_count, plan
    absurd = put_filter.sync("absurd", client=client, body=declaration(10**12))
    problem = expect_problem(absurd, 422, "over-memory-budget")
    assert problem.needed_bytes >= 9_585_058_377_368 // 8, problem
    assert 0 <= problem.left_bytes < problem.needed_bytes, problem
    # What came is told, so that this shows that no digit was lost on the way.
    absurd = put_filter.sync("absurd", client=client, body=declaration(MAX_WHOLE))
    problem = expect_problem(absurd, 422, "invalid-field")
    assert str(MAX_WHOLE) in problem.detail, problem


def refusals(url, client):
    # The key in Authorization is the end user's token there, and no gateway's key.
    expect_problem(authorize.sync("api", client=client), 403, "forbidden")
    unknown = CheckManyRequest(checks=[FilterCheck(filter_="nowhere", item="a")])
    problem = check_many.sync(client=client, body=unknown)
    problem = expect_problem(problem, 404, "unknown-filter")
    assert problem.errors[0].pointer == "/checks/0/filter", problem
    check = CheckRequest(item="ann@x.com")
    stranger = connect(url, "bg_no-such-key")
    answer = check_item.sync(FILTER, client=stranger, body=check)
    expect_problem(answer, 401, "unauthenticated")
    answer = check_item.sync("nowhere", client=client, body=check)
    expect_problem(answer, 404, "unknown-filter")
    answer = delete_filter.sync("revoked-jti", client=client)
    expect_problem(answer, 409, "declared-by-config")
    answer = put_filter.sync(FILTER, client=client, body=declaration(20_000))
    expect_problem(answer, 409, "declared-otherwise")
    huge = AddBatchRequest(items=[BatchItem(item="x" * 4_000)] * 3_000)
    problem = expect_problem(add_items.sync(FILTER, client=client, body=huge), 413, "body-too-large")
    assert problem.limit_bytes == 8 * 1024 * 1024, problem
    answer = check_item.sync(FILTER, client=client, body=CheckRequest(item=" "))
    problem = expect_problem(answer, 422, "invalid-item")
    assert [error.pointer for error in problem.errors] == ["/item"], problem
    problem = expect_problem(load(client, ['"a@x.com"', "}"]), 422, "invalid-field")
    assert (problem.line, problem.accepted, problem.blank) == (2, 1, 0), problem
    assert problem.watermark, problem

    # What a generated client never sends by itself; its way of reading the answer is the same.
    for media_type, body, status, name in [
        ("application/json", "}", 400, "malformed-body"),
        ("text/plain", "ann@x.com", 415, "unsupported-media-type"),
    ]:
        response = client.get_httpx_client().post(
            f"/v1/filters/{FILTER}/check", content=body, headers={"Content-Type": media_type}
        )
        answer = check_item._parse_response(client=client, response=response)
        expect_problem(answer, status, name)


def ending(client):
    deleted = delete_filter.sync_detailed(FILTER, client=client)
    assert deleted.status_code == 204, deleted
    answer = describe_filter.sync(FILTER, client=client)
    expect_problem(answer, 404, "unknown-filter")


def store_down(client):
    name = "revoked-jti"
    answer = add_item.sync(name, client=client, body=AddRequest(item="7f0c"))
    expect_problem(answer, 503, "store-unavailable")
    answer = put_filter.sync(FILTER, client=client, body=declaration())
    expect_problem(answer, 503, "store-unavailable")
    checked = check_item.sync(name, client=client, body=CheckRequest(item="7f0c"))
    assert checked.verdict is Verdict.MAYBE and checked.reason is Reason.LOADING, checked
    readiness = get_readiness.sync(client=client)
    assert readiness.status is ProbeStatus.UNREADY, readiness


def main(url, key, phase):
    client = connect(url, key)
    if phase == "store-down":
        store_down(client)
        return
    flow(client)
    counts(client)
    refusals(url, client)
    ending(client)


main(*sys.argv[1:])
