package rulefile

import (
	"slices"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// The tables in this file define the keys at each place of a rule file. The parser, its suggestions for misspelt keys
// and the JSON Schema all use them.

// key is a key of a rule file, with the JSON Schema of its value.
type key struct {
	name, doc string
	value     object
}

type keys []key

func (ks keys) names() []string {
	names := make([]string, len(ks))
	for i, k := range ks {
		names[i] = k.name
	}
	return names
}

func (ks keys) has(name string) bool {
	return slices.ContainsFunc(ks, func(k key) bool { return k.name == name })
}

// form names the parts of a limit: in the tree, or in the flat form.
type form struct {
	what    string // where the keys stand
	max     string // the key of the number that may pass
	windows keys   // of which a limit gives one
}

var (
	treeForm = &form{"a rate_limit", "requests_per_unit", keys{
		{"unit", "The window: a month has 30 days, a year 365.", unitSchema()},
		{"window", "Any window, as in 500ms, 10s, 1m30s or 24h.", durationSchema},
	}}
	flatForm = &form{"a rule", "limit", keys{{
		"window_seconds", "The window in seconds, which need not be whole.",
		object{"type": "number", "exclusiveMinimum": 0, "maximum": counters.MaxWindow.Seconds()},
	}}}
)

// limitKeys returns the keys of a limit, none of which an unlimited rule may have but for the number.
func (fm *form) limitKeys() keys {
	number := keys{{fm.max, "The cost that may pass in any window; 0 blocks.", integer(fm.max)}}
	return slices.Concat(fm.windows, number, bucketKeys, policyKeys)
}

// scheduleKeys returns the keys of an entry of a schedule.
func (fm *form) scheduleKeys() keys {
	return keys{
		{"from", "", ref("clock")},
		{"to", "", ref("clock")},
		{"tz", "A time zone, as in Europe/Paris; by default UTC.", object{"type": "string"}},
		{fm.max, "The number at that time; 0 blocks.", integer(fm.max)},
	}
}

// ruleKeys returns the keys that stand beside a limit in both forms.
func (fm *form) ruleKeys() keys {
	schedule := listOf(closed(fm.scheduleKeys(), "from", "to", fm.max))
	return keys{
		{"metadata", "Anything, for others to read.", object{"type": list{"object", "null"}}},
		{"regions", "Only there is it in force.", object{"type": "array", "minItems": 1, "items": ref("text")}},
		{"schedule", "Another number at some times of the day.", schedule},
		{"ipv4_prefix", "How many bits of an IPv4 address tell one client from another.", integer("ipv4_prefix")},
		{"ipv6_prefix", "How many bits of an IPv6 address tell one client from another.", integer("ipv6_prefix")},
		{"allow", "", ref("addresses")},
		{"deny", "", ref("addresses")},
	}
}

// fromPattern is how a source is written: as in requests.descriptors of the configuration.
const fromPattern = `^(client|client_cert|method|host|path|(header|cookie|query|jwt) \S+|` +
	`template /(.*/)?\{[^{}/]+\}(/[^{}]*)?)$`

var (
	flag      = object{"type": "boolean"}
	unlimited = key{"unlimited", "No limit.", flag}
	shadow    = key{"shadow_mode", "Count, and deny nothing.", flag}
	inMetric  = "Statistics with envoyproxy/ratelimit's names have the values of requests in them."

	documentKeys = keys{
		{"domain", "The name of the domain.", ref("name")}, {"descriptors", "", ref("descriptors")},
		{"compatibility", "ratelimit: the domain is read, and counts, as in envoyproxy/ratelimit. none, or nothing: " +
			"as this schema says.", object{"enum": list{Ratelimit, "none", "", nil}}},
	}
	descriptorKeys = slices.Concat(keys{
		{"key", "The key of an entry of a request's descriptor.",
			object{"allOf": list{ref("name"), object{"pattern": "^[^*]*$"}}}},
		{"value", "Its value, in which * stands for anything; without it every value is counted by itself.",
			object{"anyOf": list{ref("text"), object{"type": "null"}}}},
		{"secret", "Its values are secrets: # and four digits of a hash stand for them wherever people see them.",
			flag},
		{"from", "Where /v1/auth, the reverse proxy and the middleware have the key's value from, in all of the " +
			"domain: client, path, header NAME, cookie NAME, query NAME, jwt CLAIM, template PATH and the others of " +
			"requests.descriptors.", object{"type": "string", "pattern": fromPattern}},
		{"rate_limit", "", ref("rate_limit")},
		{"descriptors", "", ref("descriptors")},
		shadow,
		{"quota_mode", "Deny only when all rules of this mode that a request meets are full.", flag},
		{"detailed_metric", inMetric, flag},
		{"value_to_metric", inMetric, flag},
		{"share_threshold", "All values that fit the wildcard share one count.", flag},
	}, treeForm.ruleKeys())
	rateLimitKeys = slices.Concat(keys{
		{"name", "What responses call the rule.", ref("text")},
		{"replaces", "Names of rules that do not count where a request meets this one as well.",
			listOf(closed(replacesKeys, "name"))},
		unlimited,
		{"parent", "The name of the rule that an elastic one borrows from, in the same domain.", ref("name")},
	}, treeForm.limitKeys())
	replacesKeys = keys{{"name", "", ref("name")}}
	flatKeys     = slices.Concat(keys{
		{"rule_id", "The name of the rule.", ref("name")}, unlimited, shadow,
	}, flatForm.limitKeys(), flatForm.ruleKeys())
	refillKeys = keys{
		{"amount", "How much.", integer("amount")},
		{"every", "In how long, a little at a time.", durationSchema},
	}
	chargeOnKeys = keys{{"status", "Statuses, as 403, and classes of them, as 4xx.",
		object{"type": "array", "minItems": 1, "items": object{"anyOf": list{
			object{"type": "integer", "minimum": 100, "maximum": 599},
			object{"type": "string", "pattern": "^([1-5]xx|[1-5][0-9][0-9])$"},
		}}}}}
	bucketKeys = keys{
		{"algorithm", "How requests are counted. The default is sliding_window, unless the node's default_algorithm " +
			"says otherwise.", object{"enum": algorithms}},
		{"burst", "What a bucket holds; by default as much as comes back in a window.", integer("burst")},
		{"refill", "", ref("refill")},
		{"queue", "A leaky_bucket whose admitted requests wait for their turn.", flag},
		{"max_wait", "The longest wait in a queue, in place of burst.", durationSchema},
	}
	policyKeys = keys{
		{"mode", "soft admits soft_percent more, marked as over the limit. throttle holds back what is over the " +
			"limit, for up to max_delay. elastic borrows what its parent has left, or admits more while the pressure " +
			"is low.", words("mode")},
		{"max_delay", "How long a throttled request is held back at most.", durationSchema},
		{"soft_percent", "How much more than the limit a soft rule admits.", integer("soft_percent")},
		{"max_pressure", "Up to which reported pressure an elastic rule without a parent lets more pass; by default " +
			"0.5.", object{"type": "number", "exclusiveMinimum": 0, "maximum": 1}},
		{"scope", "Who counts requests together: all nodes, those of each region, or each node alone.", words("scope")},
		{"on_partition", "What each side of a partition does: it admits its part of the limit, all of it, or nothing.",
			words("on_partition")},
		{"max_unsent", "The admitted cost after which a node sends its counts early.", integer("max_unsent")},
		{"consistency", "strict: each request is decided by a Redis that all nodes share, and the limit is never " +
			"exceeded. approximate: by each node at once, within a bound.", words("consistency")},
		{"home_region", "The region whose Redis decides, of a strict rule of scope global.", ref("name")},
		{"lease", "How many permits a node takes at a time from a strict rule, to decide on them by itself.",
			integer("lease")},
		{"on_failure", "What happens while the node reaches no more than half of those that share the limit, or not " +
			"the store of a strict rule: it decides by what it knows, everything is admitted, or denied. Strict " +
			"rules are closed by default.",
			words("on_failure")},
		{"ban", "How long to deny an identity everything after a denial, in whole milliseconds.",
			durationSchema},
		{"export", "address: bans keep the clear address of whom they ban, for the exports of bans. It travels to " +
			"other nodes and to Redis.", words("export")},
		{"expose", "identity: operators see in clear whom the rule denies most, on the node that denied.",
			words("expose")},
		{"count_rejected", "Whether requests that are denied count as well; of windows and logs.", flag},
		{"cost", "What each unit of a request's cost is charged.", integer("cost")},
		{"charge_on", "Charge responses of these statuses, in place of requests.", closed(chargeOnKeys, "status")},
		{"cost_from", "Charge what a response costs, in place of requests: the bytes of its body, its milliseconds, " +
			"or the number in a header of it.", object{"type": "string",
			"pattern": "^(response_bytes|duration|header [!#$%&'*+.^_`|~0-9A-Za-z-]+)$"}},
		{"charge", "all: a request is charged only if all its layers admit it. each: this rule charges what it " +
			"admits, whatever the others say.", words("charge")},
		{"overdraw", "charge: a charge of more than is left, and of more than 1, is denied and counts, up to twice " +
			"the limit. deny: it does not count.", words("overdraw")},
	}
)

// algorithms are the names that a rule may give. A leaky bucket is a meter, or with queue: true a queue.
var algorithms = []string{"sliding_window", "fixed_window", "sliding_log", "token_bucket", "leaky_bucket", "gcra"}

// choices are the words that a key may be given, the default first.
var choices = map[string][]string{
	"mode":         {"hard", "soft", "elastic", "throttle"},
	"scope":        {"global", "region", "node"},
	"on_partition": {"share", "local", "deny"},
	"consistency":  {"approximate", "strict"},
	"on_failure":   {"local", "open", "closed"},
	"charge":       {"all", "each"},
	"export":       {"none", "address"},
	"expose":       {"none", "identity"},
	"overdraw":     {"deny", "charge"},
}

// ranges are the numbers that a key may be given.
var ranges = map[string]struct{ min, max uint64 }{
	"requests_per_unit": {0, counters.MaxLimit},
	"limit":             {0, counters.MaxLimit},
	"burst":             {1, counters.MaxLimit},
	"amount":            {1, counters.MaxLimit},
	"max_unsent":        {1, counters.MaxLimit},
	"soft_percent":      {1, 1000},
	"lease":             {0, rules.MaxLease},
	"cost":              {1, 1 << 20}, // a product with any request's cost still fits
	"ipv4_prefix":       {1, 32},
	"ipv6_prefix":       {1, 128},
}
