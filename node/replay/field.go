package replay

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// logField is a value of a request that lines may have, under the key that rules use.
type logField struct {
	key     string
	get     func(*hostEntry) string // from the combined format; nil if it lacks the field
	json    []place                 // the first that a line has wins
	convert func(string) string     // applied to the value of any place, unless nil
}

// hostEntry is an entry with the virtual host in front of it.
type hostEntry struct {
	Entry
	host string
}

// place is the path of a field in a server's JSON.
type place struct {
	path string
	part func(string) string // extracts the field from the value, unless nil
}

func places(paths string) (list []place) {
	for path := range strings.FieldsSeq(paths) {
		list = append(list, place{path, nil})
	}
	return list
}

// Servers' names: Caddy nests under request; Traefik's begin with capitals; nginx' are those of its variables; Envoy's
// are those that Istio and Envoy Gateway configure. What clients can forge, such as X-Forwarded-For, is no address
// unless the user says so.
var fields = []logField{
	{"remote_address", func(e *hostEntry) string { return e.Addr }, places("request.client_ip request.remote_ip " +
		"ClientHost ClientAddr remote_addr downstream_remote_address remote_address client_ip remote_ip"), withoutPort},
	{"method", func(e *hostEntry) string { return e.Method },
		append(places("request.method RequestMethod request_method method"), place{"request", requestMethod}), nil},
	{"path", func(e *hostEntry) string { return withoutQuery(e.Path) }, targetPlaces, withoutQuery},
	{"uri", func(e *hostEntry) string { return e.Path }, targetPlaces, nil},
	{"host", func(e *hostEntry) string { return e.host },
		places("request.host RequestHost http_host host authority :authority server_name"), nil},
	{"status", status, places("status DownstreamStatus response_code"), nil},
	{"user_agent", func(e *hostEntry) string { return e.Agent },
		places("request.headers.User-Agent request_User-Agent http_user_agent user_agent user-agent"), nil},
	{"referer", func(e *hostEntry) string { return e.Referer },
		places("request.headers.Referer request_Referer http_referer referer"), nil},
	{"user", func(e *hostEntry) string { return e.User }, places("user_id ClientUsername remote_user user"), nil},
}

// targetPlaces are those of the request target, with its query.
var targetPlaces = append(places("request.uri RequestPath request_uri uri x-envoy-origin-path path"),
	place{"request", requestTarget})

// timePlaces are those of the request's time, the most exact first.
var timePlaces = places("ts StartUTC msec time_iso8601 start_time time_local timestamp @timestamp time")

const timeKey = "time"

// Fields returns the keys of the built-in fields.
func Fields() (keys []string) {
	for _, f := range fields {
		keys = append(keys, f.key)
	}
	return keys
}

// layout maps the wanted fields to indexes of a line's values. The time is at index 0.
type layout struct {
	indexes map[string]int // by key
	known   []logField     // also those that are not wanted
	get     []func(*hostEntry) string
	json    branch
}

// newLayout knows the built-in fields, with the user's places (KEY=PATH) instead of theirs.
func newLayout(named []string) (*layout, error) {
	l := &layout{indexes: make(map[string]int),
		known: append(slices.Clone(fields), logField{key: timeKey, json: timePlaces})}
	replaced := make(map[string]bool)
	for _, p := range named {
		key, path, ok := strings.Cut(p, "=")
		if !ok || key == "" || path == "" {
			return nil, fmt.Errorf("field %.80q: want KEY=PATH, as in api_key=request.headers.X-Api-Key", p)
		}
		if l.field(key) == nil {
			l.known = append(l.known, logField{key: key})
		}
		f := l.field(key)
		if !replaced[key] {
			f.json, replaced[key] = nil, true
		}
		f.json = append(f.json, place{path, nil})
	}
	l.index(timeKey)
	return l, nil
}

// field returns the known field of a key, or nil.
func (l *layout) field(key string) *logField {
	if i := slices.IndexFunc(l.known, func(f logField) bool { return f.key == key }); i >= 0 {
		return &l.known[i]
	}
	return nil
}

// knows reports whether lines may have a value for the key.
func (l *layout) knows(key string) bool { return key != timeKey && l.field(key) != nil }

// index returns the index of a known key's value, which is wanted from now on.
func (l *layout) index(key string) int {
	if i, ok := l.indexes[key]; ok {
		return i
	}
	i, f := len(l.indexes), l.field(key)
	l.indexes[key] = i
	l.get = append(l.get, f.get)
	for rank, p := range f.json {
		b := l.json.at(p.path)
		b.targets = append(b.targets, target{i, rank, p.part, f.convert})
	}
	return i
}

// width returns the number of a line's values.
func (l *layout) width() int { return len(l.get) }

func status(e *hostEntry) string {
	if e.Status == 0 {
		return ""
	}
	return strconv.Itoa(e.Status)
}

// withoutPort removes the port from host:port and [host]:port. A bare IPv6 address has none.
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

// requestMethod returns the method of a request line, which has a method, a target and mostly a protocol.
func requestMethod(s string) string {
	method, rest, ok := strings.Cut(s, " ")
	if !ok || rest == "" {
		return ""
	}
	return method
}

// requestTarget returns the target of a request line, or all of a line that is none.
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
