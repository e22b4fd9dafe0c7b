package actions

import (
	"cmp"
	"path"
	"strings"
)

// A path's readings are what is left of it after any of the steps, in any order: each server takes some of them, and a
// server behind another one takes its own after those of the first. A path that has not been decoded yet is nobody's
// reading: rules are written in the plain form.

// step is what some server does to a path. It returns the path as it is where there is nothing to do.
type step func(string) string

// steps are those of all common servers, but for decoding.
var steps = [...]step{
	cutAt("#"),    // nginx, Node: the fragment
	cutAt("?"),    // whoever gets it decoded
	cutAt("\x00"), // programs in C
	cutAt(";"),    // Fastify: the query begins
	parameters,    // Tomcat, Jetty, Spring: ;parameters of each segment
	slashed,       // Windows, and URL parsers of browsers and Node
	afterHost,     // new URL in Node: //host/path
	squeezed,      // nginx, Apache, Go
	resolved,      // nginx, Apache, Go, URL parsers
	trimmed,       // URL parsers
}

const (
	// maxStates and maxBytes bound the work on one path. No path that somebody means needs a quarter of it.
	maxStates = 64
	maxBytes  = 128 << 10
	// maxDecodes is how many servers in a row decode.
	maxDecodes = 2
)

// state is a path after some steps.
type state struct {
	text    string
	decodes int
}

// states are different paths that steps lead to.
type states struct {
	list   [maxStates]state
	n      int
	bytes  int
	excess bool // there are more
}

func (s *states) add(text string, decodes int) {
	for i := range s.n {
		if s.list[i].text == text {
			return
		}
	}
	if s.n == maxStates || s.bytes > maxBytes {
		s.excess = true
		return
	}
	s.list[s.n], s.bytes = state{text, decodes}, s.bytes+len(text)
	s.n++
}

// readOdd adds the readings of a path that is not plain, the usual one first.
func readOdd(raw string, exactCase bool, out *values) {
	var found states
	usual, _ := decode(raw)
	out.add(path.Clean(usual))
	found.add(raw, 0)
	for i := 0; i < found.n && !found.excess; i++ {
		at := found.list[i]
		decoded, _ := decode(at.text)
		if decoded == at.text || at.decodes > 0 {
			out.add(flat(at.text))
		}
		if at.decodes < maxDecodes {
			found.add(decoded, at.decodes+1)
		}
		for _, take := range steps {
			found.add(take(at.text), at.decodes)
		}
		if !exactCase { // Express, ASP.NET, IIS
			found.add(strings.ToLower(at.text), at.decodes)
		}
	}
	out.excess = out.excess || found.excess
}

// cutAt ends a path at a sign.
func cutAt(sign string) step {
	return func(p string) string {
		if i := strings.Index(p, sign); i > 0 {
			return p[:i]
		}
		return p
	}
}

func parameters(p string) string {
	if strings.IndexByte(p, ';') < 0 {
		return p
	}
	b := make([]byte, 0, len(p))
	for i, segment := range strings.Split(p, "/") {
		if i > 0 {
			b = append(b, '/')
		}
		segment, _, _ = strings.Cut(segment, ";")
		b = append(b, segment...)
	}
	return string(b)
}

func slashed(p string) string { return strings.ReplaceAll(p, `\`, "/") }

// afterHost is the path of //host/path. URL parsers ignore further slashes before the host.
func afterHost(p string) string {
	if !strings.HasPrefix(p, "//") {
		return p
	}
	p = strings.TrimLeft(p, "/")
	return cmp.Or(p[indexAny(p, "/"):], "/")
}

// squeezed is a path without doubled slashes.
func squeezed(p string) string {
	if !strings.Contains(p, "//") {
		return p
	}
	b := make([]byte, 0, len(p))
	for i := range len(p) {
		if p[i] != '/' || i == 0 || p[i-1] != '/' {
			b = append(b, p[i])
		}
	}
	return string(b)
}

// resolved is a path without the segments . and .., and what these take back. URL parsers know their dots encoded, and
// take back an empty segment as any other.
func resolved(p string) string {
	if !strings.Contains(p, "/.") && !strings.Contains(p, "/%2") {
		return p
	}
	b := make([]byte, 0, len(p))
	for i, segment := range strings.Split(p, "/") {
		switch {
		case i == 0:
			b = append(b, segment...)
		case dots(segment) == 2:
			b = b[:max(strings.LastIndexByte(string(b), '/'), 0)]
		case dots(segment) != 1:
			b = append(append(b, '/'), segment...)
		}
	}
	return cmp.Or(string(b), "/")
}

// dots is 1 for the segment . and 2 for .., else 0.
func dots(segment string) (n int) {
	for segment != "" && n < 3 {
		switch {
		case segment[0] == '.':
			segment = segment[1:]
		case len(segment) >= 3 && segment[:2] == "%2" && segment[2]|0x20 == 'e':
			segment = segment[3:]
		default:
			return 0
		}
		n++
	}
	return n % 3
}

var noTabs = strings.NewReplacer("\t", "", "\n", "", "\r", "")

func trimmed(p string) string { return cmp.Or(noTabs.Replace(trimLatin1(trim(p))), "/") }

// flat is a path without doubled and trailing slashes, which no server tells apart.
func flat(p string) string {
	p = squeezed(p)
	if p[0] != '/' {
		p = "/" + p
	}
	return cmp.Or(strings.TrimSuffix(p, "/"), "/")
}
