// The scenario, by the client of openapi-fetch with the types of openapi-typescript.

import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

type Problem = components["schemas"]["Problem"];
type Word = string | number | boolean | undefined;

const filter = "signup-emails";
const path = { filter };
const largest = Number.MAX_SAFE_INTEGER;
const ofAnotherStore = "AmFub3RoZXIgc3RvcmUuLgAAAAAAAAAAAQ";

function variable(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set`);
  return value;
}

const url = variable("BLOOMGATE_URL");
const key = variable("BLOOMGATE_KEY");
const token = variable("BLOOMGATE_TOKEN");

function connect(baseUrl: string, key?: string) {
  return createClient<paths>({ baseUrl, headers: key ? { "X-API-Key": key } : {} });
}

function say(step: string, ...words: Word[]) {
  console.log(`${step}: ${words.filter((word) => word !== undefined).join(" ")}`);
}

/** What an operation came to: the words of its answer, or of its problem. */
interface Outcome<Answer> {
  data?: Answer;
  error?: unknown;
  response: Response;
}

async function step<Answer>(name: string, asked: Promise<Outcome<Answer>>, words: (answer: Answer) => Word[]) {
  const { data, error, response } = await asked;
  if (response.ok) {
    say(name, response.status, ...words(data as Answer));
  } else {
    say(name, ...wordsOf(error as Problem, response));
  }
  return data as Answer;
}

function wordsOf(problem: Problem, response: Response): Word[] {
  const { type, status, errors, line, accepted, blank, limit_bytes, needed_bytes } = problem;
  if (status !== response.status || !problem.title || !problem.detail || !problem.request_id) {
    throw new Error(`no whole problem: ${JSON.stringify(problem)}`);
  }
  const retryAfter = response.headers.get("Retry-After");
  return [
    status,
    type,
    ...(errors ?? []).map((error) => error.pointer),
    line && `line=${line} accepted=${accepted} blank=${blank}`,
    limit_bytes && `limit_bytes=${limit_bytes}`,
    needed_bytes && `needed_bytes=${needed_bytes}`,
    retryAfter ? `retry_after=${retryAfter}` : undefined,
  ];
}

const client = connect(url, key);
const nothing = () => [];

function declaration(capacity: number, false_positive_rate = 0.01): components["schemas"]["PutFilterRequest"] {
  return { profile: "email", capacity, false_positive_rate, profile_options: { plus_tags: true } };
}

function load(lines: string[]) {
  return client.POST("/v1/filters/{filter}/bulk-load", {
    params: { path },
    body: lines.map((line) => `${line}\n`).join(""),
    bodySerializer: (text) => text,
    headers: { "Content-Type": "application/x-ndjson" },
  });
}

function check(body: components["schemas"]["CheckRequest"], of = filter, by = client) {
  return by.POST("/v1/filters/{filter}/check", { params: { path: { filter: of } }, body });
}

function add(body: components["schemas"]["AddRequest"], to = filter, by = client) {
  return by.POST("/v1/filters/{filter}/add", { params: { path: { filter: to } }, body });
}

function remove(item: string) {
  return client.POST("/v1/filters/{filter}/remove", { params: { path }, body: { item } });
}

function put(name: string, body: components["schemas"]["PutFilterRequest"], by = client) {
  return by.PUT("/v1/filters/{filter}", { params: { path: { filter: name } }, body });
}

function authorize(name: string, gatewayKey: string | undefined, authorization: string | undefined) {
  const headers = authorization ? { Authorization: authorization } : {};
  return connect(url, gatewayKey).GET("/authz/{name}", { params: { path: { name } }, headers });
}

type Checked = components["schemas"]["CheckAnswer"];
const verdict = (answer: Checked) => [answer.verdict, answer.reason, answer.confirmed && "confirmed"];
type Description = components["schemas"]["FilterDescription"];
const declared = (answer: Description) => [
  answer.profile,
  answer.capacity,
  answer.declared_by,
  answer.profile_options.plus_tags && "plus_tags",
];

async function operations() {
  await step("live", client.GET("/livez"), (answer) => [answer.status]);
  await step("ready", client.GET("/readyz"), (answer) => [answer.status]);
  await step("make", put(filter, declaration(10_000)), declared);
  await step("make again", put(filter, declaration(10_000)), declared);
  await step("add", add({ item: "ann+news@x.com" }), (answer) => [answer.filter]);
  const expires_at = "2099-01-01T00:00:00Z";
  await step("add until", add({ item: "cy@x.com", expires_at }), (answer) => [answer.filter]);
  const everywhere = add({ item: "dee@x.com", wait: "all" });
  await step("add everywhere", everywhere, (answer) => [answer.visible && "visible"]);
  const batch = { items: [{ item: "bob@x.com" }, { item: "eve@x.com", expires_at }] };
  const added = client.POST("/v1/filters/{filter}/add-batch", { params: { path }, body: batch });
  await step("add batch", added, (answer) => [answer.accepted]);
  const lines = ['"joe@x.com"', "", '{"item": "zoe@x.com"}'];
  const loaded = await step("bulk load", load(lines), (answer) => [answer.accepted, answer.blank]);

  await step("check", check({ item: "ANN@x.com" }), verdict);
  await step("check reached", check({ item: "ann@x.com", min_watermark: loaded.watermark }), verdict);
  await step("check behind", check({ item: "ann@x.com", min_watermark: ofAnotherStore }), verdict);
  await step("check absent", check({ item: "nobody@x.com" }), verdict);
  await step("check confirmed", check({ item: "ann@x.com", confirm: true }), verdict);
  const items = ["bob@x.com", "nobody@x.com", "zoe@x.com"];
  const asked = client.POST("/v1/filters/{filter}/check-batch", { params: { path }, body: { items } });
  await step("check batch", asked, (answer) => answer.verdicts);
  const checks = [
    { filter, item: "bob@x.com" },
    { filter: "revoked-jti", item: "nothing" },
  ];
  await step("check many", client.POST("/v1/check", { body: { checks } }), (answer) => [
    answer.verdict,
    ...answer.results.flatMap((result) => [result.filter, ...verdict(result)]),
  ]);
  await step("remove", remove("ann@x.com"), (answer) => [answer.removed, answer.still_in_source]);
  await step("remove again", remove("ann@x.com"), (answer) => [answer.removed, answer.still_in_source]);
  await step("check removed", check({ item: "ann@x.com", confirm: true }), verdict);

  const listed = client.GET("/v1/filters");
  await step("list", listed, (answer) => answer.filters.map((description) => description.filter));
  await step("describe", client.GET("/v1/filters/{filter}", { params: { path } }), (answer) => [
    answer.state,
    ...declared(answer),
    answer.false_positive_rate,
    answer.measured_fp_rate,
    answer.estimated_cardinality,
    answer.over_capacity,
  ]);
  const rebuilt = client.POST("/v1/filters/{filter}/rebuild", { params: { path } });
  await step("rebuild", rebuilt, (answer) => [answer.filter, answer.state]);
  const query = { capacity: 1_000_000_000_000, false_positive_rate: 0.01 };
  await step("plan", client.GET("/v1/plan", { params: { query } }), (answer) => [
    answer.bit_count,
    answer.hash_count,
    answer.memory_bytes,
  ]);
  const metrics = client.GET("/metrics", { parseAs: "text" });
  await step("metrics", metrics, (answer) => [answer.match(/bloomgate_checks_total/)?.[0]]);
}

async function gateways() {
  const bearer = `Bearer ${token}`;
  await step("token", authorize("api", key, bearer), nothing);
  await step("revoke", add({ item: "token-of-ann" }, "revoked-jti"), (answer) => [answer.filter]);
  await step("token revoked", authorize("api", key, bearer), nothing);
  await step("token missing", authorize("api", key, undefined), nothing);
  await step("token undecided", authorize("nowhere", key, bearer), nothing);
  await step("gateway unknown", authorize("api", undefined, bearer), nothing);
}

async function refusals() {
  const checker = connect(url, variable("BLOOMGATE_CHECK_KEY"));
  const item = "ann@x.com";
  // What the types forbid.
  const raw = (body: string, media_type: string) =>
    client.POST("/v1/filters/{filter}/check", {
      params: { path },
      body: { item },
      bodySerializer: () => body,
      headers: { "Content-Type": media_type },
    });
  await step("malformed body", raw("}", "application/json"), nothing);
  await step("no key", check({ item }, filter, connect(url)), nothing);
  await step("scope", add({ item }, filter, checker), nothing);
  await step("other filter", check({ item }, "registered-email", checker), nothing);
  await step("unknown filter", check({ item }, "nowhere"), nothing);
  const checks = [{ filter: "nowhere", item }];
  await step("unknown filter of many", client.POST("/v1/check", { body: { checks } }), nothing);
  await step("no such path", client.GET("/v2/filters" as "/v1/filters"), nothing);
  const patch = client.PATCH as typeof client.GET;
  await step("no such method", patch("/v1/filters"), nothing);
  const builtIn = client.DELETE("/v1/filters/{filter}", { params: { path: { filter: "revoked-jti" } } });
  await step("declared by config", builtIn, nothing);
  await step("declared otherwise", put(filter, declaration(20_000)), nothing);
  const items = Array.from({ length: 3_000 }, () => ({ item: "x".repeat(4_000) }));
  const huge = client.POST("/v1/filters/{filter}/add-batch", { params: { path }, body: { items } });
  await step("too large", huge, nothing);
  await step("media type", raw("ann@x.com", "text/plain"), nothing);
  await step("rate out of range", put("absurd", declaration(1_000, 2)), nothing);
  await step("malformed watermark", check({ item, min_watermark: "?" }), nothing);
  await step("blank item", check({ item: " " }), nothing);
  const batch = { items: [{ item }, { item: " " }] };
  const added = client.POST("/v1/filters/{filter}/add-batch", { params: { path }, body: batch });
  await step("blank item of batch", added, nothing);
  await step("line refused", load(['"joe@x.com"', '"\\u0000"']), nothing);
  await step("over memory", put("absurd", declaration(1_000_000_000_000)), nothing);
  const { error, response } = await put("absurd", declaration(largest));
  say("largest number", response.status, error?.detail.match(/found \d+/)?.[0]);
  const slow = connect(url, variable("BLOOMGATE_SLOW_KEY"));
  let limited = await slow.GET("/v1/filters");
  for (let tries = 0; limited.response.ok && tries < 100; tries++) limited = await slow.GET("/v1/filters");
  await step("too many requests", Promise.resolve(limited), nothing);
  await step("delete", client.DELETE("/v1/filters/{filter}", { params: { path } }), nothing);
  await step("describe deleted", client.GET("/v1/filters/{filter}", { params: { path } }), nothing);
}

async function storeDown() {
  const client = connect(variable("BLOOMGATE_URL_WITHOUT_STORE"), key);
  const { error, response } = await client.GET("/readyz");
  say("store down, ready", response.status, error && "filters" in error ? error.status : undefined);
  await step("store down, check", check({ item: "token-of-ann" }, "revoked-jti", client), verdict);
  await step("store down, add", add({ item: "token-of-ann" }, "revoked-jti", client), nothing);
  await step("store down, make", put(filter, declaration(10_000), client), nothing);
}

async function largestCount() {
  const client = connect(variable("BLOOMGATE_URL_OF_TOMORROW"), key);
  const described = client.GET("/v1/filters/{filter}", { params: { path: { filter: "revoked-jti" } } });
  await step("largest count", described, (answer) => [answer.generation]);
}

await operations();
await gateways();
await refusals();
await storeDown();
await largestCount();
