package reference

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// known is a difference that stays, and why.
type known struct {
	name         string
	theirs, ours string // what each does, for the page
	reason       string
	later        bool // later versions of the reference do as edgelimit does
	matches      func(c *comparison, d difference) bool
}

const laterVersions = "as in later versions of it (July 2026)"

// differences are all that are known. Each is seen in some scripted exchange, and nothing else differs.
var differences = []known{
	{
		name:   "a limit in a descriptor, of unit UNKNOWN, where the domain is known",
		theirs: "the process exits", ours: "UNKNOWN, at `/json` 400",
		reason: "one request must not end the service for all",
		matches: func(c *comparison, _ difference) bool {
			return c.about("unknown units") && strings.Contains("Unavailable no answer", c.theirs["status code"])
		},
	},
	{
		name:   "`isNegativeHits` and `unitMultiplier` at `/json`",
		theirs: "400: it does not know the fields, and ignores them by gRPC", ours: "ignored",
		reason: "a later version of the protocol; what it refuses is not charged there",
		matches: func(c *comparison, _ difference) bool {
			return c.http != nil && (c.about("negative hits") || c.about("unit multipliers"))
		},
	},
	{
		name: "a limit in a descriptor, of another unit than its rule",
		theirs: "counts together with the rule while a window of each begins at the same time, as that of an hour " +
			"and that of a day from 0:00 to 1:00 UTC",
		ours:    "counts by itself",
		reason:  "the one would use up the other, for some seconds or days",
		matches: func(c *comparison, _ difference) bool { return c.trace.sharedUnits },
	},
	{
		name:   "two rules for bare keys, and requests that read the same, as `part`=`a_b` and `part_a`=`b`",
		theirs: "count together, if the units are the same",
		ours:   "count by themselves",
		reason: "the one client would use up the other's limit",
		matches: func(c *comparison, d difference) bool {
			return c.about("keys that read the same") || c.about("statistics") && partOfKey.MatchString(d.field)
		},
	},
	{
		name:   "a quota that is used up (`quota_mode`, `QUOTA_MODE`)",
		theirs: "its status is OK without `duration_until_reset`, and so is the whole",
		ours:   "its status is OVER_LIMIT, and so is the whole if all its quotas are used up",
		reason: laterVersions, later: true, matches: aboutQuota,
	},
	{
		name:   "`dynamic_metadata`",
		theirs: "`quotaModeEnabled`, `quotaModeViolations`", ours: "neither",
		reason: laterVersions, later: true,
		matches: func(c *comparison, d difference) bool { return strings.Contains(d.field, "quotaMode") },
	},
	{
		name:   "`dynamic_metadata` of a limit with a `unit_multiplier`",
		theirs: "the number of the field, which it does not know", ours: "its name",
		reason: "a later version of the protocol",
		matches: func(c *comparison, d difference) bool {
			return c.about("unit multipliers") && strings.Contains(d.theirs, ` 3:"`)
		},
	},
	{
		name:   "`grpc.health.v1` for `envoy.service.ratelimit.v3.RateLimitService`",
		theirs: "NOT_FOUND", ours: "SERVING, as for `ratelimit`",
		reason: "clients that balance by health ask for the name of the service",
		matches: func(c *comparison, d difference) bool {
			return c.about("health") && strings.HasPrefix(c.health, "envoy.")
		},
	},
	{
		name:   "`LOCAL_CACHE_SIZE_IN_BYTES`, and a limit in a descriptor above one that is used up",
		theirs: "stays OVER_LIMIT until the window ends, and is not counted", ours: "is compared with the count",
		reason:  "as there without a local cache; all counts are in memory here",
		matches: func(c *comparison, _ difference) bool { return c.trace.raised && c.hasLocalCache() },
	},
	{
		name: "`LOCAL_CACHE_SIZE_IN_BYTES` with `STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT`, beside a descriptor whose " +
			"limit is used up",
		theirs: "the others are not compared with their limits", ours: "they are",
		reason: "as there without a local cache",
		matches: func(c *comparison, _ difference) bool {
			return c.trace.beside && c.hasLocalCache() && c.has("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT")
		},
	},
	{
		name:   "`over_limit_with_local_cache`",
		theirs: "hits that its local cache denied, which count nowhere else", ours: "0",
		reason: "there is no local cache: all counts are in memory",
		matches: func(c *comparison, d difference) bool {
			return c.about("statistics") && c.hasLocalCache() && localCache.MatchString(d.field)
		},
	},
	{
		name:   "statistics with a name of more than 1024 bytes, as of an unknown domain",
		theirs: "as long as they come", ours: "none; `hits_without_name`",
		reason: "a line of statsd has to fit a packet",
		matches: func(c *comparison, d difference) bool {
			return c.about("statistics") && (len(d.field) > 1024 || strings.HasSuffix(d.field, ".hits_without_name"))
		},
	},
	{
		name:   "hits beyond 2^63 in one window",
		theirs: "UNKNOWN, at `/json` 400, and `redis_error`",
		ours: "UNKNOWN for one addend of so many, with another text, and nothing is charged; else OVER_LIMIT; " +
			"statistics end at 2^48",
		reason: "an error of Redis' arithmetic, which Envoy lets pass by default",
		matches: func(c *comparison, d difference) bool {
			failed := func(a answer) bool { return a["status code"] == "Unknown" || a["status code"] == "400" }
			return c.about("huge addends") && (failed(c.theirs) || failed(c.ours)) ||
				c.about("statistics") && huge.MatchString(d.field)
		},
	},
	{
		name:   "more than 64 KiB at `/json`",
		theirs: "any length", ours: "413",
		reason:  "nobody fills the node",
		matches: func(c *comparison, _ difference) bool { return c.about("long JSON") },
	},
	{
		name:   "paths at which nothing is served",
		theirs: "404, and a line of text", ours: "404, and a problem document that names the nearest paths",
		reason:  "only people read it",
		matches: func(c *comparison, d difference) bool { return c.about("no such path") && d.field != "status code" },
	},
}

// huge are counters that the group of huge addends moves.
var huge = regexp.MustCompile(`\.(edge\.(huge|largest)\.\w+|redis_error|global_shadow_mode)$`)

// partOfKey are counters of keys that read the same.
var partOfKey = regexp.MustCompile(`\.edge\.part(_a)?\.(within|near|over)_limit$`)

// localCache are counters that differ by the local cache: what it denies, it does not count, so that an override finds
// more room later, and what is asked for beside it is within its limit.
var localCache = regexp.MustCompile(`over_limit_with_local_cache$|\.edge\.client(_o\d)?\.(within|over|near)_limit$`)

func (s *setting) hasLocalCache() bool { return s.has("LOCAL_CACHE_SIZE_IN_BYTES") }

// has reports whether a variable is set.
func (s *setting) has(variable string) bool {
	return slices.ContainsFunc(s.env, func(v string) bool { return strings.HasPrefix(v, variable+"=") })
}

// quotaFull reports whether the reference answered that a quota is used up: it alone has a limit and no time until it
// is there again.
func (c *comparison) quotaFull(status string) bool {
	limit, reset := "current_limit.unit", "duration_until_reset.seconds"
	if c.http != nil {
		limit, reset = "currentLimit.unit", "durationUntilReset"
	}
	return c.theirs[status+limit] != "" && c.theirs[status+reset] == ""
}

// aboutQuota reports whether a difference is one of a quota that is used up: in its status, or in the overall code.
func aboutQuota(c *comparison, d difference) bool {
	if status := statusField.FindStringSubmatch(d.field); status != nil {
		return c.quotaFull(status[1])
	}
	if d.field != "overall_code" && d.field != "overallCode" && d.field != "status code" {
		return false
	}
	for i := range c.theirs.statuses() {
		if c.quotaFull(fmt.Sprintf("statuses[%d].", i)) {
			return true
		}
	}
	return false
}

var statusField = regexp.MustCompile(`^(statuses\[\d+\]\.)(code|duration_until_reset\.seconds|durationUntilReset)$`)

// statuses returns how many there are.
func (a answer) statuses() (n int) {
	for a[fmt.Sprintf("statuses[%d].code", n)] != "" {
		n++
	}
	return n
}

// about reports whether the exchange is one of a group.
func (c *comparison) about(group string) bool {
	return c.exchange.name == group || c.exchange.name == "json "+group
}

// knownFor returns which of them a difference is, or -1.
func knownFor(c *comparison, d difference) int {
	for i := range differences {
		if differences[i].matches(c, d) {
			return i
		}
	}
	return -1
}
