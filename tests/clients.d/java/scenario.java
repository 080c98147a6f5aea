// The scenario, by the client of openapi-generator.

import bloomgate.ApiClient;
import bloomgate.ApiException;
import bloomgate.ApiResponse;
import bloomgate.api.FiltersApi;
import bloomgate.api.GatewaysApi;
import bloomgate.api.ItemsApi;
import bloomgate.api.OperationsApi;
import bloomgate.model.*;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;

final class Scenario {
  static final String FILTER = "signup-emails";
  static final long LARGEST = (1L << 53) - 1;
  static final String OF_ANOTHER_STORE = "AmFub3RoZXIgc3RvcmUuLgAAAAAAAAAAAQ";
  static final String URL = variable("BLOOMGATE_URL");
  static final String KEY = variable("BLOOMGATE_KEY");
  static final ApiClient CLIENT = connect(URL, KEY);

  /** An operation on its way. */
  interface Operation<Answer> {
    ApiResponse<Answer> ask() throws ApiException;
  }

  static String variable(String name) {
    String value = System.getenv(name);
    if (value == null) {
      throw new IllegalStateException(name + " is not set");
    }
    return value;
  }

  static ApiClient connect(String url, String key) {
    return connect(url, request -> {
      if (key != null) {
        request.setHeader("X-API-Key", key);
      }
    });
  }

  static ApiClient connect(String url, Consumer<HttpRequest.Builder> interceptor) {
    ApiClient client = new ApiClient();
    client.updateBaseUri(url);
    client.setRequestInterceptor(interceptor);
    return client;
  }

  /** A client that changes its requests to what the types forbid. */
  static ApiClient raw(Consumer<HttpRequest.Builder> change) {
    return connect(URL, change.andThen(request -> request.setHeader("X-API-Key", KEY)));
  }

  static ApiClient raw(String body, String mediaType) {
    return raw(request -> request.setHeader("Content-Type", mediaType).POST(BodyPublishers.ofString(body)));
  }

  static void say(String step, Stream<?> words) {
    System.out.println(step + ": " + words.map(String::valueOf).collect(Collectors.joining(" ")));
  }

  /** Says what an operation came to: the words of its answer, or of its problem. */
  static <Answer> Answer step(String name, Operation<Answer> operation, Function<Answer, Stream<?>> words)
      throws IOException {
    try {
      ApiResponse<Answer> response = operation.ask();
      say(name, Stream.concat(Stream.of(response.getStatusCode()), words.apply(response.getData())));
      return response.getData();
    } catch (ApiException refused) {
      say(name, words(refused));
      return null;
    }
  }

  static Problem problem(ApiException refused) throws IOException {
    if (refused.getResponseBody() == null) {
      throw new IllegalStateException(refused);
    }
    Problem problem = CLIENT.getObjectMapper().readValue(refused.getResponseBody(), Problem.class);
    boolean whole = problem.getTitle() != null && problem.getDetail() != null && problem.getRequestId() != null;
    if (!whole || problem.getStatus() != refused.getCode()) {
      throw new IllegalStateException(refused);
    }
    return problem;
  }

  static Stream<?> words(ApiException refused) throws IOException {
    Problem problem = problem(refused);
    List<Object> words = new ArrayList<>(List.of(problem.getStatus(), problem.getType()));
    problem.getErrors().forEach(error -> words.add(error.getPointer()));
    if (problem.getLine() != null) {
      words.add("line=" + problem.getLine() + " accepted=" + problem.getAccepted() + " blank=" + problem.getBlank());
    }
    if (problem.getLimitBytes() != null) {
      words.add("limit_bytes=" + problem.getLimitBytes());
    }
    if (problem.getNeededBytes() != null) {
      words.add("needed_bytes=" + problem.getNeededBytes());
    }
    refused.getResponseHeaders().firstValue("Retry-After").ifPresent(seconds -> words.add("retry_after=" + seconds));
    return words.stream();
  }

  static ApiResponse<CheckAnswer> check(ApiClient client, String filter, CheckRequest request) throws ApiException {
    return new ItemsApi(client).checkItemWithHttpInfo(filter, request);
  }

  static ApiResponse<CheckAnswer> check(CheckRequest request) throws ApiException {
    return check(CLIENT, FILTER, request);
  }

  static CheckRequest ask(String item) {
    return new CheckRequest().item(item);
  }

  static ApiResponse<AddAnswer> add(ApiClient client, String filter, AddRequest request) throws ApiException {
    return new ItemsApi(client).addItemWithHttpInfo(filter, request);
  }

  static AddRequest item(String item) {
    return new AddRequest().item(item);
  }

  static ApiResponse<AddBatchAnswer> addBatch(List<BatchItem> items) throws ApiException {
    return new ItemsApi(CLIENT).addItemsWithHttpInfo(FILTER, new AddBatchRequest().items(items));
  }

  static ApiResponse<BulkLoadAnswer> load(String... lines) throws ApiException {
    return new ItemsApi(CLIENT).bulkLoadWithHttpInfo(FILTER, String.join("\n", lines));
  }

  static ApiResponse<CheckManyAnswer> checkMany(FilterCheck... checks) throws ApiException {
    return new ItemsApi(CLIENT).checkManyWithHttpInfo(new CheckManyRequest().checks(List.of(checks)));
  }

  static ApiResponse<RemoveAnswer> remove(String item) throws ApiException {
    return new ItemsApi(CLIENT).removeItemWithHttpInfo(FILTER, new RemoveRequest().item(item));
  }

  static PutFilterRequest declaration(long capacity, double rate) {
    return new PutFilterRequest()
        .profile(Profile.EMAIL)
        .capacity(capacity)
        .falsePositiveRate(rate)
        .profileOptions(new ProfileOptions().plusTags(true));
  }

  static ApiResponse<FilterDescription> put(ApiClient client, String filter, PutFilterRequest request)
      throws ApiException {
    return new FiltersApi(client).putFilterWithHttpInfo(filter, request);
  }

  static ApiResponse<FilterDescription> describe(ApiClient client, String filter) throws ApiException {
    return new FiltersApi(client).describeFilterWithHttpInfo(filter);
  }

  static ApiResponse<Void> delete(String filter) throws ApiException {
    return new FiltersApi(CLIENT).deleteFilterWithHttpInfo(filter);
  }

  static ApiResponse<Void> authorize(String name, String gatewayKey, String authorization) throws ApiException {
    Map<String, String> headers = authorization == null ? Map.of() : Map.of("Authorization", authorization);
    return new GatewaysApi(connect(URL, gatewayKey)).authorizeWithHttpInfo(name, headers);
  }

  static Stream<?> nothing(Object answer) {
    return Stream.empty();
  }

  static Stream<?> verdict(CheckAnswer answer) {
    String confirmed = Boolean.TRUE.equals(answer.getConfirmed()) ? "confirmed" : null;
    return Stream.of(answer.getVerdict(), answer.getReason(), confirmed).filter(word -> word != null);
  }

  static Stream<?> declared(FilterDescription answer) {
    boolean plusTags = Boolean.TRUE.equals(answer.getProfileOptions().getPlusTags());
    return Stream.of(
        answer.getProfile(), answer.getCapacity(), answer.getDeclaredBy(), plusTags ? "plus_tags" : "no options");
  }

  static Stream<?> removed(RemoveAnswer answer) {
    return Stream.of(answer.getRemoved(), answer.getStillInSource());
  }

  static void operations() throws IOException {
    OperationsApi operations = new OperationsApi(CLIENT);
    step("live", operations::getLivenessWithHttpInfo, answer -> Stream.of(answer.getStatus()));
    step("ready", operations::getReadinessWithHttpInfo, answer -> Stream.of(answer.getStatus()));
    step("make", () -> put(CLIENT, FILTER, declaration(10_000, 0.01)), Scenario::declared);
    step("make again", () -> put(CLIENT, FILTER, declaration(10_000, 0.01)), Scenario::declared);
    step("add", () -> add(CLIENT, FILTER, item("ann+news@x.com")), answer -> Stream.of(answer.getFilter()));
    OffsetDateTime expiry = OffsetDateTime.parse("2099-01-01T00:00:00Z");
    AddRequest until = item("cy@x.com").expiresAt(expiry);
    step("add until", () -> add(CLIENT, FILTER, until), answer -> Stream.of(answer.getFilter()));
    AddRequest everywhere = item("dee@x.com").wait(Wait.ALL);
    step("add everywhere", () -> add(CLIENT, FILTER, everywhere),
        answer -> Stream.of(answer.getVisible() ? "visible" : "not visible"));
    List<BatchItem> batch =
        List.of(new BatchItem().item("bob@x.com"), new BatchItem().item("eve@x.com").expiresAt(expiry));
    step("add batch", () -> addBatch(batch), answer -> Stream.of(answer.getAccepted()));
    BulkLoadAnswer loaded = step("bulk load", () -> load("\"joe@x.com\"", "", "{\"item\": \"zoe@x.com\"}"),
        answer -> Stream.of(answer.getAccepted(), answer.getBlank()));

    step("check", () -> check(ask("ANN@x.com")), Scenario::verdict);
    CheckRequest reached = ask("ann@x.com").minWatermark(loaded.getWatermark());
    step("check reached", () -> check(reached), Scenario::verdict);
    step("check behind", () -> check(ask("ann@x.com").minWatermark(OF_ANOTHER_STORE)), Scenario::verdict);
    step("check absent", () -> check(ask("nobody@x.com")), Scenario::verdict);
    step("check confirmed", () -> check(ask("ann@x.com").confirm(true)), Scenario::verdict);
    CheckBatchRequest many = new CheckBatchRequest().items(List.of("bob@x.com", "nobody@x.com", "zoe@x.com"));
    step("check batch", () -> new ItemsApi(CLIENT).checkItemsWithHttpInfo(FILTER, many),
        answer -> answer.getVerdicts().stream());
    FilterCheck bob = new FilterCheck().filter(FILTER).item("bob@x.com");
    FilterCheck absent = new FilterCheck().filter("revoked-jti").item("nothing");
    step("check many", () -> checkMany(bob, absent), answer -> Stream.concat(Stream.of(answer.getVerdict()),
        answer.getResults().stream().flatMap(
            result -> Stream.concat(Stream.of(result.getFilter()), verdict(result)))));
    step("remove", () -> remove("ann@x.com"), Scenario::removed);
    step("remove again", () -> remove("ann@x.com"), Scenario::removed);
    step("check removed", () -> check(ask("ann@x.com").confirm(true)), Scenario::verdict);

    FiltersApi filters = new FiltersApi(CLIENT);
    step("list", filters::listFiltersWithHttpInfo,
        answer -> answer.getFilters().stream().map(FilterDescription::getFilter));
    step("describe", () -> describe(CLIENT, FILTER), answer -> Stream.of(
        Stream.of(answer.getState()), declared(answer),
        Stream.of(answer.getFalsePositiveRate(), answer.getMeasuredFpRate(), answer.getEstimatedCardinality(),
            answer.getOverCapacity())).flatMap(words -> words));
    step("rebuild", () -> filters.rebuildFilterWithHttpInfo(FILTER),
        answer -> Stream.of(answer.getFilter(), answer.getState()));
    step("plan", () -> filters.planFilterWithHttpInfo(1_000_000_000_000L, 0.01),
        answer -> Stream.of(answer.getBitCount(), answer.getHashCount(), answer.getMemoryBytes()));
    step("metrics", operations::getMetricsWithHttpInfo,
        answer -> Stream.of(firstOf("bloomgate_checks_total", answer)));
  }

  static String firstOf(String pattern, String text) {
    return Pattern.compile(pattern).matcher(text).results().findFirst().orElseThrow().group();
  }

  static void gateways() throws IOException {
    String bearer = "Bearer " + variable("BLOOMGATE_TOKEN");
    step("token", () -> authorize("api", KEY, bearer), Scenario::nothing);
    step("revoke", () -> add(CLIENT, "revoked-jti", item("token-of-ann")), answer -> Stream.of(answer.getFilter()));
    step("token revoked", () -> authorize("api", KEY, bearer), Scenario::nothing);
    step("token missing", () -> authorize("api", KEY, null), Scenario::nothing);
    step("token undecided", () -> authorize("nowhere", KEY, bearer), Scenario::nothing);
    step("gateway unknown", () -> authorize("api", null, bearer), Scenario::nothing);
  }

  static void refusals() throws ApiException, IOException {
    ApiClient checker = connect(URL, variable("BLOOMGATE_CHECK_KEY"));
    CheckRequest ann = ask("ann@x.com");
    step("malformed body", () -> check(raw("}", "application/json"), FILTER, ann), Scenario::nothing);
    step("no key", () -> check(connect(URL, (String) null), FILTER, ann), Scenario::nothing);
    step("scope", () -> add(checker, FILTER, item("ann@x.com")), Scenario::nothing);
    step("other filter", () -> check(checker, "registered-email", ann), Scenario::nothing);
    step("unknown filter", () -> check(CLIENT, "nowhere", ann), Scenario::nothing);
    FilterCheck nowhere = new FilterCheck().filter("nowhere").item("ann@x.com");
    step("unknown filter of many", () -> checkMany(nowhere), Scenario::nothing);
    ApiClient elsewhere = raw(request -> request.uri(URI.create(URL + "/v2/filters")));
    step("no such path", () -> describe(elsewhere, FILTER), Scenario::nothing);
    ApiClient patch = raw(request -> request.method("PATCH", BodyPublishers.noBody()));
    step("no such method", () -> describe(patch, FILTER), Scenario::nothing);
    step("declared by config", () -> delete("revoked-jti"), Scenario::nothing);
    step("declared otherwise", () -> put(CLIENT, FILTER, declaration(20_000, 0.01)), Scenario::nothing);
    List<BatchItem> huge = Collections.nCopies(3_000, new BatchItem().item("x".repeat(4_000)));
    step("too large", () -> addBatch(huge), Scenario::nothing);
    step("media type", () -> check(raw("ann@x.com", "text/plain"), FILTER, ann), Scenario::nothing);
    step("rate out of range", () -> put(CLIENT, "absurd", declaration(1_000, 2)), Scenario::nothing);
    step("malformed watermark", () -> check(ask("ann@x.com").minWatermark("?")), Scenario::nothing);
    step("blank item", () -> check(ask(" ")), Scenario::nothing);
    List<BatchItem> batch = List.of(new BatchItem().item("ann@x.com"), new BatchItem().item(" "));
    step("blank item of batch", () -> addBatch(batch), Scenario::nothing);
    step("line refused", () -> load("\"joe@x.com\"", "\"\\u0000\""), Scenario::nothing);
    step("over memory", () -> put(CLIENT, "absurd", declaration(1_000_000_000_000L, 0.01)), Scenario::nothing);
    try {
      put(CLIENT, "absurd", declaration(LARGEST, 0.01));
    } catch (ApiException refused) {
      Problem problem = problem(refused);
      say("largest number", Stream.of(problem.getStatus(), firstOf("found \\d+", problem.getDetail())));
    }
    FiltersApi slow = new FiltersApi(connect(URL, variable("BLOOMGATE_SLOW_KEY")));
    try {
      for (int tries = 0; tries < 100; tries++) {
        slow.listFilters();
      }
    } catch (ApiException refused) {
      say("too many requests", words(refused));
    }
    step("delete", () -> delete(FILTER), Scenario::nothing);
    step("describe deleted", () -> describe(CLIENT, FILTER), Scenario::nothing);
  }

  static void storeDown() throws IOException {
    ApiClient client = connect(variable("BLOOMGATE_URL_WITHOUT_STORE"), KEY);
    try {
      new OperationsApi(client).getReadiness();
    } catch (ApiException refused) {
      Probe probe = client.getObjectMapper().readValue(refused.getResponseBody(), Probe.class);
      say("store down, ready", Stream.of(refused.getCode(), probe.getStatus()));
    }
    step("store down, check", () -> check(client, "revoked-jti", ask("token-of-ann")), Scenario::verdict);
    step("store down, add", () -> add(client, "revoked-jti", item("token-of-ann")), Scenario::nothing);
    step("store down, make", () -> put(client, FILTER, declaration(10_000, 0.01)), Scenario::nothing);
  }

  static void largestCount() throws IOException {
    ApiClient client = connect(variable("BLOOMGATE_URL_OF_TOMORROW"), KEY);
    step("largest count", () -> describe(client, "revoked-jti"), answer -> Stream.of(answer.getGeneration()));
  }

  public static void main(String[] arguments) throws ApiException, IOException {
    operations();
    gateways();
    refusals();
    storeDown();
    largestCount();
  }
}
