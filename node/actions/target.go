package actions

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"strings"
)

// target is what a request asks for.
type target struct {
	path  string // decoded once
	query string // as it was sent
	host  string // of an absolute target, as it was sent
	bad   bool   // the path has a malformed escape
}

// splitTarget splits a request's target, with or without scheme and host. It never fails.
func splitTarget(uri string) target {
	var t target
	if !strings.HasPrefix(uri, "/") {
		if scheme := strings.Index(uri, "://"); scheme >= 0 && scheme < indexAny(uri, "/?#") {
			uri = uri[scheme+len("://"):]
			end := indexAny(uri, "/?#\\")
			t.host, uri = uri[:end], uri[end:]
			t.host = t.host[strings.LastIndexByte(t.host, '@')+1:]
		}
	}
	raw, query, _ := strings.Cut(uri, "?")
	t.query = query
	t.path, t.bad = decode(raw)
	return t
}

// indexAny is where the first of some characters stands, or the length.
func indexAny(s, chars string) int {
	if i := strings.IndexAny(s, chars); i >= 0 {
		return i
	}
	return len(s)
}

// maxOdd is the maximum length of a path with characters that servers read differently, in bytes: each byte is read
// many times.
const maxOdd = 4 << 10

// readPath adds the path, and where servers differ in what it is, each of its readings: at most nine of a path that has
// everything. See NORMALIZATION.md.
func (t *target) readPath(exactCase bool, out *values) {
	if t.path == "" && t.query == "" && t.host == "" {
		return
	}
	p := t.path
	if !strings.HasPrefix(p, "/") {
		p = "/" + p
	}
	if isPlain(p) && !out.tooLong(p) {
		out.add(p)
		return
	}
	odd := strings.ContainsAny(p, "#?\x00;\\%")
	if out.tooLong(p) || odd && len(p) > maxOdd {
		out.excess = true
		return
	}
	plain := path.Clean(p)
	all := plain // all readings at once
	out.add(plain)
	if odd {
		out.ambiguous = out.ambiguous || t.bad || strings.ContainsAny(p, "#?\x00\\")
		out.add(path.Clean(cutPath(p)))       // nginx and Node cut at #, programs in C at NUL, proxies that decode at ?
		out.add(path.Clean(cutParameters(p))) // Java
		out.add(path.Clean(slashed(p)))       // Windows, and URL parsers of browsers and Node
		again, _ := decode(p)
		out.add(path.Clean(again)) // a server behind another one that decodes
		all, _ = decode(cutPath(p))
		all = path.Clean(slashed(cutParameters(cutPath(all))))
	}
	if strings.Contains(p, "/.") { // Express, PHP and others that take paths as they come
		out.add(undotted(cutPath(p)))
	}
	if strings.HasPrefix(p, "//") { // new URL(target, base): //host/path
		out.add(afterHost(p))
	}
	if !exactCase { // Express, ASP.NET, IIS
		out.add(strings.ToLower(plain))
		all = strings.ToLower(all)
	}
	out.add(all)
}

// isPlain reports whether a path that begins with a slash is the same to all servers: it is clean and in small ASCII
// letters, without characters that mean something.
func isPlain(p string) bool {
	before := byte(0)
	for i := range len(p) {
		switch c := p[i]; c {
		case '#', '?', 0, ';', '\\', '%':
			return false
		default:
			if 'A' <= c && c <= 'Z' || c >= 0x80 || before == '/' && (c == '/' || c == '.') {
				return false
			}
			before = c
		}
	}
	return before != '/' || len(p) == 1
}

// cutPath ends a path where some servers do.
func cutPath(p string) string { return p[:max(1, indexAny(p, "#?\x00"))] }

// cutParameters takes ;parameters out of the segments.
func cutParameters(p string) string {
	if strings.IndexByte(p, ';') < 0 {
		return p
	}
	return segments(p, ";")
}

// undotted is a path whose dots mean nothing, without doubled and trailing slashes.
func undotted(p string) string { return segments(p, "/") }

// segments is a path without its empty segments, the others cut at end.
func segments(p, end string) string {
	b := make([]byte, 0, len(p))
	for segment := range strings.SplitSeq(p, "/") {
		if segment, _, _ = strings.Cut(segment, end); segment != "" {
			b = append(append(b, '/'), segment...)
		}
	}
	return cmp.Or(string(b), "/")
}

func slashed(p string) string { return strings.ReplaceAll(p, `\`, "/") }

// afterHost is the path of //host/path.
func afterHost(p string) string {
	p = p[2:]
	return path.Clean("/" + p[indexAny(p, "/"):])
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
