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
	"github.com/edgelimit/edgelimit/node/limits"
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
	(&statusAPI{node: node, log: logger, streams: access.streams}).register(mux)
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
	return ofThisOrigin(access.guard(mux), isLocal,
		"this is for localhost alone: ask for http://127.0.0.1 or http://localhost")
}

// Dashboard returns the handler of the dashboard alone, for viewers on any machine. It changes nothing, and answers
// neither bans nor settings nor identities, of which node answers none; of events it has the text, without attributes.
func Dashboard(node Status, budgets *limits.Budgets, logger *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	streams := budgets.New("dashboard", "push_streams", maxStreams)
	(&statusAPI{node: node, log: logger, bare: true, streams: streams}).register(mux)
	(&playground{now: time.Now}).register(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, "the dashboard alone is served here: ask the admin listener (--admin)")
	})
	return ofThisOrigin(mux, isNoSite, "ask for this node by its IP address, or by a name without dots")
}

// ofThisOrigin serves the dashboard and what its pages and programs ask an API for, but no pages of other origins. A
// page of a name that resolves to this address (DNS rebinding) would pass as one of this origin, so a host that isNamed
// does not accept is refused with the hint. Over TLS the browser compares the name with the node's certificate.
func ofThisOrigin(api http.Handler, isNamed func(hostport string) bool, hint string) http.Handler {
	origins := http.NewCrossOriginProtection()
	origins.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { refuseOrigin(w) }))
	h := origins.Handler(dashboard(sameOrigin(api)))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil && !isNamed(r.Host) {
			refuse(w, http.StatusForbidden, hint)
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
	host, addr := hostOf(hostport)
	return strings.EqualFold(host, "localhost") || addr.IsLoopback()
}

// isNoSite reports whether a Host header names no site of the Internet: it has an address, or a name without dots.
func isNoSite(hostport string) bool {
	host, addr := hostOf(hostport)
	return addr.IsValid() || host != "" && !strings.Contains(host, ".")
}

// hostOf splits a Host header, and reads its address if it has one.
func hostOf(hostport string) (host string, addr netip.Addr) {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	addr, _ = netip.ParseAddr(host)
	return host, addr.Unmap()
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
