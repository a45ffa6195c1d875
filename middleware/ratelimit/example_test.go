package ratelimit_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/middleware/ratelimit"
)

// Two orders per minute for each customer, checked before the queue for the product's lock.
func Example() {
	locker, err := wllock.New("order", memlock.New())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = locker.Close(context.Background()) }()

	limits := ratelimit.New(ratelimit.NewLocal(), []ratelimit.Rule{{
		Policy: ratelimit.Policy{Name: "customer", Quota: 2, Window: time.Minute},
		Of:     httpguard.Header("Customer"), // from your authentication
	}})
	guard := httpguard.New(locker, "product", httpguard.PathValue("id"))
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", limits(guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))))
	server := httptest.NewServer(mux)
	defer server.Close()

	for range 3 {
		r, _ := http.NewRequest(http.MethodPost, server.URL+"/orders/1000", nil)
		r.Header.Set("Customer", "17")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			log.Fatal(err)
		}
		_ = resp.Body.Close()
		fmt.Println(resp.StatusCode, resp.Header.Get("RateLimit"))
	}
	// Output:
	// 200 "customer";r=1;t=30
	// 200 "customer";r=0;t=60
	// 429 "customer";r=0;t=60
}
