package proxy

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/answer"
)

// families are the beginnings of fields with a limit, what remains of it, and when it is reset.
var families = []string{"X-Ratelimit-", "Ratelimit-", "X-Rate-Limit-"}

const (
	limitField  = "Ratelimit" // and Ratelimit-Policy: lists, see answer.Draft11
	policyField = "Ratelimit-Policy"
)

// addHeaders writes the headers of the decisions to a response of an upstream. Where that reports limits of its own,
// the client sees the tighter ones: the lists have both, and a family of single numbers is that of the side with less
// remaining.
func (x *exchange) addHeaders(h http.Header) {
	if !reportsLimits(h) {
		x.headersOf(h)
		return
	}
	var room [8]answer.Field
	fields, _ := x.proxy.headers.Append(room[:0], x.layers)
	if len(fields) == 0 {
		return
	}
	ours := make(map[string]string, len(fields))
	for _, f := range fields {
		ours[f.Name] = f.Value
	}
	governing := &x.layers[counters.Governing(x.layers)]
	if ours[limitField] != "" {
		combineLists(h, ours, governing.Remaining)
	}
	for _, family := range families {
		combineNumbers(h, ours, family, governing)
	}
}

// reportsLimits reports whether an upstream's response has limits of its own.
func reportsLimits(h http.Header) bool {
	if h[limitField] != nil || h[policyField] != nil {
		return true
	}
	return slices.ContainsFunc(families, func(family string) bool { return h[family+"Remaining"] != nil })
}

// combineNumbers leaves the upstream's numbers of a family if it has as little remaining as we, and replaces them
// otherwise.
func combineNumbers(h http.Header, ours map[string]string, family string, g *counters.Decision) {
	theirs, found := least(h[family+"Remaining"], "")
	if found && theirs <= g.Remaining || h[family+"Remaining"] == nil && ours[family+"Remaining"] == "" {
		return
	}
	reset := ours["X-Ratelimit-Reset"] // as the configuration wants it, or else in seconds from now
	if reset == "" {
		reset = strconv.FormatInt(answer.RoundUp(g.ResetAfter, time.Second), 10)
	}
	h[family+"Limit"] = []string{strconv.FormatUint(g.Limit, 10)}
	h[family+"Remaining"] = []string{strconv.FormatUint(g.Remaining, 10)}
	h[family+"Reset"] = []string{reset}
}

// combineLists appends our policies and limits to the upstream's. Earlier drafts have a dictionary in place of the
// list, to which nothing can be appended: then the side with less remaining is left.
func combineLists(h http.Header, ours map[string]string, remaining uint64) {
	theirs := strings.TrimLeft(strings.Join(h[limitField], ", "), " \t")
	if theirs != "" && theirs[0] != '"' {
		if left, found := least([]string{theirs}, "remaining="); found && left <= remaining {
			return
		}
		theirs = ""
		delete(h, policyField)
	}
	theirLimits, ourLimits := items(theirs), items(ours[limitField])
	first := kept(theirLimits, ourLimits, func(mine, other uint64) bool { return mine < other })
	then := kept(ourLimits, theirLimits, func(mine, other uint64) bool { return mine <= other })
	theirPolicies := without(items(strings.Join(h[policyField], ", ")), theirLimits, first)
	ourPolicies := without(items(ours[policyField]), ourLimits, then)
	if len(first) == 0 || len(then) > 0 && then[0].remaining < first[0].remaining { // the tightest is first
		first, then, theirPolicies, ourPolicies = then, first, ourPolicies, theirPolicies
	}
	h[limitField] = []string{join(first, then)}
	h[policyField] = []string{join(theirPolicies, ourPolicies)}
}

// kept returns those of own that the others do not have, or that win against what remains there.
func kept(own, others []item, wins func(mine, other uint64) bool) (kept []item) {
	remaining := byName(others)
	for _, it := range own {
		if other, ok := remaining[it.name]; !ok || wins(it.remaining, other) {
			kept = append(kept, it)
		}
	}
	return kept
}

// without returns the policies whose limit is not among those that were dropped.
func without(policies, limits, kept []item) []item {
	had, has := byName(limits), byName(kept)
	return slices.DeleteFunc(policies, func(p item) bool {
		_, before := had[p.name]
		_, after := has[p.name]
		return before && !after
	})
}

// byName returns what remains of the first item of each name.
func byName(all []item) map[string]uint64 {
	remaining := make(map[string]uint64, len(all))
	for _, it := range all {
		if _, ok := remaining[it.name]; !ok {
			remaining[it.name] = it.remaining
		}
	}
	return remaining
}

// item is a member of a list of Strings with parameters (RFC 9651).
type item struct {
	name, text string // the name in quotes; all of it
	remaining  uint64 // its parameter r, or more than anybody has
}

// items splits a list. What is no item is left out, as a parser would fail on all of the list.
func items(list string) (all []item) {
	for list != "" {
		list = strings.TrimLeft(list, " \t,")
		end, quoted := 0, false
		for ; end < len(list) && (quoted || list[end] != ','); end++ {
			switch {
			case quoted && list[end] == '\\':
				end++
			case list[end] == '"':
				quoted = !quoted
			}
		}
		end = min(end, len(list))
		text := strings.TrimRight(list[:end], " \t")
		list = list[end:]
		if text == "" || text[0] != '"' || quoted {
			continue
		}
		closing := strings.LastIndexByte(text, '"')
		it := item{name: text[:closing+1], text: text, remaining: math.MaxUint64}
		if n, found := least(strings.Split(text[closing+1:], ";"), "r="); found {
			it.remaining = n
		}
		all = append(all, it)
	}
	return all
}

func join(lists ...[]item) string {
	var texts []string
	for _, list := range lists {
		for _, it := range list {
			texts = append(texts, it.text)
		}
	}
	return strings.Join(texts, ", ")
}

// least returns the smallest number that follows the prefix at the beginning of a member of the lists.
func least(lists []string, prefix string) (n uint64, found bool) {
	for _, list := range lists {
		for member := range strings.SplitSeq(list, ",") {
			digits, ok := strings.CutPrefix(strings.Trim(member, " \t"), prefix)
			if i := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
				digits = digits[:i]
			}
			if v, err := strconv.ParseUint(digits, 10, 64); ok && err == nil && (!found || v < n) {
				n, found = v, true
			}
		}
	}
	return n, found
}
