package ratelimit

import (
	"regexp"
	"slices"
	"strings"

	"github.com/edgelimit/edgelimit/node/rules"
)

// appendName appends the name under which a hit is counted, before sanitize: domain and entries, separated by dots.
func appendName(b []byte, h *Hit) []byte {
	b = append(b, h.Domain...)
	if h.Rule == nil {
		return appendOwnName(append(b, '.'), h.Entries)
	}
	shares := h.Rule.DetailedMetric && sharesThreshold(h.Rule)
	for i := range h.Entries {
		e := &h.Entries[i]
		b = append(append(b, '.'), e.Key...)
		value := e.Value
		switch {
		case shares && !isShared(h.Rule, i):
		case shares:
			value = patternOf(h.Rule.Entries[i], e.Key)
		case h.Rule.DetailedMetric:
			b = append(append(b, '_'), value...) // also of an empty value
			continue
		default:
			value = ruleValue(h.Rule, i, e)
		}
		if value != "" {
			b = append(append(b, '_'), value...)
		}
	}
	return b
}

// appendOwnName appends the entries of a descriptor that brings its own limit, separated by dots. Empty ones before the
// first that is not have none, as there.
func appendOwnName(b []byte, entries []rules.Entry) []byte {
	first := len(b)
	for _, e := range entries {
		if len(b) > first {
			b = append(b, '.')
		}
		if b = append(b, e.Key...); e.Value != "" {
			b = append(append(b, '_'), e.Value...)
		}
	}
	return b
}

// ruleValue returns the value of entry e in the name of a rule without detailed_metric: what the rule file has, or
// with value_to_metric what the request has, unless all values share a threshold.
func ruleValue(r *rules.Rule, i int, e *rules.Entry) string {
	if r.Steps[i].ValueToMetric && r.Steps[i].Open {
		return e.Value
	}
	return patternOf(r.Entries[i], e.Key)
}

// isShared reports whether all values of a wildcard share the threshold of the rule.
func isShared(r *rules.Rule, i int) bool { return isWild(r.Entries[i]) && !r.Steps[i].Open }

func sharesThreshold(r *rules.Rule) bool {
	for i := range r.Entries {
		if isShared(r, i) {
			return true
		}
	}
	return false
}

func isWild(e rules.Entry) bool { return rules.IsWild(e.Value) || rules.IsWild(e.Key) }

// patternOf returns the value that the rule file gives a key. A descriptor of the file fits the key and the value of a
// request together; what the request's key leaves of it is the value.
func patternOf(e rules.Entry, key string) string {
	if e.Key == key && !rules.IsWild(key) {
		return e.Value
	}
	text := rules.JoinedKey(e)
	if text == key && !rules.IsWild(text) { // all of it is the key
		return ""
	}
	return strings.TrimPrefix(text, key+"_")
}

// KeepsMetadata reports whether envoyproxy/ratelimit answers with the metadata of a rule that a descriptor met. It
// loses that where statistics have another name than the rule, as with value_to_metric and wildcards in keys, and with
// detailed_metric where no descriptors are beneath the rule.
func KeepsMetadata(r *rules.Rule, entries []rules.Entry) bool {
	switch {
	case len(r.Metadata) == 0:
		return false
	case r.DetailedMetric:
		return r.Reference != nil && r.Reference.Parent
	}
	name := appendName(nil, &Hit{Domain: r.Domain, Entries: entries, Rule: r})
	return string(name) == r.ReferenceKey()
}

// hasOwnName reports whether the name of a rule is the same for all requests.
func hasOwnName(r *rules.Rule) bool {
	if r.DetailedMetric {
		return false
	}
	for i := range r.Entries {
		if rules.IsWild(r.Entries[i].Key) || r.Steps[i].ValueToMetric && r.Steps[i].Open {
			return false
		}
	}
	return true
}

// asInFile reports whether the keys of a descriptor are those of the rule that it met. A key and a value of the file
// may meet those of a request as one text, as "a_b" and "c" do "a" and "b_c".
func asInFile(h *Hit) bool {
	return slices.EqualFunc(h.Entries, h.Rule.Entries, func(a, b rules.Entry) bool { return a.Key == b.Key })
}

var (
	ipv4      = regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)
	delimiter = strings.NewReplacer(":", "_", "|", "_", "\n", "_")
)

// sanitize replaces what would break a statistic's name in two: statsd's delimiters, and the dots of addresses.
func sanitize(name string) string {
	return ipv4.ReplaceAllStringFunc(delimiter.Replace(name), func(ip string) string {
		return strings.ReplaceAll(ip, ".", "_")
	})
}
