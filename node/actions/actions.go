package actions

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/edgelimit/edgelimit/node/rules"
)

// Config defines the descriptors that requests get.
type Config struct {
	// Domain is that of the rules.
	Domain string `yaml:"domain"`
	// Descriptors are built for every request, one layer each. A descriptor's on_missing is what happens where a
	// request lacks one of its sources.
	Descriptors []Descriptor `yaml:"descriptors"`
	// OnAmbiguous is what happens where a request has a source in a form that servers read differently: Count (the
	// default) or Deny.
	OnAmbiguous string `yaml:"on_ambiguous"`
	// PathCase is PathCaseAny (the default): a path with capital letters is counted as it is written and in small
	// letters, for servers that ignore case; or PathCaseExact: as it is written only.
	PathCase string `yaml:"path_case"`
	// TrustedProxies and ClientHeader say who may name the client, and in which header: XForwardedFor (the default),
	// Forwarded or XRealIP.
	TrustedProxies []string `yaml:"trusted_proxies"`
	ClientHeader   string   `yaml:"client_header"`
	// OriginalHeaders is the family of headers in which trusted proxies describe the original request: XForwarded
	// (the default) or XOriginal.
	OriginalHeaders string `yaml:"original_headers"`
	// Derived are more descriptors, of rules that say where their values come from; nil: there are none.
	Derived *Derived `yaml:"-"`
	// Senders remembers proxies that are not configured; nil: nothing does.
	Senders *Senders `yaml:"-"`
}

// What Config.OnAmbiguous and a descriptor's on_missing may be.
const (
	// Skip leaves the layer out. Only what is missing may be skipped.
	Skip = "skip"
	// Count counts the request all the same: where a source is ambiguous, under each of its values (at most MaxValues)
	// or under UnreadableValue; where it is missing, under MissingValue.
	Count = "count"
	// Deny denies the request.
	Deny = "deny"
)

// What Config.PathCase may be.
const (
	PathCaseAny   = "any"
	PathCaseExact = "exact"
)

// Values of sources that have none of their own. A rule may name them.
const (
	// MissingValue is the value of a missing source, with on_missing: count.
	MissingValue = "(missing)"
	// UnreadableValue is the value of a source that is present and cannot be parsed, such as a bearer token whose
	// payload is not JSON. All of these share one counter.
	UnreadableValue = "(unreadable)"
)

// MaxValues is the maximum number of different values of one source in a request. A request with more is denied.
const MaxValues = 8

// What Config.OriginalHeaders may be. Only one family is read: proxies that write one pass the other on as the client
// wrote it.
const (
	// XForwarded means X-Forwarded-Method, -Host and -Uri (Traefik, Caddy, APISIX).
	XForwarded = "x-forwarded"
	// XOriginal means X-Original-Method, -Host and -Uri (as nginx is usually configured to send) or -Url
	// (ingress-nginx). Where both are present, each counts.
	XOriginal = "x-original"
)

// family are the names of headers that describe the original request: its method, its host, and its target.
type family []string

var families = map[string]family{
	XForwarded: {"X-Forwarded-Method", "X-Forwarded-Host", "X-Forwarded-Uri"},
	XOriginal:  {"X-Original-Method", "X-Original-Host", "X-Original-Uri", "X-Original-Url"},
}

// Outcomes are how often something happened to a layer, by what became of it.
type Outcomes struct {
	Skipped uint64 // the layer was left out
	Counted uint64 // under MissingValue, UnreadableValue, or each of several values
	Denied  uint64 // and with it the request
}

// Add returns the sums.
func (o Outcomes) Add(p Outcomes) Outcomes {
	return Outcomes{o.Skipped + p.Skipped, o.Counted + p.Counted, o.Denied + p.Denied}
}

// Stats are totals since the start.
type Stats struct {
	Described    uint64 // requests
	NoDescriptor uint64 // requests without any layer, so that no rule limits them
	// Missing are layers whose request lacked a source. Untrusted are those that lacked the method, host,
	// path or query because the peer is no trusted proxy.
	Missing, Untrusted Outcomes
	// Ambiguous are layers with a source that servers read differently, or that cannot be read.
	Ambiguous Outcomes
}

// Stats returns the totals.
func (a *Actions) Stats() Stats {
	s := &a.stats
	return Stats{
		Described: s.described.Load(), NoDescriptor: s.noDescriptor.Load(),
		Missing: s.missing.load(), Untrusted: s.untrusted.load(), Ambiguous: s.ambiguous.load(),
	}
}

type stats struct {
	described, noDescriptor       atomic.Uint64
	missing, untrusted, ambiguous outcomes
}

type outcomes struct{ skipped, counted, denied atomic.Uint64 }

func (o *outcomes) load() Outcomes {
	return Outcomes{Skipped: o.skipped.Load(), Counted: o.counted.Load(), Denied: o.denied.Load()}
}

// Actions build the descriptors of requests. But for their statistics they are immutable; they are safe for concurrent
// use.
type Actions struct {
	proxies       proxies
	original      family
	domain        string
	descriptors   []descriptor
	entries       int  // of all descriptors together
	asked         bool // some source reads the original request: method, host, path or query
	denyAmbiguous bool
	exactCase     bool
	senders       *Senders // nil: none are remembered
	derived       *Derived // nil: there are none

	stats stats
}

// DefaultConfig sends the client's address, and the path with it: what limits each client, and what limits it tighter
// at some paths.
func DefaultConfig() Config {
	client := Entry{"remote_address", "client"}
	return Config{
		Domain: "edge", Descriptors: []Descriptor{{client}, {{"path", "path"}, client}},
		OnAmbiguous: Count, PathCase: PathCaseAny, ClientHeader: XForwardedFor, OriginalHeaders: XForwarded,
	}
}

// New returns the actions of a configuration. The error joins all mistakes.
func New(c Config) (*Actions, error) {
	proxies, err := newProxies(c.TrustedProxies, c.ClientHeader)
	errs := []error{err}
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Domain == "" {
		wrong("domain: it is empty; name the domain of the rules")
	}
	if n := len(c.Descriptors); n == 0 || n > rules.MaxDescriptors {
		wrong("descriptors: there are %d, want 1 to %d", n, rules.MaxDescriptors)
	}
	oneOf := func(setting, value string, known ...string) {
		if value != "" && !slices.Contains(known, value) {
			wrong("%s: %q, want one of %s", setting, value, strings.Join(known, ", "))
		}
	}
	oneOf("client_header", c.ClientHeader, XForwardedFor, Forwarded, XRealIP)
	oneOf("original_headers", c.OriginalHeaders, XForwarded, XOriginal)
	oneOf("on_ambiguous", c.OnAmbiguous, Count, Deny)
	oneOf("path_case", c.PathCase, PathCaseAny, PathCaseExact)
	a := &Actions{
		proxies: proxies, original: families[cmp.Or(c.OriginalHeaders, XForwarded)], domain: c.Domain,
		denyAmbiguous: c.OnAmbiguous == Deny, exactCase: c.PathCase == PathCaseExact, senders: c.Senders,
		derived: c.Derived,
	}
	for i, d := range c.Descriptors {
		compiled := d.compile(i+1, wrong)
		a.descriptors = append(a.descriptors, compiled)
		a.entries += len(compiled.entries)
		for _, e := range compiled.entries {
			a.asked = a.asked || kinds[e.kind].original
		}
	}
	return a, errors.Join(errs...)
}
