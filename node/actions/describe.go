package actions

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"github.com/edgelimit/edgelimit/node/rules"
)

// Why a request is denied before any rule is asked: values of Outcome.Denied.
const (
	DeniedMissing       = "missing"         // on_missing: deny
	DeniedAmbiguous     = "ambiguous"       // on_ambiguous: deny
	DeniedTooManyValues = "too-many-values" // more than MaxValues of a source, or rules.MaxDescriptors in all
)

// DeniedMalformed is why a request is denied whose target has a blank or a control character, or whose host is not
// ASCII. HTTP/2 has room for them. A proxy that forwards the request over HTTP/1.1 ends the target there, and may
// translate the host to Punycode; Python and Node drop tabs.
const DeniedMalformed = "malformed"

// NoDescriptor is why a request without descriptors is allowed: no rule applies.
const NoDescriptor = "no-descriptor"

// Outcome is the result of Describe besides the descriptors. The zero value is the usual case.
type Outcome struct {
	// Denied is why the request must be denied whatever the rules are; empty: it must not. A denied request has no
	// valid descriptors.
	Denied string
	// Detail is the reason for the client, with the descriptor.
	Detail string
}

// maxTargets is the maximum number of different targets of one request: X-Original-Uri and X-Original-Url, twice each.
const maxTargets = 4

// view is a request as its client made it.
type view struct {
	client  netip.Addr
	text    string // client as text, once it is needed
	header  http.Header
	tls     *tls.ConnectionState // of the connection; nil: plain text
	trusted bool                 // the peer is a trusted proxy
	// described reports that the fields below are known; otherwise they are empty.
	described      bool
	methods, hosts []string
	targets        [maxTargets]target // an array, as a slice's memory would escape to the heap
	known          int                // targets
	excess         bool               // there are more
	exactCase      bool
}

func (v *view) clientText() string {
	if v.text == "" && v.client.IsValid() {
		v.text = v.client.String()
	}
	return v.text
}

// Describe makes req a request for r itself. It has no descriptors if all their sources are missing: no rule applies
// then. The memory of req's descriptors is used again.
func (a *Actions) Describe(r *http.Request, req *rules.Request) Outcome {
	client, trusted := a.proxies.client(r)
	a.observe(r, trusted)
	methods, hosts := [1]string{r.Method}, [1]string{r.Host}
	v := view{
		client: client, header: r.Header, tls: r.TLS, trusted: trusted, exactCase: a.exactCase,
		described: true, methods: methods[:], hosts: hosts[:],
		targets: [maxTargets]target{targetOf(r.URL)}, known: 1,
	}
	return a.describe(&v, req)
}

// DescribeOriginal makes req a request for the one that a proxy forwards in r, as forward-auth does: it reads method,
// host and URI from the headers (Config.OriginalHeaders). They are missing unless the sender is a trusted proxy.
// Everything else is as with Describe.
func (a *Actions) DescribeOriginal(r *http.Request, req *rules.Request) Outcome {
	client, trusted := a.proxies.client(r)
	a.observe(r, trusted, a.original...)
	v := view{client: client, header: r.Header, tls: r.TLS, exactCase: a.exactCase, trusted: trusted}
	if !trusted {
		return a.describe(&v, req)
	}
	v.described, v.methods, v.hosts = true, r.Header[a.original[0]], r.Header[a.original[1]]
	if a.asked || a.derived.of(a.domain).asked {
		v.readTargets(a.original[2:])
	}
	if v.isMalformed(a.original[2:]) {
		*req = rules.Request{Domain: a.domain, Descriptors: req.Descriptors[:0]}
		return Outcome{Denied: DeniedMalformed,
			Detail: "the host or the target is empty or cannot stand in HTTP/1.1: send them encoded"}
	}
	return a.describe(&v, req)
}

// Paths appends the readings of the path of r itself to dst, those that the source path has. It returns false if there
// are more than MaxValues.
func (a *Actions) Paths(r *http.Request, dst []string) ([]string, bool) {
	var found values
	t := targetOf(r.URL)
	t.readPath(a.exactCase, &found)
	return append(dst, found.list[:found.n]...), !found.excess
}

// readTargets splits the targets in headers, each different one once.
func (v *view) readTargets(names []string) {
	for _, name := range names {
		for _, line := range v.header[name] {
			switch t := splitTarget(strings.Trim(line, " \t")); {
			case t == target{}, slices.Contains(v.targets[:v.known], t):
			case v.known == maxTargets:
				v.excess = true
			default:
				v.targets[v.known] = t
				v.known++
			}
		}
	}
}

// isMalformed reports whether the request, whose target is in the named headers, is one of DeniedMalformed.
func (v *view) isMalformed(targets []string) bool {
	for _, name := range targets {
		for _, line := range v.header[name] {
			if line = strings.Trim(line, " \t"); line == "" || strings.ContainsFunc(line, isControl) {
				return true
			}
		}
	}
	return slices.ContainsFunc(v.hosts, func(host string) bool {
		return strings.ContainsFunc(host, func(r rune) bool { return r > unicode.MaxASCII })
	})
}

func isControl(r rune) bool { return r <= ' ' || r == 0x7f }

// describe makes req a request with the descriptors of v.
func (a *Actions) describe(v *view, req *rules.Request) Outcome {
	*req = rules.Request{Domain: a.domain, Descriptors: req.Descriptors[:0], Client: v.client}
	a.stats.described.Add(1)
	derived := a.derived.of(a.domain)
	memory := make([]rules.Entry, 0, a.entries+derived.entries)
	for i := range len(a.descriptors) + len(derived.descriptors) {
		var d *descriptor
		if i < len(a.descriptors) {
			d = &a.descriptors[i]
		} else {
			d = &derived.descriptors[i-len(a.descriptors)]
		}
		n := len(memory)
		memory = memory[:n+len(d.entries)]
		if out := a.build(d, i, v, memory[n:], req); out.Denied != "" {
			return out
		}
	}
	if len(req.Descriptors) == 0 {
		a.stats.noDescriptor.Add(1)
	}
	return Outcome{}
}

// build appends the descriptor d, with the number i, to req, once for each combination of its sources' values. room is
// memory for the first.
func (a *Actions) build(d *descriptor, i int, v *view, room []rules.Entry, req *rules.Request) Outcome {
	first := len(req.Descriptors)
	if first == rules.MaxDescriptors {
		return a.tooMany(i, &d.entries[0])
	}
	req.Descriptors = append(req.Descriptors, room[:len(room):len(room)])
	for place := range d.entries {
		e := &d.entries[place]
		var found values
		v.read(&e.source, &found)
		switch {
		case found.excess:
			return a.tooMany(i, e)
		case (found.ambiguous || found.unreadable) && a.denyAmbiguous:
			a.stats.ambiguous.denied.Add(1)
			return denied(DeniedAmbiguous, i, e,
				"the request has it several times, or in a form that servers read differently")
		case found.ambiguous || found.unreadable:
			a.stats.ambiguous.counted.Add(1)
			if found.unreadable {
				found.add(UnreadableValue)
			}
		case found.n == 0:
			lacking := &a.stats.missing
			if found.untrusted {
				lacking = &a.stats.untrusted
			}
			switch d.onMissing {
			case Deny:
				lacking.denied.Add(1)
				return denied(DeniedMissing, i, e, "the request does not have it")
			case Skip:
				lacking.skipped.Add(1)
				req.Descriptors = req.Descriptors[:first]
				req.Alternatives &= 1<<first - 1
				return Outcome{}
			}
			lacking.counted.Add(1)
			found.add(MissingValue)
		}
		if !spread(req, first, place, rules.Entry{Key: e.key}, &found) {
			return a.tooMany(i, e)
		}
	}
	return Outcome{}
}

// spread gives the descriptors from first on the values as that of the entry at a place: the first value to those that
// there are, and each other one to copies of them. It returns false if there would be too many.
func spread(req *rules.Request, first, place int, e rules.Entry, found *values) bool {
	before := req.Descriptors[first:]
	e.Value = found.list[0]
	for _, entries := range before {
		entries[place] = e
	}
	for _, value := range found.list[1:max(found.n, 1)] {
		for _, entries := range before {
			n := len(req.Descriptors)
			if n == rules.MaxDescriptors {
				return false
			}
			e.Value = value
			entries = append([]rules.Entry(nil), entries...)
			entries[place] = e
			req.Descriptors = append(req.Descriptors, entries)
			req.Alternatives |= 1 << n
		}
	}
	return true
}

func (a *Actions) tooMany(i int, e *entry) Outcome {
	a.stats.ambiguous.denied.Add(1)
	return denied(DeniedTooManyValues, i, e, "the request has it with too many different values")
}

// denied denies because of the entry of the descriptor i.
func denied(why string, i int, e *entry, detail string) Outcome {
	detail = fmt.Sprintf("descriptor %d needs %s: %s; send it once and plainly", i+1, &e.source, detail)
	return Outcome{Denied: why, Detail: detail}
}

// Hint returns the setting to change for requests such as r, which has no descriptors.
func (a *Actions) Hint(r *http.Request) string {
	switch peer, unix := peerOf(r); {
	case a.proxies.trusts(peer, unix):
		return "add a descriptor that every request has, such as {remote_address: client}, or set on_missing"
	case unix:
		return "add unix to requests.trusted_proxies: the node does not know who is behind the Unix socket"
	default:
		return fmt.Sprintf("add %v to requests.trusted_proxies if it is your proxy: until then the node ignores its "+
			"headers for the client and the original request", peer)
	}
}
