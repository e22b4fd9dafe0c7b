package rules

import (
	"slices"
)

// What is known at each place of a file. The schema (schema.json) says the same.
var (
	documentKeys   = []string{"domain", "descriptors"}
	descriptorKeys = slices.Concat([]string{"key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode", "detailed_metric",
		"value_to_metric", "share_threshold"}, ruleKeys)
	ruleKeys      = slices.Concat([]string{"metadata", "regions", "schedule", "ipv6_prefix"}, listKeys)
	listKeys      = []string{"allow", "deny"}
	rateLimitKeys = slices.Concat([]string{"name", "replaces", "unlimited", "parent"}, treeForm.limitKeys())
	flatKeys      = slices.Concat([]string{"rule_id", "unlimited", "shadow_mode"}, flatForm.limitKeys(), ruleKeys)
	sharedKeys    = []string{"algorithm", "burst", "refill", "queue"} // of limits in both forms
	policyKeys    = []string{"mode", "soft_percent", "max_pressure", "scope", "on_partition", "max_unsent", "consistency", "home_region",
		"on_failure", "ban", "count_rejected", "cost", "charge"}
	refillKeys   = []string{"amount", "every"}
	replacesKeys = []string{"name"}
	scheduleKeys = []string{"from", "to", "tz"} // and what the form calls the most
)

// form is what a limit's parts are called: in the tree, or in the flat form.
type form struct {
	what    string // where the keys stand
	most    string
	windows []string // the keys that tell the window, of which one is to be given
}

var (
	treeForm = &form{what: "a rate_limit", most: "requests_per_unit", windows: []string{"unit", "window"}}
	flatForm = &form{what: "a rule", most: "limit", windows: []string{"window_seconds"}}
)

// limitKeys are the keys of a limit, which what is unlimited has not.
func (fm *form) limitKeys() []string {
	return slices.Concat(fm.windows, []string{fm.most}, sharedKeys, policyKeys)
}
