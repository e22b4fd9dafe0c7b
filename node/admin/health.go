// Package admin answers those who look after a node. So far: probes and metrics, on a listener of their own that orchestrators and
// Prometheus can reach where the doors are not.
package admin

import (
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Health returns the handler of
//
//	/livez     200 as long as the process serves
//	/readyz    200 when ready returns nil, else 503 with its error
//	/metrics   what was gathered, in Prometheus' text format or OpenMetrics
func Health(ready func() error, metrics prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	return mux
}
