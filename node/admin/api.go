package admin

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/rules"
)

// maxBody is the longest accepted body, in bytes.
const maxBody = 64 << 10

// Node is what operators may ask of a node.
type Node interface {
	Bans
	Keys
	Status
}

// API returns the handler of
//
//	GET  /api/status, members, events, top, inspect, config   see README.md
//	GET  /api/bans[?rule=NAME]  the bans in force: {"bans":[...]}
//	POST /api/bans              a BanRequest: begins bans
//	POST /api/bans/remove       a BanRequest: ends them
//	GET  /api/keys              the gossip keys of all nodes, by fingerprint: {"nodes":[...]}
//	GET  /api/log-level         {"level":"INFO"}; POST sets it
//	GET  /debug/pprof/          profiles
//	POST /api/playground        a PlaygroundRequest: what each algorithm decides
//	GET  /                      the dashboard, a web page of all this
//
// GET and the playground take the role read, all else and profiles take operate. Without a level there is none to set.
// Refusals are problem documents (RFC 9457). The node's own errors are logged.
func API(node Node, access *Access, level *slog.LevelVar, logger *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	(&bansAPI{node, logger}).register(mux)
	(&statusAPI{node: node, log: logger}).register(mux)
	(&playground{now: time.Now}).register(mux)
	registerKeys(mux, node)
	registerProfiles(mux)
	if level != nil {
		registerLogLevel(mux, level, logger)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, "nothing is served at this path: use /api/status, members, events, "+
			"top, inspect, config or bans")
	})
	origins := http.NewCrossOriginProtection()
	origins.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { refuseOrigin(w) }))
	h := origins.Handler(dashboard(sameOrigin(access.guard(mux))))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A page of a name that resolves to loopback (DNS rebinding) would pass as one of this origin. Over TLS the
		// browser compares the name with the node's certificate.
		if r.TLS == nil && !isLocal(r.Host) {
			refuse(w, http.StatusForbidden, "this is for localhost alone: ask for http://127.0.0.1 or http://localhost")
			return
		}
		h.ServeHTTP(w, r)
	})
}

// sameOrigin refuses what web pages of another origin ask for, by whatever method: they cannot read the answer, but a
// profile costs the node time, and streams are few. Browsers say so; programs say nothing.
func sameOrigin(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Sec-Fetch-Site") {
		case "", "none", "same-origin":
			h.ServeHTTP(w, r)
		default:
			refuseOrigin(w)
		}
	})
}

func refuseOrigin(w http.ResponseWriter) {
	refuse(w, http.StatusForbidden, "this is a web page of another origin: no page may ask here")
}

// isLocal reports whether a Host header names loopback, whatever the port.
func isLocal(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

func refuse(w http.ResponseWriter, status int, detail string) {
	answer.NewProblem(status, strings.ToValidUTF8(detail, "?")).Write(w)
}

// refuseError refuses a request by what the node says of it. Its own errors are logged with a message.
func refuseError(w http.ResponseWriter, err error, log *slog.Logger, failed string) {
	switch {
	case errors.Is(err, rules.ErrUnknownRule):
		refuse(w, http.StatusNotFound, err.Error())
	case errors.Is(err, rules.ErrInvalidRequest), errors.Is(err, ErrNoBan):
		refuse(w, http.StatusBadRequest, err.Error())
	default:
		log.Error(failed, "error", err)
		refuse(w, http.StatusServiceUnavailable, "the node could not do it: "+err.Error())
	}
}
