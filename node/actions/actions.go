package actions

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/node/rules"
)

// Config says which descriptors a request has.
type Config struct {
	// Domain is that of the rules.
	Domain string `yaml:"domain"`
	// Descriptors are made of every request, one layer each. One of which a source is missing in a request is left out.
	Descriptors []Descriptor `yaml:"descriptors"`
	// TrustedProxies and ClientHeader are those of NewProxies.
	TrustedProxies []string `yaml:"trusted_proxies"`
	ClientHeader   string   `yaml:"client_header"`
	// OriginalHeaders is the family of headers in which trusted proxies say what they ask about: OriginalFamilies; empty for the first.
	OriginalHeaders string `yaml:"original_headers"`
}

// OriginalFamilies returns what Config.OriginalHeaders may be: x-forwarded means X-Forwarded-Method, -Host and -Uri (Traefik, Caddy, APISIX),
// x-original means X-Original-Method, -Host and -Uri or -Url (as nginx is usually made to send). Only one is looked at: proxies that write one pass the
// other on as clients made it up.
func OriginalFamilies() []string { return []string{"x-forwarded", "x-original"} }

var families = map[string]struct{ method, host, uri string }{
	"x-forwarded": {"X-Forwarded-Method", "X-Forwarded-Host", "X-Forwarded-Uri"},
	"x-original":  {"X-Original-Method", "X-Original-Host", "X-Original-Uri"},
}

// Descriptor is a list of entries.
type Descriptor []Entry

// Entry is a key, and where its value comes from:
//
//	client           the client's address
//	method, host     of the request; the host in small letters
//	path             its path, decoded and cleaned of /./, /../ and doubled or trailing slashes
//	header NAME      a header, if it was sent once
//	cookie NAME      a cookie, if it was sent once
//	query NAME       a parameter of the query, if it stands there once
//	jwt CLAIM        a text or number of the bearer's token, which nobody has verified here
//	template PATH    the segment of the path at {name}, as in /tenants/{tenant}/*
//	text VALUE       that, always
type Entry struct{ Key, Source string }

// UnmarshalYAML reads the entries of a map in their order.
func (d *Descriptor) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: a descriptor is a map of keys and sources, as in {remote_address: client}", n.Line)
	}
	for i := 0; i < len(n.Content); i += 2 {
		var e Entry
		if err := errors.Join(n.Content[i].Decode(&e.Key), n.Content[i+1].Decode(&e.Source)); err != nil {
			return err
		}
		*d = append(*d, e)
	}
	return nil
}

// Actions make descriptors of requests. They are immutable and safe for concurrent use.
type Actions struct {
	proxies     Proxies
	original    struct{ method, host, uri string }
	domain      string
	descriptors [][]entry
	target      bool // some source is of what is asked for
}

type entry struct {
	key string
	source
}

// DefaultConfig asks the sample rules for the client's address.
func DefaultConfig() Config {
	return Config{Domain: "edge", Descriptors: []Descriptor{{{"remote_address", "client"}}}, ClientHeader: XForwardedFor, OriginalHeaders: OriginalFamilies()[0]}
}

// New returns the actions of a configuration. The error says everything that is wrong with it.
func New(c Config) (*Actions, error) {
	proxies, err := NewProxies(c.TrustedProxies, c.ClientHeader)
	errs := []error{err}
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Domain == "" {
		wrong("domain: it is empty; name the domain of the rules")
	}
	if n := len(c.Descriptors); n == 0 || n > rules.MaxDescriptors {
		wrong("descriptors: there are %d, want 1 to %d", n, rules.MaxDescriptors)
	}
	original, known := families[cmp.Or(c.OriginalHeaders, OriginalFamilies()[0])]
	if !known {
		wrong("original_headers: %q, want one of %s", c.OriginalHeaders, strings.Join(OriginalFamilies(), ", "))
	}
	a := &Actions{proxies: proxies, original: original, domain: c.Domain}
	for i, d := range c.Descriptors {
		if len(d) == 0 || len(d) > rules.MaxEntries {
			wrong("descriptor %d: it has %d entries, want 1 to %d", i+1, len(d), rules.MaxEntries)
		}
		var entries []entry
		for _, e := range d {
			s, err := parseSource(e.Source)
			if err != nil {
				wrong("descriptor %d, %s: %w", i+1, e.Key, err)
			}
			if e.Key == "" {
				wrong("descriptor %d: a key is empty", i+1)
			}
			entries = append(entries, entry{e.Key, s})
			a.target = a.target || s.target
		}
		a.descriptors = append(a.descriptors, entries)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return a, nil
}

// view is a request as its client made it.
type view struct {
	client       netip.Addr
	text         string // of client, once it was asked for
	method, host string
	path, query  string // empty where no source is of them
	header       http.Header
}

func (v *view) clientText() string {
	if v.text == "" && v.client.IsValid() {
		v.text = v.client.String()
	}
	return v.text
}

// Describe makes req a request for what r asks for itself. It may have no descriptors, if all their sources are missing: then no rule can
// be meant.
func (a *Actions) Describe(r *http.Request, req *rules.Request) {
	v := view{client: a.proxies.Client(r), method: r.Method, host: r.Host, header: r.Header}
	if a.target {
		v.path, v.query = clean(r.URL.Path), r.URL.RawQuery
	}
	a.describe(&v, req)
}

// DescribeOriginal makes req a request for what a proxy asks about with r, as forward-auth does: method, host and URI are those of its
// headers (Config.OriginalHeaders). If the sender is not a trusted proxy, they are not known.
func (a *Actions) DescribeOriginal(r *http.Request, req *rules.Request) {
	peer, unix := peerOf(r)
	v := view{client: peer, header: r.Header}
	if a.proxies.trusts(peer, unix) {
		v.client = a.proxies.behind(peer, r.Header)
		v.method, v.host = only(r.Header[a.original.method]), only(r.Header[a.original.host])
		if a.target {
			v.path, v.query = splitURI(only(r.Header[a.original.uri]))
		}
	}
	a.describe(&v, req)
}

// splitURI splits a request's target, with or without scheme and host, into path and query. One with wrong escapes is taken as it is.
func splitURI(uri string) (cleaned, query string) {
	if uri == "" {
		return "", ""
	}
	if u, err := url.ParseRequestURI(uri); err == nil {
		return clean(u.Path), u.RawQuery
	}
	cleaned, query, _ = strings.Cut(uri, "?")
	return clean(cleaned), query
}

// clean makes paths the same that servers take to be the same.
func clean(p string) string { return path.Clean("/" + p) }

// describe makes req a request for the descriptors of what v shows.
func (a *Actions) describe(v *view, req *rules.Request) {
	*req = rules.Request{Domain: a.domain, Descriptors: req.Descriptors[:0]}
	for _, entries := range a.descriptors {
		if made := v.entries(entries); made != nil {
			req.Descriptors = append(req.Descriptors, made)
		}
	}
}

// entries are the entries of a descriptor; nil if one of them is missing.
func (v *view) entries(wanted []entry) []rules.Entry {
	made := make([]rules.Entry, len(wanted))
	for i := range wanted {
		value, ok := wanted[i].read(v, wanted[i].argument)
		if !ok {
			return nil
		}
		made[i] = rules.Entry{Key: wanted[i].key, Value: value}
	}
	return made
}
