package actions

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// target is what a request asks for.
type target struct {
	path  string // decoded once
	raw   string // as it was sent; empty: as net/url writes path
	query string // as it was sent
	host  string // of an absolute target, as it was sent
	bad   bool   // the path has a malformed escape
}

// splitTarget splits a request's target, with or without scheme and host. It never fails. Python's server trims the
// target; gunicorn, Puma and PHP read http:/login as /login.
func splitTarget(uri string) target {
	var t target
	uri = trim(uri)
	if scheme := indexAny(uri, ":/?#\\"); scheme < len(uri) && uri[scheme] == ':' {
		uri = uri[scheme+1:]
		if rest, ok := strings.CutPrefix(uri, "//"); ok {
			end := indexAny(rest, "/?#\\")
			t.host, uri = rest[:end], rest[end:]
			t.host = t.host[strings.LastIndexByte(t.host, '@')+1:]
		}
	}
	raw, query, _ := strings.Cut(uri, "?")
	t.query = query
	t.raw = raw
	t.path, t.bad = decode(raw)
	return t
}

// targetOf returns the target of a request whose URL is u.
func targetOf(u *url.URL) target {
	return target{path: cmp.Or(u.Path, "/"), raw: u.RawPath, query: u.RawQuery}
}

// indexAny is where the first of some characters stands, or the length.
func indexAny(s, chars string) int {
	if i := strings.IndexAny(s, chars); i >= 0 {
		return i
	}
	return len(s)
}

// readPath adds the path, and where servers differ in what it is, each of its readings.
func (t *target) readPath(exactCase bool, out *values) {
	if t.path == "" && t.query == "" && t.host == "" {
		return
	}
	p := t.path
	if !strings.HasPrefix(p, "/") {
		p = "/" + p
	}
	switch {
	case out.tooLong(p):
	case isPlain(p):
		out.add(p)
	default:
		out.ambiguous = out.ambiguous || t.bad || strings.ContainsAny(p, "#?\x00\\") || trimmed(p) != p
		raw := cmp.Or(t.raw, (&url.URL{Path: p}).EscapedPath())
		if raw[0] != '/' {
			raw = "/" + raw
		}
		readOdd(raw, exactCase, out)
	}
}

// isPlain reports whether a path that begins with a slash is the same to all servers: it is clean and in small ASCII
// letters, without characters that mean something.
func isPlain(p string) bool {
	before := byte(0)
	for i := range len(p) {
		switch c := p[i]; c {
		case '#', '?', ';', '\\', '%':
			return false
		default:
			if c < ' ' || 'A' <= c && c <= 'Z' || c >= 0x80 || before == '/' && (c == '/' || c == '.') {
				return false
			}
			before = c
		}
	}
	return before != '/' && before != ' ' || len(p) == 1
}

// readHost adds the request's host, and that of an absolute target, which replaces it in servers that follow RFC 9112.
func (v *view) readHost(out *values) {
	for _, line := range v.hosts {
		for host := range strings.SplitSeq(line, ",") { // proxies in a row may write a list
			out.sent(CleanHost(host))
		}
	}
	for i := range v.targets[:v.known] {
		out.sent(CleanHost(v.targets[i].host))
	}
}

// CleanHost is a host in small letters, without port and trailing dot; an IPv6 address in its shortest form, in
// brackets.
func CleanHost(host string) string {
	host = trim(host)
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, _, _ = strings.Cut(inner, "]")
		if addr, err := netip.ParseAddr(inner); err == nil {
			return "[" + addr.WithZone("").String() + "]"
		}
	}
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.Trim(host[i+1:], "0123456789") == "" {
		host = host[:i]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// A template is a path in which {name} is the segment to read, * any segment, and * at the end any rest.

// checkTemplate returns what is wrong with a template.
func checkTemplate(t string) error {
	captures := 0
	for _, segment := range strings.Split(t, "/") {
		if isCapture(segment) {
			captures++
		} else if strings.ContainsAny(segment, "{}") || strings.Contains(segment, "*") && segment != "*" {
			return fmt.Errorf("template %q: %q: {name} and * are whole segments", t, segment)
		}
	}
	if !strings.HasPrefix(t, "/") || captures != 1 {
		return fmt.Errorf("template %q: want a path with one {name} in it, as in /tenants/{tenant}/*", t)
	}
	return nil
}

func isCapture(segment string) bool {
	return len(segment) > 2 && segment[0] == '{' && segment[len(segment)-1] == '}'
}

// readTemplate adds what the template names in each reading of the path.
func (v *view) readTemplate(template string, out *values) {
	var paths values
	for i := range v.targets[:v.known] {
		v.targets[i].readPath(v.exactCase, &paths)
	}
	for i := range paths.n {
		out.add(capture(template, paths.list[i], v.exactCase))
	}
	out.ambiguous = out.ambiguous || paths.ambiguous && out.n > 0
	out.excess = out.excess || paths.excess
}

// capture is the segment of the path that the template names; nothing if the path does not match.
func capture(t, path string, exactCase bool) (value string) {
	for {
		var want, have string
		var more, rest bool
		want, t, more = strings.Cut(t, "/")
		have, path, rest = strings.Cut(path, "/")
		switch {
		case isCapture(want):
			value = have
		case want == "*" && !more:
			return value
		case want != "*" && want != have && (exactCase || !strings.EqualFold(want, have)):
			return ""
		}
		if more != rest {
			return ""
		}
		if !more {
			return value
		}
	}
}
