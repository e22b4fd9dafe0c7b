package ratelimit

import (
	"regexp"
	"strings"

	"github.com/edgelimit/edgelimit/node/rules"
)

// appendName appends the name under which a hit is counted, before sanitize: domain and entries, separated by dots.
func appendName(b []byte, h *Hit) []byte {
	b = append(b, h.Domain...)
	shares := h.Rule != nil && h.Rule.DetailedMetric && sharesThreshold(h.Rule)
	for i := range h.Entries {
		e := &h.Entries[i]
		b = append(append(b, '.'), e.Key...)
		value := e.Value
		switch {
		case h.Rule == nil || shares && !isShared(h.Rule, i):
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

// patternOf returns the value that the rule file gives a key. A wildcard in the key itself fits the key and the value
// of a request together; what the request's key leaves of it is the value.
func patternOf(e rules.Entry, key string) string {
	if !rules.IsWild(e.Key) {
		return e.Value
	}
	return strings.TrimPrefix(rules.JoinedKey(e), key+"_")
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
