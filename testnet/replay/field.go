package replay

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/edgelimit/edgelimit/testnet/accesslog"
)

// field is what a line may say of its request, under the key that rules call it by.
type field struct {
	key     string
	line    func(*accesslog.Entry) string // from the combined format; nil: it does not have it
	json    []place                       // the first that a line has counts
	convert func(string) string           // what is made of any place's value; nil: it stays as it is
}

// place is where a server's JSON has a field.
type place struct {
	path string
	part func(string) string // which part of what stands there; nil: all of it
}

// Servers' own names: Caddy nests under request; Traefik's begin with capitals; nginx' are those of its variables; Envoy's are those that
// Istio and Envoy Gateway configure. What clients can forge, such as X-Forwarded-For, is nobody's address unless the user says so.
var fields = []field{
	{"remote_address", func(e *accesslog.Entry) string { return e.Addr },
		places("request.client_ip", "request.remote_ip", "ClientHost", "ClientAddr", "remote_addr", "downstream_remote_address",
			"remote_address", "client_ip", "remote_ip"), withoutPort},
	{"method", func(e *accesslog.Entry) string { return e.Method },
		append(places("request.method", "RequestMethod", "request_method", "method"), place{"request", requestMethod}), nil},
	{"path", func(e *accesslog.Entry) string { return withoutQuery(e.Path) }, targets, withoutQuery},
	{"uri", func(e *accesslog.Entry) string { return e.Path }, targets, nil},
	{"host", nil, // the virtual host in front of a line is told apart by the parser
		places("request.host", "RequestHost", "http_host", "host", "authority", ":authority", "server_name"), nil},
	{"status", status, places("status", "DownstreamStatus", "response_code"), nil},
	{"user_agent", func(e *accesslog.Entry) string { return e.Agent },
		places("request.headers.User-Agent", "request_User-Agent", "http_user_agent", "user_agent", "user-agent"), nil},
	{"referer", func(e *accesslog.Entry) string { return e.Referer },
		places("request.headers.Referer", "request_Referer", "http_referer", "referer"), nil},
	{"user", func(e *accesslog.Entry) string { return e.User }, places("user_id", "ClientUsername", "remote_user", "user"), nil},
}

// targets are where the target of a request stands, with its query.
var targets = append(places("request.uri", "RequestPath", "request_uri", "uri", "x-envoy-origin-path", "path"),
	place{"request", requestTarget})

// times are where the time of a request stands, the most exact first.
var times = places("ts", "StartUTC", "msec", "time_iso8601", "start_time", "time_local", "timestamp", "@timestamp", "time")

func places(paths ...string) []place {
	list := make([]place, len(paths))
	for i, path := range paths {
		list[i].path = path
	}
	return list
}

const timeKey = "time"

// Fields returns the keys that every log is asked for.
func Fields() []string {
	keys := make([]string, len(fields))
	for i := range fields {
		keys[i] = fields[i].key
	}
	return keys
}

// layout says where the values of some keys are in a line. Number 0 is the time, the keys follow.
type layout struct {
	numbers map[string]int
	known   []field // by key, also those that nobody asked for yet
	line    []func(*accesslog.Entry) string
	host    int // the number of the host, -1 where nobody asked for it
	json    branch
}

// newLayout knows the fields, with the user's places (KEY=PATH) in place of the usual ones.
func newLayout(named []string) (*layout, error) {
	l := &layout{numbers: make(map[string]int), known: append(slices.Clone(fields), field{key: timeKey, json: times}), host: -1}
	replaced := make(map[string]bool)
	for _, p := range named {
		key, path, ok := strings.Cut(p, "=")
		if !ok || key == "" || path == "" {
			return nil, fmt.Errorf("field %.80q: want KEY=PATH, as in api_key=request.headers.X-Api-Key", p)
		}
		i := l.index(key)
		if i < 0 {
			i = len(l.known)
			l.known = append(l.known, field{key: key})
		}
		if !replaced[key] {
			l.known[i].json, replaced[key] = nil, true
		}
		l.known[i].json = append(l.known[i].json, place{path, nil})
	}
	l.number(timeKey)
	return l, nil
}

func (l *layout) index(key string) int {
	return slices.IndexFunc(l.known, func(f field) bool { return f.key == key })
}

// knows reports whether lines may have a value for the key.
func (l *layout) knows(key string) bool { return key != timeKey && l.index(key) >= 0 }

// number returns the place of a known key's value, and has lines read for it.
func (l *layout) number(key string) int {
	if n, ok := l.numbers[key]; ok {
		return n
	}
	n := len(l.numbers)
	l.numbers[key] = n
	f := l.known[l.index(key)]
	l.line = append(l.line, f.line)
	if key == "host" {
		l.host = n
	}
	for rank, p := range f.json {
		b := l.json.at(p.path)
		b.targets = append(b.targets, target{n, rank, p.part, f.convert})
	}
	return n
}

// width is how many values a line has.
func (l *layout) width() int { return len(l.line) }

func status(e *accesslog.Entry) string {
	if e.Status == 0 {
		return ""
	}
	return strconv.Itoa(e.Status)
}

// withoutPort takes the port off host:port and [host]:port; an address of IPv6 alone has none.
func withoutPort(s string) string {
	if rest, ok := strings.CutPrefix(s, "["); ok {
		host, _, _ := strings.Cut(rest, "]")
		return host
	}
	if host, port, ok := strings.Cut(s, ":"); ok && !strings.Contains(port, ":") {
		return host
	}
	return s
}

func withoutQuery(s string) string {
	path, _, _ := strings.Cut(s, "?")
	return path
}

// A request line has a method, a target and mostly a protocol. Where it makes no sense, all of it is the target.
func requestMethod(s string) string {
	method, rest, ok := strings.Cut(s, " ")
	if !ok || rest == "" {
		return ""
	}
	return method
}

func requestTarget(s string) string {
	_, target, ok := strings.Cut(s, " ")
	if !ok {
		return s
	}
	if i := strings.LastIndex(target, " HTTP/"); i > 0 {
		target = target[:i]
	}
	return target
}
