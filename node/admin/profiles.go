package admin

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strconv"
	"strings"
	"time"
)

// profilesPath is where profiles are, as net/http/pprof has them. That package is not used, because it puts itself into
// every program's default mux, and shows the command line, which may have passwords in it.
const profilesPath = "/debug/pprof/"

// maxProfile is how long a profile may take.
const maxProfile = time.Minute

// registerProfiles serves what go tool pprof and go tool trace read.
func registerProfiles(mux *http.ServeMux) {
	mux.HandleFunc("GET "+profilesPath+"{$}", func(w http.ResponseWriter, _ *http.Request) {
		names := []string{"profile", "trace"}
		for _, p := range pprof.Profiles() {
			names = append(names, p.Name())
		}
		slices.Sort(names)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintln(w, strings.Join(names, "\n"))
	})
	mux.HandleFunc("GET "+profilesPath+"profile", timed("30", pprof.StartCPUProfile, pprof.StopCPUProfile))
	mux.HandleFunc("GET "+profilesPath+"trace", timed("1", trace.Start, trace.Stop))
	mux.HandleFunc("GET "+profilesPath+"{name}", func(w http.ResponseWriter, r *http.Request) {
		p := pprof.Lookup(r.PathValue("name"))
		debug, err := strconv.Atoi("0" + r.FormValue("debug"))
		if p == nil || err != nil || debug > 2 {
			refuse(w, http.StatusNotFound, "no such profile: GET "+profilesPath+" lists them; debug is 0, 1 or 2")
			return
		}
		if p.Name() == "heap" && r.FormValue("gc") != "" {
			runtime.GC()
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		if debug > 0 {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		}
		_ = p.WriteTo(w, debug)
	})
}

// timed serves a profile of so many seconds, which the query may set.
func timed(seconds string, start func(io.Writer) error, stop func()) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		takes, err := time.ParseDuration(cmp.Or(r.FormValue("seconds"), seconds) + "s")
		if err != nil || takes <= 0 || takes > maxProfile {
			refuse(w, http.StatusBadRequest, fmt.Sprintf("seconds: want more than 0, at most %v", maxProfile.Seconds()))
			return
		}
		// The answer begins when the profile ends. Recorders of tests have no deadline.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(takes + 10*time.Second))
		w.Header().Set("Content-Type", "application/octet-stream")
		if err := start(w); err != nil {
			refuse(w, http.StatusConflict, "another profile is being taken: "+err.Error())
			return
		}
		defer stop()
		select {
		case <-time.After(takes):
		case <-r.Context().Done():
		}
	}
}
