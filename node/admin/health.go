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
//	/readyz    200 when ready returns nil, else 503 with its error; each reason of degraded is a line of the 200
//	/metrics   what was gathered, in Prometheus' text format or OpenMetrics
func Health(ready func() error, degraded func() []string, metrics prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		answer := "ok\n"
		for _, reason := range degraded() {
			answer += "degraded: " + reason + "\n"
		}
		_, _ = io.WriteString(w, answer)
	})
	mux.Handle("GET /metrics", Metrics(metrics))
	return mux
}

// Metrics returns the handler of metrics, in Prometheus' text format or OpenMetrics.
func Metrics(metrics prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(metrics, promhttp.HandlerOpts{EnableOpenMetrics: true})
}
