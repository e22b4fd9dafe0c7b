package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/httpapi"
	"github.com/edgelimit/edgelimit/node/rules"
)

// full is a limiter whose limit is used up.
type full struct{}

func (full) Decide(_ context.Context, _ *rules.Request, layers []counters.Decision) ([]counters.Decision, error) {
	return append(layers, counters.Decision{
		Rule: "per_ip", Window: time.Minute, Limit: 100, RetryAfter: 12 * time.Second, ResetAfter: time.Minute,
	}), nil
}

func ExampleNew() {
	api := httpapi.New(full{}, httpapi.Options{Jitter: func() float64 { return 0 }})

	ask := `{"domain":"edge","descriptors":[[{"key":"remote_address","value":"203.0.113.77"}]]}`
	w := httptest.NewRecorder()
	api.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/check", strings.NewReader(ask)))

	fmt.Println(w.Code)
	fmt.Println(w.Body)
	for _, name := range []string{"RateLimit-Policy", "RateLimit", "Retry-After"} {
		fmt.Println(name+":", w.Header().Get(name))
	}
	// Output:
	// 200
	// {"allowed":false,"rule":"per_ip","limit":100,"remaining":0,"reset_after_ms":60000,"retry_after_ms":12000,"delay_ms":0,"mode":"enforce","degraded":false}
	//
	// RateLimit-Policy: "per_ip";q=100;w=60
	// RateLimit: "per_ip";r=0;t=12
	// Retry-After: 12
}
