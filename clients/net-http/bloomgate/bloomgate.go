// Package bloomgate is a net/http middleware: whoever comes with a revoked token is turned away.
//
// It stands BEHIND the verification of the token and does none itself: TokenID gives the id of a token
// that your verification has accepted, with its signature and its times. Copy this file, it needs nothing
// but the standard library.
//
// What it keeps:
//   - Only a clean "definitely-not" passes without a look-up. Everything else (a maybe, another status, a
//     time-out, a refused connection, an answer that is odd in any way) asks IsRevoked: your own
//     database, which is the authority. Where that fails too, nobody passes.
//   - Two tries at most, the second on a connection of its own, and both within a deadline.
//   - No token and no jti in a URL, a log line or an error.
package bloomgate

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"
)

// The longest answer that is read. bloomgate's own are below 1 KiB.
const maxAnswerBytes = 64 << 10

// Settings say where bloomgate is, and how the middleware reaches your side.
type Settings struct {
	URL    string // Where bloomgate is, such as "http://127.0.0.1:8080".
	Key    string // An API key of the scope "check".
	Filter string // The filter that holds the revoked ids; "revoked-jti" where empty.

	Try   time.Duration // How long one try may take, from the connection to the last byte; 250 ms where zero.
	Total time.Duration // How long both tries may take together; 500 ms where zero.

	// TokenID gives the jti of a token that was VERIFIED before, empty where it has none, and false where
	// there was no token.
	TokenID func(*http.Request) (jti string, ok bool)
	// IsRevoked looks the id up in your database. Give it a time limit of its own.
	IsRevoked func(ctx context.Context, jti string) (bool, error)
}

// DenyRevoked gives the middleware. What is missing in the settings ends the start by an error, and does
// not let requests through later.
func DenyRevoked(settings Settings) (func(http.Handler) http.Handler, error) {
	if settings.TokenID == nil || settings.IsRevoked == nil {
		return nil, errors.New("bloomgate: TokenID and IsRevoked must be set")
	}
	if settings.Filter == "" {
		settings.Filter = "revoked-jti"
	}
	if settings.Try == 0 {
		settings.Try = 250 * time.Millisecond
	}
	if settings.Total == 0 {
		settings.Total = 500 * time.Millisecond
	}
	target, err := url.Parse(settings.URL)
	if err != nil || target.Host == "" {
		return nil, errors.New("bloomgate: URL must be one, such as http://127.0.0.1:8080")
	}
	gate := &gate{
		Settings: settings,
		target:   target.JoinPath("v1", "filters", settings.Filter, "check").String(),
		// The kept connection may have died since it was used last; the second try takes none of those.
		kept:  client(false),
		fresh: client(true),
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			gate.serve(w, r, next)
		})
	}, nil
}

type gate struct {
	Settings
	target      string
	kept, fresh *http.Client
}

func (g *gate) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	jti, ok := g.TokenID(r)
	if !ok {
		challenge(w, "Bearer")
		return
	}
	if jti == "" {
		// A token without an id cannot be revoked, so it is not let in.
		challenge(w, `Bearer error="invalid_token"`)
		return
	}
	if !g.isDefinitelyNot(r.Context(), jti) {
		revoked, err := g.IsRevoked(r.Context(), jti)
		if err != nil {
			// The error may name the id: log it in IsRevoked, where you know what it holds.
			http.Error(w, "temporarily unavailable", http.StatusServiceUnavailable)
			return
		}
		if revoked {
			challenge(w, `Bearer error="invalid_token"`)
			return
		}
	}
	next.ServeHTTP(w, r)
}

func challenge(w http.ResponseWriter, value string) {
	w.Header().Set("WWW-Authenticate", value)
	http.Error(w, "unauthorized", http.StatusUnauthorized)
}

// client makes a client that follows no redirect and, unlike http.DefaultClient, takes no proxy from the
// environment.
func client(fresh bool) *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                  nil,
			DisableKeepAlives:      fresh,
			DisableCompression:     true,
			MaxConnsPerHost:        64,
			MaxIdleConnsPerHost:    16,
			IdleConnTimeout:        90 * time.Second,
			MaxResponseHeaderBytes: maxAnswerBytes,
			// No HTTP/2: there a time-out ends one stream, and all others go on waiting on a dead connection.
			TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
		},
	}
}

// isDefinitelyNot is true for a clean "definitely-not", and false for all else.
func (g *gate) isDefinitelyNot(ctx context.Context, jti string) bool {
	if !utf8.ValidString(jti) {
		return false // JSON would make another id of it.
	}
	body, err := json.Marshal(map[string]string{"item": jti})
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, g.Total)
	defer cancel()
	for _, client := range []*http.Client{g.kept, g.fresh} {
		answer, err := g.ask(ctx, client, body)
		if err == nil && answer.status < http.StatusInternalServerError {
			return answer.isClean(g.Filter)
		}
		// No connection, none in time, it broke, or the server says that it is in trouble: once more.
	}
	return false
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

func (g *gate) ask(ctx context.Context, client *http.Client, body []byte) (answer, error) {
	// For all of it, the body of the answer included. What is late loses its connection, so that its
	// answer can never be taken for another's.
	ctx, cancel := context.WithTimeout(ctx, g.Try)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, g.target, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("X-API-Key", g.Key)
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	// A body that was cut off is an error here, and no shorter answer.
	read, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes+1))
	if err != nil {
		return answer{}, err
	}
	if len(read) > maxAnswerBytes {
		return answer{}, errors.New("bloomgate: too long an answer")
	}
	return answer{response.StatusCode, response.Header, read}, nil
}

// isClean tells whether this is the answer to what was asked, and says "definitely-not" and nothing else.
func (a answer) isClean(filter string) bool {
	if a.status != http.StatusOK || a.header.Get("Content-Encoding") != "" {
		return false
	}
	mediaType, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	if err != nil || !strings.EqualFold(mediaType, "application/json") {
		return false
	}
	fields, err := fieldsOf(a.body)
	if err != nil {
		return false
	}
	// "reason" stands beside a maybe only.
	_, hasReason := fields["reason"]
	return !hasReason && fields["verdict"] == "definitely-not" && fields["filter"] == filter
}

// fieldsOf reads an object. json.Unmarshal into a struct would take "VERDICT" for "verdict", and the last
// of two fields of one name; such an answer is nobody's.
func fieldsOf(text []byte) (map[string]any, error) {
	errOdd := errors.New("bloomgate: not one JSON object")
	decoder := json.NewDecoder(bytes.NewReader(text))
	if begin, err := decoder.Token(); err != nil || begin != json.Delim('{') {
		return nil, errOdd
	}
	fields := map[string]any{}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		var value any
		if err := decoder.Decode(&value); err != nil {
			return nil, err
		}
		key, isText := name.(string)
		if _, twice := fields[key]; twice || !isText {
			return nil, errOdd
		}
		fields[key] = value
	}
	if _, err := decoder.Token(); err != nil { // The closing brace.
		return nil, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errOdd
	}
	return fields, nil
}
