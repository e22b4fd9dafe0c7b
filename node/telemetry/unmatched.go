package telemetry

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/node/limits"
	"github.com/edgelimit/edgelimit/node/rules"
)

// misses are the reasons why a request matches no rule.
var misses = [...]rules.Miss{rules.UnknownDomain, rules.UnknownKey, rules.NoRule}

// Unmatched counts the requests that match no rule at all and are allowed. Count is safe for concurrent use.
type Unmatched struct {
	log *slog.Logger

	reasons [len(misses)]struct {
		count  atomic.Uint64
		line   limits.OncePerMinute
		sample atomic.Pointer[unmatchedSample] // to be logged; nil: none
	}
}

// unmatchedSample is what may be logged of a request: no values, which name clients.
type unmatchedSample struct {
	domain, keys string
	each         []string // of the keys
}

// Count counts a request that matches none of the rules at the time now. It keeps one a minute of each reason for the
// log.
func (u *Unmatched) Count(set *rules.Set, req *rules.Request, now int64) {
	r := &u.reasons[set.Miss(req)]
	r.count.Add(1)
	if r.line.Due(time.Unix(0, now)) {
		r.sample.Store(newSample(req))
	}
}

// newSample copies the beginning of a request's domain and keys.
func newSample(req *rules.Request) *unmatchedSample {
	const maxShown = 4
	sample := &unmatchedSample{domain: truncated(req.Domain)}
	join := func(shown []string, all int) string {
		if all > maxShown {
			shown = append(shown, "...")
		}
		return strings.Join(shown, ", ")
	}
	var descriptors []string
	for _, entries := range req.Descriptors[:min(len(req.Descriptors), maxShown)] {
		var keys []string
		for i := range entries[:min(len(entries), maxShown)] {
			keys = append(keys, truncated(entries[i].Key))
		}
		sample.each = append(sample.each, keys...)
		descriptors = append(descriptors, "("+join(keys, len(entries))+")")
	}
	sample.keys = join(descriptors, len(req.Descriptors))
	return sample
}

// truncated copies the beginning of a text.
func truncated(text string) string {
	const maxText = 64
	if len(text) <= maxText {
		return strings.Clone(text)
	}
	return text[:maxText] + "..."
}

// nearest returns the first key of a rule that one of the sample's keys may be a misspelling of.
func (s *unmatchedSample) nearest(set *rules.Set) string {
	for _, key := range s.each {
		if near := set.NearestKey(s.domain, key); near != "" {
			return near
		}
	}
	return ""
}

// logSamples logs one sample of each reason, if there is one.
func (u *Unmatched) logSamples(set *rules.Set) {
	for _, miss := range misses {
		r := &u.reasons[miss]
		s := r.sample.Swap(nil)
		if s == nil {
			continue
		}
		switch log := u.log.With("domain", s.domain, "keys", s.keys, "requests", r.count.Load()); miss {
		case rules.UnknownDomain:
			log.Warn("a request names a domain that no rule is in, and is allowed",
				"did_you_mean", set.NearestDomain(s.domain))
		case rules.UnknownKey:
			log.Warn("a request has keys that no rule has, and is allowed", "did_you_mean", s.nearest(set))
		default: // often intended: only some values have a limit
			log.Debug("a request meets no rule by its values, and is allowed")
		}
	}
}
