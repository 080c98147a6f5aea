// The scenario, by the client of openapi-generator.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"app/bloomgate"
)

const (
	filter         = "signup-emails"
	largest        = 1<<53 - 1
	ofAnotherStore = "AmFub3RoZXIgc3RvcmUuLgAAAAAAAAAAAQ"
)

var (
	url      = variable("BLOOMGATE_URL")
	key      = variable("BLOOMGATE_KEY")
	token    = variable("BLOOMGATE_TOKEN")
	client   = connect(url, key)
	anything = context.Background()
)

func variable(name string) string {
	value, found := os.LookupEnv(name)
	if !found {
		panic(name + " is not set")
	}
	return value
}

func connect(url, key string) *bloomgate.APIClient {
	configuration := bloomgate.NewConfiguration()
	configuration.Servers = bloomgate.ServerConfigurations{{URL: url}}
	if key != "" {
		configuration.AddDefaultHeader("X-API-Key", key)
	}
	return bloomgate.NewAPIClient(configuration)
}

// raw changes a request on its way to what the types forbid.
type raw func(*http.Request)

func (change raw) RoundTrip(request *http.Request) (*http.Response, error) {
	change(request)
	return http.DefaultTransport.RoundTrip(request)
}

func body(text, mediaType string) raw {
	return func(request *http.Request) {
		request.Body = io.NopCloser(strings.NewReader(text))
		request.ContentLength = int64(len(text))
		request.Header.Set("Content-Type", mediaType)
	}
}

func connectRaw(change raw) *bloomgate.APIClient {
	client := connect(url, key)
	client.GetConfig().HTTPClient = &http.Client{Transport: change}
	return client
}

func say(step string, words ...any) {
	line := step + ":"
	for _, word := range words {
		if word != "" {
			line += fmt.Sprint(" ", word)
		}
	}
	fmt.Println(line)
}

// step says what an operation came to: the words of its answer, or of its problem.
func step[Answer any](name string, words func(Answer) []any) func(Answer, *http.Response, error) Answer {
	return func(answer Answer, response *http.Response, err error) Answer {
		if err != nil {
			say(name, wordsOfProblem(response, err)...)
		} else {
			say(name, append([]any{response.StatusCode}, words(answer)...)...)
		}
		return answer
	}
}

// done is a step whose answer has no body.
func done(name string) func(*http.Response, error) {
	return func(response *http.Response, err error) {
		step(name, func(int) []any { return nil })(0, response, err)
	}
}

func problemOf(response *http.Response, err error) bloomgate.Problem {
	var failed *bloomgate.GenericOpenAPIError
	if !errors.As(err, &failed) {
		panic(err)
	}
	problem, decoded := failed.Model().(bloomgate.Problem)
	if !decoded {
		// The document does not give this status for the operation.
		if err := problem.UnmarshalJSON(failed.Body()); err != nil {
			panic(err)
		}
	}
	whole := problem.Title != "" && problem.Detail != "" && problem.RequestId != ""
	if !whole || int(problem.Status) != response.StatusCode {
		panic(string(failed.Body()))
	}
	return problem
}

func wordsOfProblem(response *http.Response, err error) []any {
	problem := problemOf(response, err)
	words := []any{problem.Status, problem.Type}
	for _, field := range problem.Errors {
		words = append(words, field.Pointer)
	}
	if problem.Line != nil {
		words = append(words, fmt.Sprintf("line=%d accepted=%d blank=%d", *problem.Line, *problem.Accepted, *problem.Blank))
	}
	if problem.LimitBytes != nil {
		words = append(words, fmt.Sprint("limit_bytes=", *problem.LimitBytes))
	}
	if problem.NeededBytes != nil {
		words = append(words, fmt.Sprint("needed_bytes=", *problem.NeededBytes))
	}
	if seconds := response.Header.Get("Retry-After"); seconds != "" {
		words = append(words, "retry_after="+seconds)
	}
	return words
}

func declaration(capacity int64, rate float64) bloomgate.PutFilterRequest {
	declaration := *bloomgate.NewPutFilterRequest(capacity, rate, bloomgate.PROFILE_EMAIL)
	declaration.ProfileOptions = &bloomgate.ProfileOptions{PlusTags: bloomgate.PtrBool(true)}
	return declaration
}

func load(lines ...string) (*bloomgate.BulkLoadAnswer, *http.Response, error) {
	return client.ItemsAPI.BulkLoad(anything, filter).Body(strings.Join(lines, "\n")).Execute()
}

func check(client *bloomgate.APIClient, filter string, request bloomgate.CheckRequest) (*bloomgate.CheckAnswer, *http.Response, error) {
	return client.ItemsAPI.CheckItem(anything, filter).CheckRequest(request).Execute()
}

func checkOf(item string) bloomgate.CheckRequest { return *bloomgate.NewCheckRequest(item) }

func checkSince(item, watermark string) bloomgate.CheckRequest {
	return bloomgate.CheckRequest{Item: item, MinWatermark: &watermark}
}

func checkConfirmed(item string) bloomgate.CheckRequest {
	return bloomgate.CheckRequest{Item: item, Confirm: bloomgate.PtrBool(true)}
}

func add(client *bloomgate.APIClient, filter string, request bloomgate.AddRequest) (*bloomgate.AddAnswer, *http.Response, error) {
	return client.ItemsAPI.AddItem(anything, filter).AddRequest(request).Execute()
}

func addOf(item string) bloomgate.AddRequest { return *bloomgate.NewAddRequest(item) }

func addBatch(items ...bloomgate.BatchItem) (*bloomgate.AddBatchAnswer, *http.Response, error) {
	batch := *bloomgate.NewAddBatchRequest(items)
	return client.ItemsAPI.AddItems(anything, filter).AddBatchRequest(batch).Execute()
}

func checkMany(checks ...bloomgate.FilterCheck) (*bloomgate.CheckManyAnswer, *http.Response, error) {
	request := *bloomgate.NewCheckManyRequest(checks)
	return client.ItemsAPI.CheckMany(anything).CheckManyRequest(request).Execute()
}

func remove(item string) (*bloomgate.RemoveAnswer, *http.Response, error) {
	return client.ItemsAPI.RemoveItem(anything, filter).RemoveRequest(*bloomgate.NewRemoveRequest(item)).Execute()
}

func put(client *bloomgate.APIClient, filter string, declaration bloomgate.PutFilterRequest) (*bloomgate.FilterDescription, *http.Response, error) {
	return client.FiltersAPI.PutFilter(anything, filter).PutFilterRequest(declaration).Execute()
}

func describe(client *bloomgate.APIClient, filter string) (*bloomgate.FilterDescription, *http.Response, error) {
	return client.FiltersAPI.DescribeFilter(anything, filter).Execute()
}

func authorize(name, gatewayKey, authorization string) (*http.Response, error) {
	gateway := connect(url, gatewayKey)
	if authorization != "" {
		gateway.GetConfig().AddDefaultHeader("Authorization", authorization)
	}
	return gateway.GatewaysAPI.Authorize(anything, name).Execute()
}

func filterOf(answer *bloomgate.AddAnswer) []any { return []any{answer.Filter} }

func verdict(answer *bloomgate.CheckAnswer) []any {
	words := []any{answer.Verdict}
	if answer.Reason != nil {
		words = append(words, *answer.Reason)
	}
	if answer.GetConfirmed() {
		words = append(words, "confirmed")
	}
	return words
}

func verdicts(answer *bloomgate.CheckManyAnswer) []any {
	words := []any{answer.Verdict}
	for _, result := range answer.Results {
		words = append(append(words, result.Filter), verdict(&result)...)
	}
	return words
}

func declared(answer *bloomgate.FilterDescription) []any {
	words := []any{answer.Profile, answer.Capacity, answer.DeclaredBy}
	if answer.ProfileOptions.GetPlusTags() {
		words = append(words, "plus_tags")
	}
	return words
}

func removed(answer *bloomgate.RemoveAnswer) []any {
	return []any{answer.Removed, answer.StillInSource}
}

func status(answer *bloomgate.Probe) []any { return []any{answer.Status} }

func operations() {
	step("live", status)(client.OperationsAPI.GetLiveness(anything).Execute())
	step("ready", status)(client.OperationsAPI.GetReadiness(anything).Execute())
	step("make", declared)(put(client, filter, declaration(10_000, 0.01)))
	step("make again", declared)(put(client, filter, declaration(10_000, 0.01)))
	step("add", filterOf)(add(client, filter, addOf("ann+news@x.com")))
	expiry := time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
	step("add until", filterOf)(add(client, filter, bloomgate.AddRequest{Item: "cy@x.com", ExpiresAt: &expiry}))
	everywhere := bloomgate.AddRequest{Item: "dee@x.com", Wait: bloomgate.WAIT_ALL.Ptr()}
	step("add everywhere", func(answer *bloomgate.AddAnswer) []any {
		if answer.GetVisible() {
			return []any{"visible"}
		}
		return nil
	})(add(client, filter, everywhere))
	step("add batch", accepted)(addBatch(
		bloomgate.BatchItem{Item: "bob@x.com"},
		bloomgate.BatchItem{Item: "eve@x.com", ExpiresAt: &expiry},
	))
	loaded := step("bulk load", loaded)(load(`"joe@x.com"`, "", `{"item": "zoe@x.com"}`))

	step("check", verdict)(check(client, filter, checkOf("ANN@x.com")))
	step("check reached", verdict)(check(client, filter, checkSince("ann@x.com", loaded.Watermark)))
	step("check behind", verdict)(check(client, filter, checkSince("ann@x.com", ofAnotherStore)))
	step("check absent", verdict)(check(client, filter, checkOf("nobody@x.com")))
	step("check confirmed", verdict)(check(client, filter, checkConfirmed("ann@x.com")))
	batch := *bloomgate.NewCheckBatchRequest([]string{"bob@x.com", "nobody@x.com", "zoe@x.com"})
	step("check batch", func(answer *bloomgate.CheckBatchAnswer) (words []any) {
		for _, verdict := range answer.Verdicts {
			words = append(words, verdict)
		}
		return
	})(client.ItemsAPI.CheckItems(anything, filter).CheckBatchRequest(batch).Execute())
	step("check many", verdicts)(checkMany(
		*bloomgate.NewFilterCheck(filter, "bob@x.com"),
		*bloomgate.NewFilterCheck("revoked-jti", "nothing"),
	))
	step("remove", removed)(remove("ann@x.com"))
	step("remove again", removed)(remove("ann@x.com"))
	step("check removed", verdict)(check(client, filter, checkConfirmed("ann@x.com")))

	step("list", func(answer *bloomgate.FilterList) (words []any) {
		for _, description := range answer.Filters {
			words = append(words, description.Filter)
		}
		return
	})(client.FiltersAPI.ListFilters(anything).Execute())
	step("describe", func(answer *bloomgate.FilterDescription) []any {
		words := append([]any{answer.State}, declared(answer)...)
		return append(words, answer.FalsePositiveRate, *answer.MeasuredFpRate, answer.EstimatedCardinality, answer.OverCapacity)
	})(describe(client, filter))
	step("rebuild", func(answer *bloomgate.RebuildAnswer) []any {
		return []any{answer.Filter, answer.State}
	})(client.FiltersAPI.RebuildFilter(anything, filter).Execute())
	step("plan", func(answer *bloomgate.Plan) []any {
		return []any{answer.BitCount, answer.HashCount, answer.MemoryBytes}
	})(client.FiltersAPI.PlanFilter(anything).Capacity(1_000_000_000_000).FalsePositiveRate(0.01).Execute())
	step("metrics", func(answer string) []any {
		return []any{regexp.MustCompile("bloomgate_checks_total").FindString(answer)}
	})(client.OperationsAPI.GetMetrics(anything).Execute())
}

func accepted(answer *bloomgate.AddBatchAnswer) []any { return []any{answer.Accepted} }

func loaded(answer *bloomgate.BulkLoadAnswer) []any { return []any{answer.Accepted, answer.Blank} }

func gateways() {
	bearer := "Bearer " + token
	done("token")(authorize("api", key, bearer))
	step("revoke", filterOf)(add(client, "revoked-jti", addOf("token-of-ann")))
	done("token revoked")(authorize("api", key, bearer))
	done("token missing")(authorize("api", key, ""))
	done("token undecided")(authorize("nowhere", key, bearer))
	done("gateway unknown")(authorize("api", "", bearer))
}

func refusals() {
	checker := connect(url, variable("BLOOMGATE_CHECK_KEY"))
	ann := checkOf("ann@x.com")
	step("malformed body", verdict)(check(connectRaw(body("}", "application/json")), filter, ann))
	step("no key", verdict)(check(connect(url, ""), filter, ann))
	step("scope", filterOf)(add(checker, filter, addOf("ann@x.com")))
	step("other filter", verdict)(check(checker, "registered-email", ann))
	step("unknown filter", verdict)(check(client, "nowhere", ann))
	step("unknown filter of many", verdicts)(checkMany(*bloomgate.NewFilterCheck("nowhere", "ann@x.com")))
	elsewhere := connectRaw(func(request *http.Request) { request.URL.Path = "/v2/filters" })
	step("no such path", declared)(describe(elsewhere, filter))
	patch := connectRaw(func(request *http.Request) { request.Method = http.MethodPatch })
	step("no such method", declared)(describe(patch, filter))
	done("declared by config")(client.FiltersAPI.DeleteFilter(anything, "revoked-jti").Execute())
	step("declared otherwise", declared)(put(client, filter, declaration(20_000, 0.01)))
	var items [3_000]bloomgate.BatchItem
	for index := range items {
		items[index].Item = strings.Repeat("x", 4_000)
	}
	step("too large", accepted)(addBatch(items[:]...))
	step("media type", verdict)(check(connectRaw(body("ann@x.com", "text/plain")), filter, ann))
	step("rate out of range", declared)(put(client, "absurd", declaration(1_000, 2)))
	step("malformed watermark", verdict)(check(client, filter, checkSince("ann@x.com", "?")))
	step("blank item", verdict)(check(client, filter, checkOf(" ")))
	step("blank item of batch", accepted)(addBatch(*bloomgate.NewBatchItem("ann@x.com"), *bloomgate.NewBatchItem(" ")))
	step("line refused", loaded)(load(`"joe@x.com"`, `"\u0000"`))
	step("over memory", declared)(put(client, "absurd", declaration(1_000_000_000_000, 0.01)))
	_, response, err := put(client, "absurd", declaration(largest, 0.01))
	problem := problemOf(response, err)
	say("largest number", problem.Status, regexp.MustCompile(`found \d+`).FindString(problem.Detail))
	slow := connect(url, variable("BLOOMGATE_SLOW_KEY"))
	list, response, err := slow.FiltersAPI.ListFilters(anything).Execute()
	for tries := 0; err == nil && tries < 100; tries++ {
		list, response, err = slow.FiltersAPI.ListFilters(anything).Execute()
	}
	step("too many requests", func(*bloomgate.FilterList) []any { return nil })(list, response, err)
	done("delete")(client.FiltersAPI.DeleteFilter(anything, filter).Execute())
	step("describe deleted", declared)(describe(client, filter))
}

func storeDown() {
	client := connect(variable("BLOOMGATE_URL_WITHOUT_STORE"), key)
	_, response, err := client.OperationsAPI.GetReadiness(anything).Execute()
	probe := err.(*bloomgate.GenericOpenAPIError).Model().(bloomgate.Probe)
	say("store down, ready", response.StatusCode, probe.Status)
	step("store down, check", verdict)(check(client, "revoked-jti", checkOf("token-of-ann")))
	step("store down, add", filterOf)(add(client, "revoked-jti", addOf("token-of-ann")))
	step("store down, make", declared)(put(client, filter, declaration(10_000, 0.01)))
}

func largestCount() {
	client := connect(variable("BLOOMGATE_URL_OF_TOMORROW"), key)
	step("largest count", func(answer *bloomgate.FilterDescription) []any {
		return []any{answer.Generation}
	})(describe(client, "revoked-jti"))
}

func main() {
	operations()
	gateways()
	refusals()
	storeDown()
	largestCount()
}
