package httpguard_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/middleware/httpguard"
)

// newLocker stands for the main function of a service; for Redis use redislock.Open instead of memlock.
func newLocker() *wllock.Locker {
	locker, err := wllock.New("order", memlock.New(), wllock.WithThreshold(500))
	if err != nil {
		log.Fatal(err)
	}
	return locker
}

// request sends h a request and prints the response.
func request(h http.Handler, target, body string) {
	server := httptest.NewServer(h)
	defer server.Close()
	resp, err := http.Post(server.URL+target, "application/json", strings.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, strings.TrimSpace(string(b)))
}

// One order at a time per product, across all servers.
func Example() {
	locker := newLocker()
	defer func() { _ = locker.Close(context.Background()) }()

	order := func(w http.ResponseWriter, r *http.Request) { // r.Context() ends when the lock is lost
		held, _ := wllock.HeldFrom(r.Context())
		fmt.Fprintln(w, "ordered under", held.Key())
	}
	guard := httpguard.New(locker, "product", httpguard.PathValue("id"),
		httpguard.WithCallOptions(wllock.WithWait(2*time.Second)))
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", guard(http.HandlerFunc(order)))

	request(mux, "/orders/1000", "")
	// Output: 200 ordered under order:product:1000
}

func ExampleBodyJSON() {
	locker := newLocker()
	defer func() { _ = locker.Close(context.Background()) }()

	guard := httpguard.New(locker, "product", httpguard.BodyJSON("product_id", 64<<10))
	order := guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		held, _ := wllock.HeldFrom(r.Context())
		body, _ := io.ReadAll(r.Body) // it is all there
		fmt.Fprintf(w, "%s: %s", held.Key(), body)
	}))

	request(order, "/", `{"product_id": 1000, "pieces": 1}`)
	// Output: 200 order:product:1000: {"product_id": 1000, "pieces": 1}
}

// A transfer needs the locks of both accounts.
func ExampleNewAll() {
	locker := newLocker()
	defer func() { _ = locker.Close(context.Background()) }()

	guard := httpguard.NewAll(locker, func(r *http.Request) ([]wllock.Resource, error) {
		return []wllock.Resource{{Name: "account", Key: r.PathValue("from")}, {Name: "account", Key: r.PathValue("to")}}, nil
	})
	mux := http.NewServeMux()
	mux.Handle("POST /transfers/{from}/{to}", guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, _ := wllock.HeldKey(r.Context(), "account", r.PathValue("from"))
		to, _ := wllock.HeldKey(r.Context(), "account", r.PathValue("to"))
		fmt.Fprintln(w, from.Key(), to.Key())
	})))

	request(mux, "/transfers/bob/alice", "")
	// Output: 200 order:account:bob order:account:alice
}

// Each size of a product has its own lock.
func ExampleJoin() {
	locker := newLocker()
	defer func() { _ = locker.Close(context.Background()) }()

	guard := httpguard.New(locker, "product", httpguard.Join(httpguard.PathValue("id"), httpguard.Query("size")))
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		held, _ := wllock.HeldFrom(r.Context())
		fmt.Fprintln(w, held.Key())
	})))

	request(mux, "/orders/1000?size=XL", "")
	// Output: 200 order:product:1000:XL
}

// A shop shows its own page for requests that are refused.
func ExampleWithResponder() {
	locker := newLocker()
	defer func() { _ = locker.Close(context.Background()) }()
	busy, _ := locker.Acquire(context.Background(), "product", "1000") // another caller
	defer func() { _ = busy.Release(context.Background()) }()

	guard := httpguard.New(locker, "product", httpguard.PathValue("id"),
		httpguard.WithCallOptions(wllock.NoWait()),
		httpguard.WithResponder(func(w http.ResponseWriter, r *http.Request, status int, err error) {
			http.Error(w, "Too many orders at the moment, please try again.", status)
		}))
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", guard(http.NotFoundHandler()))

	request(mux, "/orders/1000", "")
	// Output: 409 Too many orders at the moment, please try again.
}

// A handler that calls the Locker itself answers a refusal as the middleware would.
func ExampleRespond() {
	locker := newLocker()
	defer func() { _ = locker.Close(context.Background()) }()
	busy, _ := locker.Acquire(context.Background(), "product", "1000") // another caller
	defer func() { _ = busy.Release(context.Background()) }()

	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		err := locker.Do(r.Context(), "product", r.PathValue("id"), func(context.Context) error { return nil }, wllock.NoWait())
		if err != nil {
			httpguard.Respond(w, r, err)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/orders/1000", nil))
	fmt.Println(w.Code, w.Header().Get("Content-Type"))
	// Output: 409 application/problem+json
}
