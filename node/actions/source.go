package actions

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/edgelimit/edgelimit/node/certs"
)

// kind is a kind of source.
type kind uint8

const (
	fromClient kind = iota
	fromMethod
	fromHost
	fromPath
	fromHeader
	fromCookie
	fromQuery
	fromJWT
	fromTemplate
	fromText
	fromClientCert
)

// kinds are how sources are written: the first word, and an example if an argument follows; and whether they read what
// only a trusted proxy can forward of the original request.
var kinds = [...]struct {
	word, example string
	original      bool
}{
	fromClient:   {"client", "", false},
	fromMethod:   {"method", "", true},
	fromHost:     {"host", "", true},
	fromPath:     {"path", "", true},
	fromHeader:   {"header", "header X-Api-Key", false},
	fromCookie:   {"cookie", "cookie session", false},
	fromQuery:    {"query", "query token", true},
	fromJWT:      {"jwt", "jwt sub", false},
	fromTemplate: {"template", "template /tenants/{tenant}/*", true},
	fromText:     {"text", "text api", false},

	fromClientCert: {"client_cert", "", false},
}

// source is where the value of an entry comes from.
type source struct {
	kind     kind
	argument string
}

// parseSource reads how a source is written: its kind, and a blank before its argument if it takes one.
func parseSource(text string) (s source, err error) {
	word, argument, _ := strings.Cut(text, " ")
	for k, known := range kinds {
		if known.word == word {
			return newSource(kind(k), strings.TrimSpace(argument), text)
		}
	}
	return s, fmt.Errorf("%q: want client, client_cert, method, host, path, header NAME, cookie NAME, query NAME, "+
		"jwt CLAIM, template PATH or text VALUE", text)
}

func newSource(k kind, argument, text string) (s source, err error) {
	s = source{kind: k, argument: argument}
	switch example := kinds[k].example; {
	case example == "" && argument != "":
		err = fmt.Errorf("%q: %s stands alone", text, kinds[k].word)
	case example != "" && argument == "":
		err = fmt.Errorf("%q: write it as in %q", text, example)
	case k == fromTemplate:
		err = checkTemplate(argument)
	case k == fromHeader:
		s.argument = http.CanonicalHeaderKey(argument)
		if s.argument == "Host" {
			err = fmt.Errorf("header %s: write host", argument)
		}
	}
	return s, err
}

// String is how the source is written in a configuration.
func (s *source) String() string { return strings.TrimSpace(kinds[s.kind].word + " " + s.argument) }

// read adds what the request has of the source. A switch rather than a function in the source: so the view stays off
// the heap.
func (v *view) read(s *source, out *values) {
	switch s.kind {
	case fromClient:
		out.add(v.clientText())
		out.untrusted = !v.trusted // a Unix socket's
	case fromMethod:
		for _, method := range v.methods {
			out.sent(strings.ToUpper(trim(method)))
		}
	case fromHost:
		v.readHost(out)
	case fromPath:
		for i := range v.targets[:v.known] {
			v.targets[i].readPath(v.exactCase, out)
		}
	case fromTemplate:
		v.readTemplate(s.argument, out)
	case fromHeader:
		v.readHeader(s.argument, out)
	case fromCookie:
		v.readCookie(s.argument, out)
	case fromQuery:
		for i := range v.targets[:v.known] {
			v.targets[i].readQuery(s.argument, out)
		}
	case fromJWT:
		v.readJWT(s.argument, out)
	case fromText:
		out.add(s.argument)
	case fromClientCert:
		out.add(certs.ClientName(v.tls))
	}
	if kinds[s.kind].original {
		out.untrusted = !v.described
		out.excess = out.excess || v.excess
	}
}

// maxScan is the maximum length of a target, or of the lines of a header that is parsed, in bytes: common servers
// accept 8 or 16 KiB. A longer one counts as excess.
const maxScan = 16 << 10

// values are what a source has in one request: none if it is missing.
type values struct {
	list [MaxValues]string
	n    int
	// excess: there are more than fit.
	excess bool
	// ambiguous: servers may read different values, or none.
	ambiguous bool
	// unreadable: the source is present and has no value.
	unreadable bool
	// untrusted: the source is missing as no trusted proxy describes the original request.
	untrusted bool
}

// add adds a value that is not empty, once.
func (s *values) add(value string) {
	if value == "" {
		return
	}
	for i := range s.n {
		if s.list[i] == value {
			return
		}
	}
	if s.n == MaxValues {
		s.excess = true
		return
	}
	s.list[s.n] = value
	s.n++
}

// tooLong reports whether the lines are too long to scan, and sets excess then.
func (s *values) tooLong(lines ...string) bool {
	n := 0
	for _, line := range lines {
		n += len(line)
	}
	if n > maxScan {
		s.excess = true
	}
	return s.excess
}

// sent is add for one of the values that the client sent: different ones are ambiguous.
func (s *values) sent(value string) {
	s.add(value)
	s.ambiguous = s.ambiguous || s.n > 1
}
