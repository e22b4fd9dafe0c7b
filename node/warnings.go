package node

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
)

// Warning is what a configuration and its rules allow and what was probably not meant.
type Warning struct {
	Text string `json:"text"`
	// Hint marks what may well be meant, because requests come to the rules in other ways.
	Hint bool `json:"hint"`
	// Rules are the full names of the rules that it is about.
	Rules []string `json:"rules,omitempty"`
	// File and Line are its place in a rule file, if it has one; Text begins with it.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
}

// Concerns reports whether the warning is about the rule of a full name.
func (w *Warning) Concerns(rule string) bool { return slices.Contains(w.Rules, rule) }

// Warnings compares what the node itself makes of requests, at /v1/auth, with rules: those that it enforces, of its
// region. Requests over gRPC, to /v1/check and by a rule's name may hold whatever they like, so a rule that /v1/auth
// never meets is no more than probably a mistake; it is a hint where Envoy asks as well, or nobody wrote the rules.
//
// Before those it returns what the reader of the rule files warns of.
func (c *Config) Warnings(set *rules.Set) []Warning {
	l := linter{cfg: c, set: set}
	l.files()
	if c.HTTP == "" {
		return l.found
	}
	l.trust()
	domain := c.Requests.Domain
	if !set.HasDomain(domain) {
		// rules in the flat form, and those of envoyproxy/ratelimit, are for other APIs
		likely := len(set.Domains()) == 0 || c.Compatibility != ""
		l.warn(likely, nil, "requests.domain: no rule is in domain %.80q: /v1/auth allows everything%s",
			domain, guess(set.NearestDomain(domain)))
		return l.found
	}
	for i := range c.Requests.Descriptors {
		l.descriptor(i)
	}
	l.neverMet()
	return l.found
}

// linter gathers warnings.
type linter struct {
	cfg   *Config
	set   *rules.Set
	found []Warning
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

// trust warns of settings that only have an effect on what trusted proxies send, where there are none.
func (l *linter) trust() {
	why := l.cfg.nobodyTrusted()
	r, defaults := &l.cfg.Requests, actions.DefaultConfig()
	for _, setting := range []struct{ name, value, usual string }{
		{"client_header", r.ClientHeader, defaults.ClientHeader},
		{"original_headers", r.OriginalHeaders, defaults.OriginalHeaders},
	} {
		if why != "" && setting.value != "" && setting.value != setting.usual {
			l.warn(false, nil, "requests.%s: %s has no effect: %s", setting.name, setting.value, why)
		}
	}
}

// nobodyTrusted returns why nobody who connects to the HTTP API is a trusted proxy; nothing if somebody is.
func (c *Config) nobodyTrusted() string {
	proxies := c.Requests.TrustedProxies
	isAddress := func(proxy string) bool { return proxy != actions.UnixPeers }
	switch {
	case c.onSocket() && !slices.Contains(proxies, actions.UnixPeers):
		return "http is a Unix socket, and unix is not in requests.trusted_proxies"
	case c.onSocket() || slices.ContainsFunc(proxies, isAddress):
		return ""
	case len(proxies) > 0:
		return "requests.trusted_proxies names no address"
	}
	return "requests.trusted_proxies is empty"
}

// onSocket reports whether the HTTP API is on a Unix socket, whose clients have no address.
func (c *Config) onSocket() bool { return strings.HasPrefix(c.HTTP, "unix:") }

func sameDescriptor(a, b actions.Descriptor) bool { return slices.Equal(a.Entries(), b.Entries()) }

// descriptor warns of a descriptor that no rule can be met by, and of one that is charged twice.
func (l *linter) descriptor(i int) {
	domain, all := l.cfg.Requests.Domain, l.cfg.Requests.Descriptors
	d := all[i]
	if slices.ContainsFunc(all[:i], func(o actions.Descriptor) bool { return sameDescriptor(o, d) }) {
		l.warn(false, nil, "requests.descriptors: %v stands there twice: its rules charge each request twice", d)
		return
	}
	isDefault := slices.EqualFunc(all, actions.DefaultConfig().Descriptors, sameDescriptor) // nobody chose them
	if isDefault || len(l.set.Reach(domain, d.Shape())) > 0 {
		return
	}
	var entries []rules.Entry
	for _, s := range d.Shape() {
		if near := l.set.NearestKey(domain, s.Key); near != "" {
			l.warn(false, nil, "requests.descriptors: %v meets no rule: none has the key %.80q%s", d, s.Key,
				guess(near))
			return
		}
		entries = append(entries, rules.Entry{Key: s.Key, Value: s.Value})
	}
	nearest := ""
	if r := l.set.NearestRule(domain, entries); r != nil {
		nearest = fmt.Sprintf("; the nearest is %s, which needs %s", r.FullName, r.Needs())
	}
	l.warn(false, nil, "requests.descriptors: %v meets no rule of domain %s%s", d, domain, nearest)
}

// NeverSent says why /v1/auth sends a descriptor of requests.descriptors for no request; nothing if it sends it.
func (c *Config) NeverSent(d actions.Descriptor) string {
	switch why := c.nobodyTrusted(); {
	case why == "":
	case d.ReadsOriginal():
		return fmt.Sprintf("requests.descriptors has %v, which only trusted proxies can ask about, and %s", d, why)
	case d.ReadsClient() && c.onSocket():
		return fmt.Sprintf("requests.descriptors has %v, but who connects has no address: %s", d, why)
	}
	return ""
}

// neverMet warns of rules with a limit that no request to /v1/auth meets: one warning for those that the same would
// cure.
func (l *linter) neverMet() {
	met, why := make(map[*rules.Rule]bool), make(map[*rules.Rule]string)
	var sent []string
	for _, d := range l.cfg.Requests.Descriptors {
		reason := l.cfg.NeverSent(d)
		if reason == "" {
			sent = append(sent, d.String())
		}
		for _, r := range l.set.Reach(l.cfg.Requests.Domain, d.Shape()) {
			if met[r] = met[r] || reason == ""; !met[r] {
				why[r] = reason
			}
		}
	}
	var order []string
	groups := make(map[string][]string)
	for _, r := range l.set.Rules() {
		if r.Domain != l.cfg.Requests.Domain || r.Limit == nil || met[r] || r.Compatible { // those are for Envoy
			continue
		}
		reason := why[r]
		if reason == "" {
			reason = fmt.Sprintf("requests.descriptors sends %s only; it would need %s",
				cmp.Or(strings.Join(sent, ", "), "nothing"), l.needs(r))
		}
		if key, near := l.misspelt(r); near != "" {
			l.warn(false, []string{r.FullName}, "rule %s is never met by /v1/auth: no request has its key %.80q%s",
				r.FullName, key, guess(near))
			continue
		}
		if groups[reason] == nil {
			order = append(order, reason)
		}
		groups[reason] = append(groups[reason], r.FullName)
	}
	hint := l.cfg.GRPC != "" || l.cfg.RuleSet == nil && len(l.cfg.Rules) == 0
	for _, reason := range order {
		names, more := groups[reason], ""
		if len(names) > 1 {
			more = fmt.Sprintf(", nor %d more", len(names)-1)
		}
		l.warn(hint, names, "rule %s is never met by /v1/auth%s: %s", names[0], more, reason)
	}
}

// misspelt returns a key of the rule that no descriptor of the configuration has, and the one of theirs that was
// probably meant; nothing if there is none.
func (l *linter) misspelt(r *rules.Rule) (key, near string) {
	var sent []string
	for _, d := range l.cfg.Requests.Descriptors {
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
	for _, d := range l.cfg.Requests.Descriptors {
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
	for _, w := range n.cfg.Warnings(n.policy.Load().set) {
		n.warned[w.Text] = true
		if before[w.Text] || logged == maxLogLines {
			continue
		}
		logged++
		if w.File != "" {
			n.log.Warn("a rule file may not mean what it says", "warning", w.Text)
		} else if w.Hint {
			n.log.Info("the configuration may not be what was meant", "hint", w.Text)
		} else {
			n.log.Warn("the configuration is probably not what was meant", "warning", w.Text)
		}
	}
}
