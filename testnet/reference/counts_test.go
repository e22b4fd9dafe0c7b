package reference

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// unitLength are the lengths of windows by the names of their units.
var unitLength = map[string]time.Duration{
	"SECOND": time.Second, "MINUTE": time.Minute, "HOUR": time.Hour, "DAY": 24 * time.Hour, "WEEK": 7 * 24 * time.Hour,
	"MONTH": 30 * 24 * time.Hour, "YEAR": 365 * 24 * time.Hour,
}

// countKey is what the reference keeps a count by: the entries of a descriptor, and when its window begins.
type countKey struct {
	text  string
	begin int64
}

// count is what is known of the count of a key.
type count struct {
	units, limits []string // that it has been compared with
	usedUp        bool     // by one of them
	beside        bool     // asked for together with one that was used up
	shared        bool     // by windows of two lengths, or, where a denial stops increments, beside one that is
}

// counts remembers those of the reference while it answers one script.
type counts map[countKey]*count

// trace is what a comparison has to do with the counts of its descriptors.
type trace struct {
	sharedUnits bool // windows of two lengths count together, as they begin at the same time
	raised      bool // a limit was used up, and there is another one of the same count
	beside      bool // a count has been asked for together with one that was used up
}

// trace adds an exchange.
func (all counts) trace(c *comparison) (t trace) {
	asked, unitField, limitField, remainingField := c.request, "current_limit.unit", "current_limit.requests_per_unit",
		"limit_remaining"
	if c.http != nil {
		asked, unitField, limitField, remainingField = c.http.rateLimit, "currentLimit.unit",
			"currentLimit.requestsPerUnit", "limitRemaining"
	}
	var seenAll []*count
	usedUp, stops := false, c.has("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT")
	for i, d := range asked.GetDescriptors() {
		status := fmt.Sprintf("statuses[%d].", i)
		unit := c.theirs[status+unitField]
		length := int64(unitLength[unit] / time.Second)
		if length == 0 {
			continue
		}
		var text strings.Builder
		text.WriteString(asked.Domain)
		for _, e := range d.Entries {
			text.WriteString("_" + e.Key + "_" + e.Value)
		}
		key := countKey{text.String(), c.at.Unix() / length * length}
		if all[key] == nil {
			all[key] = new(count)
		}
		seen := all[key]
		seenAll, usedUp = append(seenAll, seen), usedUp || seen.usedUp
		seen.units = withOnce(seen.units, unit)
		seen.limits = withOnce(seen.limits, c.theirs[status+limitField])
		seen.shared = seen.shared || len(seen.units) > 1
		t.sharedUnits = t.sharedUnits || seen.shared
		t.raised = t.raised || seen.usedUp && len(seen.limits) > 1
		seen.usedUp = seen.usedUp || c.theirs[status+remainingField] == ""
	}
	for _, seen := range seenAll {
		seen.beside = seen.beside || usedUp && len(seenAll) > 1
		t.beside = t.beside || seen.beside
		seen.shared = seen.shared || stops && t.sharedUnits
	}
	return t
}

// withOnce is the list with an element, which it may have already.
func withOnce(list []string, element string) []string {
	if slices.Contains(list, element) {
		return list
	}
	return append(list, element)
}
