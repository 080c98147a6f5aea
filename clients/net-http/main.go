// A server that uses the package bloomgate, as the tests run it. It VERIFIES NO TOKEN: see below.
//
//	BLOOMGATE_URL, BLOOMGATE_KEY   where bloomgate is, and a key of the scope "check"
//	REVOKED_FILE                   the revoked ids, one a line: stands for your database
//	PORT                           where to listen on 127.0.0.1
//	TRY_MS, TOTAL_MS               other time limits than the middleware's own
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"bloomgate-sample/bloomgate"
)

var lookups atomic.Int64

// isRevoked stands for your database. It fails where the file cannot be read.
func isRevoked(_ context.Context, jti string) (bool, error) {
	lookups.Add(1)
	revoked, err := os.ReadFile(os.Getenv("REVOKED_FILE"))
	if err != nil {
		return false, err
	}
	for _, line := range strings.Split(string(revoked), "\n") {
		if line == jti {
			return true, nil
		}
	}
	return false, nil
}

type claimsKey struct{}

type claims struct {
	ID string `json:"jti"`
}

// takeClaimsWithoutVerifying is a DANGER: it reads the claims of ANY token, forged ones too. Your
// verification of the signature, the issuer, the audience and the times (golang-jwt, go-jose) stands in
// this place, and puts what it has accepted into the context. This is here for the tests alone.
func takeClaimsWithoutVerifying(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if parts := strings.Split(token, "."); len(parts) == 3 {
			var found claims
			payload, err := base64.RawURLEncoding.DecodeString(parts[1])
			if err == nil && json.Unmarshal(payload, &found) == nil {
				r = r.WithContext(context.WithValue(r.Context(), claimsKey{}, found))
			}
		}
		next.ServeHTTP(w, r)
	})
}

func tokenID(r *http.Request) (string, bool) {
	found, ok := r.Context().Value(claimsKey{}).(claims)
	return found.ID, ok
}

// milliseconds reads a variable; zero, the default, where it is not set.
func milliseconds(name string) time.Duration {
	number, _ := strconv.Atoi(os.Getenv(name))
	return time.Duration(number) * time.Millisecond
}

func main() {
	denyRevoked, err := bloomgate.DenyRevoked(bloomgate.Settings{
		URL:       os.Getenv("BLOOMGATE_URL"),
		Key:       os.Getenv("BLOOMGATE_KEY"),
		Try:       milliseconds("TRY_MS"),
		Total:     milliseconds("TOTAL_MS"),
		TokenID:   tokenID,
		IsRevoked: isRevoked,
	})
	if err != nil {
		log.Fatal(err)
	}
	orders := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"orders":[]}`)
	})
	mux := http.NewServeMux()
	mux.Handle("/orders", takeClaimsWithoutVerifying(denyRevoked(orders)))
	mux.HandleFunc("/lookups", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, lookups.Load())
	})
	server := http.Server{
		Addr:              "127.0.0.1:" + os.Getenv("PORT"),
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
	}
	log.Fatal(server.ListenAndServe())
}
