package node

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
)

// Warning is what a configuration and its rules allow and what was probably not meant.
type Warning struct {
	Text string `json:"text"`
	// Hint marks what may well be meant, because requests come to the rules in other ways.
	Hint bool `json:"hint"`
	// Unmet marks rules that no request meets, and that an operator wrote.
	Unmet bool `json:"unmet,omitempty"`
	// Rules are the names of the rules that it is about.
	Rules []string `json:"rules,omitempty"`
	// File and Line are its place in a rule file, if it has one; Text begins with it.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
}

// Concerns reports whether the warning is about the rule of a name.
func (w *Warning) Concerns(rule string) bool { return slices.Contains(w.Rules, rule) }

// Warnings compares what the node itself makes of requests, at /v1/auth and in the reverse proxy, with rules: those
// that it enforces, of its region. Requests over gRPC, to /v1/check and by a rule's name may hold whatever they like,
// so a rule that /v1/auth and the proxy never meet is no more than probably a mistake; it is a hint where Envoy asks as
// well, or nobody wrote the rules.
//
// Before those it returns what the reader of the rule files warns of, and rules that do less than they say at some API.
func (c *Config) Warnings(set *rules.Set) []Warning {
	l := linter{cfg: c, set: set, derived: actions.FromRules(set, c.Requests.Descriptors)}
	l.sources = c.sources(l.derived)
	l.files()
	l.unseenResponses()
	l.unheldDelays()
	l.unknownStores()
	l.alone()
	if len(l.sources) == 0 {
		return l.found
	}
	l.trust()
	l.exports()
	for i := range l.sources {
		l.source(&l.sources[i])
	}
	l.neverMet()
	return l.found
}

// source is what requests at some listeners are checked as: those of requests, or of a route.
type source struct {
	setting string // where domain and descriptors are set: what stands before their names
	domain  string
	own     []actions.Descriptor // as they are configured
	all     []actions.Descriptor // with those of rules
	who     string               // the APIs that send them
	denied  bool                 // where the domain has no rules: see Config.OnFailure
	// neverSent says why a descriptor is sent for no request at any of them; nothing if it is sent.
	neverSent func(actions.Descriptor) string
}

// servesAuth reports whether anything can ask /v1/auth.
func (c *Config) servesAuth() bool { return c.HTTP != "" && c.Auth }

// sources returns what /v1/auth and the reverse proxy check requests as, with descriptors of rules by domain. It is
// empty without either.
func (c *Config) sources(derived map[string][]actions.Descriptor) (found []source) {
	own, domain := c.Requests.Descriptors, c.Requests.Domain
	auth := source{"requests.", domain, own, slices.Concat(own, derived[domain]), authAPI,
		c.OnFailure == rules.FailClosed, c.NeverSent}
	switch {
	case c.Proxy.Listen == "" && !c.servesAuth():
		return nil
	case c.Proxy.Listen == "":
		return []source{auth}
	case !c.servesAuth():
		auth.who, auth.neverSent = proxyAPI, c.neverProxied
	default:
		auth.who = authAPI + " and " + proxyAPI
		auth.neverSent = func(d actions.Descriptor) string {
			if c.neverProxied(d) == "" {
				return ""
			}
			return c.NeverSent(d)
		}
	}
	found = append(found, auth)
	for i, r := range c.Proxy.Routes {
		isFree := r.Descriptors != nil && len(r.Descriptors) == 0
		if isFree || r.Domain == "" && r.Descriptors == nil {
			continue
		}
		s := source{fmt.Sprintf("proxy.routes: route %d: ", i+1), cmp.Or(r.Domain, auth.domain), r.Descriptors,
			r.Descriptors, proxyAPI, cmp.Or(r.OnFailure, c.OnFailure) == rules.FailClosed, c.neverProxied}
		if len(s.own) == 0 {
			s.own, s.all = own, slices.Concat(own, derived[s.domain])
		}
		found = append(found, s)
	}
	return found
}

const authAPI, proxyAPI = "/v1/auth", "the proxy"

// linter gathers warnings.
type linter struct {
	cfg     *Config
	set     *rules.Set
	derived map[string][]actions.Descriptor // of rules, by domain
	sources []source
	found   []Warning
}

func (l *linter) warn(hint bool, about []string, format string, args ...any) {
	l.found = append(l.found, Warning{Text: fmt.Sprintf(format, args...), Hint: hint, Rules: about})
}

// files adds the warnings about rule files.
func (l *linter) files() {
	for _, err := range l.set.Warnings() {
		w := Warning{Text: err.Error()}
		if e, ok := errors.AsType[*rulefile.Error](err); ok {
			w.File, w.Line = e.File, e.Line
		}
		l.found = append(l.found, w)
	}
}

// guess asks whether a word was meant; nothing for no word.
func guess(word string) string {
	if word == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", word)
}

// unseenResponses warns of rules that charge responses where nobody reports these by himself.
func (l *linter) unseenResponses() {
	if l.cfg.Proxy.Listen != "" || l.cfg.HTTP == "" && l.cfg.GRPC == "" { // in process, the middleware does
		return
	}
	l.ofRules((*rules.Rule).ChargesLater, "charges responses, which the node does not see: report them to /v1/report, "+
		"or use the reverse proxy (proxy.listen) or the Go middleware")
}

// unheldDelays warns of rules that delay requests where nobody, or not everybody, holds these back.
func (l *linter) unheldDelays() {
	var where []string
	if l.cfg.GRPC != "" {
		where = append(where, "Envoy does not wait, and requests over gRPC pass at once")
	}
	if l.cfg.servesAuth() && l.cfg.Proxy.Listen == "" {
		where = append(where, "/v1/auth says in X-RL-Delay-Ms how long, which few proxies obey (see the HAProxy "+
			"recipe)")
	}
	if len(where) > 0 {
		l.ofRules(func(r *rules.Rule) bool {
			return r.Limit != nil && r.Limit.Meter().Algorithm == counters.LeakyQueue
		}, "has requests wait: "+strings.Join(where, "; "))
	}
}

// ofRules adds one hint about all rules that something is true of.
func (l *linter) ofRules(is func(*rules.Rule) bool, text string) {
	var names []string
	for _, r := range l.set.Rules() {
		if is(r) {
			names = append(names, r.Name)
		}
	}
	if len(names) > 0 {
		l.warn(true, names, "rule %s%s %s", names[0], more(" (and %d more)", names), text)
	}
}

// more says how many names there are beside the first; nothing for none.
func more(format string, names []string) string {
	if len(names) == 1 {
		return ""
	}
	return fmt.Sprintf(format, len(names)-1)
}

// alone warns of a node in the place of envoyproxy/ratelimit that knows no others: replicas of that server share their
// counts by Redis alone.
func (l *linter) alone() {
	g := &l.cfg.Gossip
	if l.cfg.Compatibility != "" && l.cfg.HTTP != "" && g.LAN == "" && g.WAN == "" {
		l.warn(false, nil, "this node counts alone (no --gossip): of several replicas each admits the whole limit, "+
			"also with one Redis, which only keeps counts over restarts; run one, or give all the same --key-file, "+
			"--gossip and --join")
	}
}

// trust warns of proxies whose prefix holds clients as well, and of settings that only have an effect on what trusted
// proxies send, where there are none.
func (l *linter) trust() {
	r, defaults := &l.cfg.Requests, actions.DefaultConfig()
	for _, proxy := range r.TrustedProxies {
		if p, err := rules.ParsePrefix(proxy); err == nil && tooWide(p) {
			l.warn(false, nil, "requests.trusted_proxies: %s holds clients, not only proxies: whoever connects from "+
				"there can name another address with each request, and no limit by address holds; list the proxies",
				proxy)
		}
	}
	check := func(name, value, usual, why string) {
		if why != "" && value != "" && value != usual {
			l.warn(false, nil, "requests.%s: %s has no effect: %s", name, value, why)
		}
	}
	anywhere, auth := "", "only /v1/auth reads them"
	if l.cfg.servesAuth() {
		auth = l.cfg.nobodyTrusted("http", l.cfg.HTTP)
		anywhere = auth
	}
	if l.cfg.Proxy.Listen != "" && (!l.cfg.servesAuth() || auth != "") {
		anywhere = l.cfg.nobodyTrusted("proxy.listen", l.cfg.Proxy.Listen)
	}
	check("client_header", r.ClientHeader, defaults.ClientHeader, anywhere)
	check("original_headers", r.OriginalHeaders, defaults.OriginalHeaders, auth)
}

// tooWide reports whether a prefix is wider than networks that consist of proxies: of IPv4 than a /8, of IPv6 than a
// /16, but for private addresses (fc00::/7).
func tooWide(p netip.Prefix) bool {
	if p.Addr().Is4() {
		return p.Bits() < 8
	}
	private := netip.MustParsePrefix("fc00::/7")
	return p.Bits() < 16 && !(p.Bits() >= private.Bits() && private.Contains(p.Addr()))
}

// exports warns of rules that hand out the addresses that they ban, where clients may choose the address: then anybody
// can have anybody blocked.
func (l *linter) exports() {
	everybody := ""
	for _, proxy := range l.cfg.Requests.TrustedProxies {
		if p, err := rules.ParsePrefix(proxy); err == nil && p.Bits() == 0 {
			everybody = proxy
		}
	}
	for _, s := range l.sources {
		for _, d := range s.all {
			entries := d.Entries()
			if len(entries) == 0 {
				continue
			}
			last := entries[len(entries)-1].Source
			for _, r := range l.set.Reach(s.domain, d.Shape()) {
				switch {
				case !r.ExportAddress:
				case last != "client":
					l.warn(false, []string{r.Name}, "rule %s exports the addresses that it bans (export: "+
						"address), and %sdescriptors takes them from %.40q, which clients can forge: use client, and "+
						"requests.trusted_proxies", r.Name, s.setting, last)
				case everybody != "":
					l.warn(false, []string{r.Name}, "rule %s exports the addresses that it bans (export: "+
						"address), and requests.trusted_proxies has %s: whoever connects can name any address to be "+
						"blocked",
						r.Name, everybody)
				}
			}
		}
	}
}

// nobodyTrusted returns why nobody who connects to a listener is a trusted proxy; nothing if somebody is.
func (c *Config) nobodyTrusted(setting, addr string) string {
	proxies := c.Requests.TrustedProxies
	isAddress := func(proxy string) bool { return proxy != actions.UnixPeers }
	switch {
	case onSocket(addr) && !slices.Contains(proxies, actions.UnixPeers):
		return setting + " is a Unix socket, and unix is not in requests.trusted_proxies"
	case onSocket(addr) || slices.ContainsFunc(proxies, isAddress):
		return ""
	case len(proxies) > 0:
		return "requests.trusted_proxies names no address"
	}
	return "requests.trusted_proxies is empty"
}

// onSocket reports whether a listener is on a Unix socket, whose clients have no address.
func onSocket(addr string) bool { return strings.HasPrefix(addr, "unix:") }

func sameDescriptor(a, b actions.Descriptor) bool { return slices.Equal(a.Entries(), b.Entries()) }

// source warns of a domain without rules, and of descriptors that meet none.
func (l *linter) source(s *source) {
	if !l.set.HasDomain(s.domain) {
		// rules in the flat form, and those of envoyproxy/ratelimit, are for other APIs
		others := l.cfg.HTTP != "" || l.cfg.GRPC != ""
		likely := others && (len(l.set.Domains()) == 0 || l.cfg.Compatibility != "")
		verb := map[bool]string{false: "allow", true: "deny"}[s.denied]
		if !strings.Contains(s.who, " and ") {
			verb = map[bool]string{false: "allows", true: "denies"}[s.denied]
		}
		l.warn(likely, nil, "%sdomain: no rule is in domain %.80q: %s %s everything%s", s.setting, s.domain, s.who,
			verb, guess(l.set.NearestDomain(s.domain)))
		return
	}
	for i := range s.all {
		l.descriptor(s, i)
	}
}

// descriptor warns of a descriptor that no rule can be met by, and of one that is charged twice.
func (l *linter) descriptor(s *source, i int) {
	domain, all := s.domain, s.all
	d := all[i]
	if slices.ContainsFunc(all[:i], func(o actions.Descriptor) bool { return sameDescriptor(o, d) }) {
		l.warn(false, nil, "%sdescriptors: %v stands there twice: its rules charge each request twice", s.setting, d)
		return
	}
	isDefault := slices.EqualFunc(s.own, actions.DefaultConfig().Descriptors, sameDescriptor) // nobody chose them
	if isDefault || len(l.set.Reach(domain, d.Shape())) > 0 {
		return
	}
	var entries []rules.Entry
	for _, e := range d.Shape() {
		if near := l.set.NearestKey(domain, e.Key); near != "" {
			l.warn(false, nil, "%sdescriptors: %v meets no rule: none has the key %.80q%s", s.setting, d, e.Key,
				guess(near))
			return
		}
		entries = append(entries, rules.Entry{Key: e.Key, Value: e.Value})
	}
	nearest := ""
	if r := l.set.NearestRule(domain, entries); r != nil {
		nearest = fmt.Sprintf("; the nearest is %s, which needs %s", r.Name, r.Needs())
	}
	l.warn(false, nil, "%sdescriptors: %v meets no rule of domain %s%s", s.setting, d, domain, nearest)
}

// NeverSent says why /v1/auth sends a descriptor of requests.descriptors for no request; nothing if it sends it.
func (c *Config) NeverSent(d actions.Descriptor) string {
	why := c.nobodyTrusted("http", c.HTTP)
	if why != "" && d.ReadsOriginal() {
		return fmt.Sprintf("requests.descriptors has %v, which only trusted proxies can ask about, and %s", d, why)
	}
	return c.lacksClient("http", c.HTTP, why, "requests.descriptors has", d)
}

// neverProxied says why the reverse proxy sends a descriptor for no request; nothing if it sends it.
func (c *Config) neverProxied(d actions.Descriptor) string {
	why := c.nobodyTrusted("proxy.listen", c.Proxy.Listen)
	return c.lacksClient(proxyListener, c.Proxy.Listen, why, "the proxy's descriptors have", d)
}

// lacksClient says why no client of a listener has what a descriptor reads of it: an address, or a certificate.
// nobodyTrusted is why there are no trusted proxies; the result begins with the subject.
func (c *Config) lacksClient(listener, addr, nobodyTrusted, subject string, d actions.Descriptor) string {
	tls := c.TLS[listener]
	switch {
	case d.ReadsClientCert() && !tls.AsksForClientCerts():
		return fmt.Sprintf("%s %v, but no client shows a certificate: set tls.%s with client_ca_file", subject,
			d, listener)
	case nobodyTrusted != "" && d.ReadsClient() && onSocket(addr):
		return fmt.Sprintf("%s %v, but who connects has no address: %s", subject, d, nobodyTrusted)
	}
	return ""
}

// neverMet warns of rules with a limit that no request to /v1/auth or the proxy meets: one warning for those that the
// same would cure.
func (l *linter) neverMet() {
	if l.cfg.RuleSet == nil && len(l.cfg.Rules) == 0 && l.cfg.RulesXDS.Server == "" {
		return // nobody wrote the sample rules
	}
	met, why := make(map[*rules.Rule]bool), make(map[*rules.Rule]string)
	sent := make(map[string][]string) // by domain
	for _, s := range l.sources {
		for _, d := range s.all {
			reason := s.neverSent(d)
			if text := d.String(); reason == "" && !slices.Contains(sent[s.domain], text) {
				sent[s.domain] = append(sent[s.domain], text)
			}
			for _, r := range l.set.Reach(s.domain, d.Shape()) {
				if met[r] = met[r] || reason == ""; !met[r] {
					why[r] = reason
				}
			}
		}
	}
	setting := "requests.descriptors sends"
	if len(l.sources) > 1 {
		setting = "requests.descriptors and proxy.routes send"
	}
	who := strings.ReplaceAll(l.sources[0].who, " and ", " or ")
	var order []string
	groups := make(map[string][]string)
	for _, r := range l.set.Rules() {
		if !l.asks(r.Domain) || r.Limit == nil || met[r] || r.Compatible { // those are for Envoy
			continue
		}
		reason := why[r]
		if reason == "" {
			reason = fmt.Sprintf("%s %s only; it would need %s, "+
				"or say from in the rule", setting, cmp.Or(strings.Join(sent[r.Domain], ", "), "nothing"), l.needs(r))
		}
		if key, near := l.misspelt(r); near != "" {
			l.warn(false, []string{r.Name}, "rule %s is never met by %s: no request has its key %.80q%s",
				r.Name, who, key, guess(near))
			l.found[len(l.found)-1].Unmet = true
			continue
		}
		if groups[reason] == nil {
			order = append(order, reason)
		}
		groups[reason] = append(groups[reason], r.Name)
	}
	hint := l.cfg.GRPC != "" || l.cfg.RuleSet == nil && len(l.cfg.Rules) == 0
	for _, reason := range order {
		names := groups[reason]
		l.warn(hint, names, "rule %s is never met by %s%s: %s", names[0], who, more(", nor %d more", names), reason)
		l.found[len(l.found)-1].Unmet = true
	}
}

// refuseUnmet returns an error if the node is nothing but a reverse proxy, and some of its first rules limit nothing.
func (n *Node) refuseUnmet() error {
	c := &n.cfg
	if c.Proxy.Lax || c.Proxy.Listen == "" || c.HTTP != "" || c.GRPC != "" || c.RESP != "" {
		return nil
	}
	var errs []error
	for _, w := range c.Warnings(n.policy.Load().set) {
		if w.Unmet && !w.Hint {
			errs = append(errs, fmt.Errorf("%s; write into the rule where its values come from, as from: header "+
				"X-Api-Key, or start all the same (proxy.lax, edgelimit proxy: --lax)", w.Text))
		}
	}
	return errors.Join(errs...)
}

// asks reports whether requests are checked in a domain.
func (l *linter) asks(domain string) bool {
	return slices.ContainsFunc(l.sources, func(s source) bool { return s.domain == domain })
}

// descriptorsOf returns the descriptors that are sent in a domain.
func (l *linter) descriptorsOf(domain string) (all []actions.Descriptor) {
	for _, s := range l.sources {
		if s.domain == domain {
			all = append(all, s.all...)
		}
	}
	return all
}

// misspelt returns a key of the rule that no descriptor of the configuration has, and the one of theirs that was
// probably meant; nothing if there is none.
func (l *linter) misspelt(r *rules.Rule) (key, near string) {
	var sent []string
	for _, d := range l.descriptorsOf(r.Domain) {
		for _, e := range d.Entries() {
			sent = append(sent, e.Key)
		}
	}
	for _, e := range r.Path() {
		if !slices.Contains(sent, e.Key) {
			if near = rules.Nearest(e.Key, sent); near != "" {
				return e.Key, near
			}
		}
	}
	return "", ""
}

// needs is which keys a descriptor has to have to meet the rule, with their values where the keys alone do not tell
// what is wrong.
func (l *linter) needs(r *rules.Rule) string {
	path := r.Path()
	for _, d := range l.descriptorsOf(r.Domain) {
		if slices.EqualFunc(d.Shape(), path, func(s rules.Shape, e rules.Entry) bool { return s.Key == e.Key }) {
			return r.Needs()
		}
	}
	keys := make([]string, len(path))
	for i := range path {
		keys[i] = path[i].Key
	}
	return "(" + strings.Join(keys, ", ") + ")"
}

// logWarnings logs the warnings of the configuration and the rules in force that hold now and did not before.
func (n *Node) logWarnings() {
	n.warningMu.Lock()
	defer n.warningMu.Unlock()
	before, logged := n.warned, 0
	n.warned = make(map[string]bool)
	found := n.cfg.Warnings(n.policy.Load().set)
	for i, w := range append(found, n.certificateWarnings()...) {
		n.warned[w.Text] = true
		if before[w.Text] || logged == maxLogLines {
			continue
		}
		logged++
		if i >= len(found) {
			n.log.Warn("a certificate is to be renewed", "warning", w.Text)
		} else if w.File != "" {
			n.log.Warn("a rule file may not mean what it says", "warning", w.Text)
		} else if w.Hint {
			n.log.Info("the configuration may not be what was meant", "hint", w.Text)
		} else {
			n.log.Warn("the configuration is probably not what was meant", "warning", w.Text)
		}
	}
}
