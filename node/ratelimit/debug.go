package ratelimit

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

const (
	plainText = "text/plain; charset=utf-8"
	day       = 24 * time.Hour
)

// index is what the debug pages answer at any other path.
const index = `/livez: 200 as long as the process serves
/metrics: statistics for Prometheus
/readyz: 200 if the node is ready
/rlconfig: print out the currently loaded configuration for debugging
/stats: print out stats, with ?format=json in JSON
`

// Debug returns the debug pages of envoyproxy/ratelimit, except those of pprof, over the paths of health:
//
//	/rlconfig            a line for each rule in force
//	/stats               process and statistics, a line each; with ?format=json an object
//	/livez /readyz /metrics
//	anything else        200 and a list of the paths, as there
//
// inForce returns the rules in force.
func Debug(health http.Handler, s *Stats, inForce func() []*rules.Rule) http.Handler {
	mux := http.NewServeMux()
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		mux.Handle(path, health)
	}
	text := func(path string, write func(w io.Writer, r *http.Request)) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", plainText)
			write(w, r)
		})
	}
	text("/", func(w io.Writer, _ *http.Request) { _, _ = io.WriteString(w, index) })
	text("/rlconfig", func(w io.Writer, _ *http.Request) {
		for _, r := range inForce() {
			_, _ = io.WriteString(w, dump(r))
		}
	})
	mux.HandleFunc("/stats", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("format") == "json" {
			w.Header().Set("Content-Type", "application/json")
			all := make(map[string]any)
			each(s, func(name string, value any) { all[name] = value })
			_ = json.NewEncoder(w).Encode(all)
			return
		}
		w.Header().Set("Content-Type", plainText)
		each(s, func(name string, value any) {
			encoded, _ := json.Marshal(value) // strings and numbers
			_, _ = fmt.Fprintf(w, "%s: %s\n", name, encoded)
		})
	})
	return mux
}

// each calls f with what /stats shows: the process first, as there, and without its arguments, which may hold
// passwords.
func each(s *Stats, f func(name string, value any)) {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	f("cmdline", os.Args[:1])
	f("memstats", &memory)
	s.Each(func(name string, value uint64) { f(name, value) })
}

// units are the names of windows.
var units = map[time.Duration]string{
	time.Second: "SECOND", time.Minute: "MINUTE", time.Hour: "HOUR", day: "DAY", 7 * day: "WEEK", 30 * day: "MONTH",
	365 * day: "YEAR",
}

// dump returns the line of a rule. A window that has no name is written as it is, as in "unit=10s".
func dump(r *rules.Rule) string {
	unit, limit := "UNKNOWN", uint64(0)
	shadow, quota := r.Mode == counters.Shadow, r.Mode == counters.Quota
	if file := r.Reference; file != nil {
		limit, shadow, quota = uint64(file.RequestsPerUnit), file.ShadowMode, file.QuotaMode
	}
	if r.Limit != nil {
		window := r.Limit.Meter().Window
		if unit, limit = units[window], r.Limit.Max(); unit == "" {
			unit = window.String()
		}
	}
	return fmt.Sprintf("%s: unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t\n", r.ReferenceKey(), unit,
		limit, shadow, quota)
}
