package node

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/node/text"
	"github.com/edgelimit/edgelimit/regions/strict"
)

// Strict says which Redis decides on strict rules, and how long a request waits for it.
type Strict struct {
	// MinTimeout and MaxTimeout are the shortest and the longest time that a request waits for a Redis: between them,
	// four times what 99 % of its last answers took. Then on_failure decides. 250ms to 10s.
	MinTimeout time.Duration `yaml:"min_timeout"`
	MaxTimeout time.Duration `yaml:"max_timeout"`
	// Redis is the Redis of each region that is a home_region of rules, without MinFill and MinWindow. All nodes may
	// have the same: for its own region, a node uses Config.Redis if there is one.
	Redis map[string]Redis `yaml:"redis"`
}

// minStrictTimeout is less than what a healthy Redis and a busy machine may take together at times.
const minStrictTimeout = 250 * time.Millisecond

func defaultStrict() Strict {
	return Strict{MinTimeout: minStrictTimeout, MaxTimeout: 2 * time.Second, Redis: map[string]Redis{}}
}

// strictSetting names the settings of a region's Redis.
func strictSetting(region string) string { return fmt.Sprintf("strict.redis.%.32s", region) }

func (c *Config) validateStrict(check func(ok bool, format string, args ...any)) {
	least, most := c.Strict.MinTimeout, c.Strict.MaxTimeout
	check(least >= minStrictTimeout && least <= 10*time.Second, "strict.min_timeout: %v, want 250ms to 10s",
		text.Setting(least))
	check(most >= least && most <= 10*time.Second, "strict.max_timeout: %v, want strict.min_timeout (%v) to 10s",
		text.Setting(most),
		text.Setting(least))
	for _, region := range slices.Sorted(maps.Keys(c.Strict.Redis)) {
		r, setting := c.Strict.Redis[region], strictSetting(region)
		check(region != "" && len(region) <= counters.MaxRegion,
			"strict.redis: region %.32q: want a name of 1 to %d bytes", region, counters.MaxRegion)
		check(r.MinFill == 0 && r.MinWindow == 0, "%s: min_fill and min_window are for what approximate rules count, "+
			"in redis: leave them out", setting)
		if r.URL == "" {
			check(false, "%s.url is missing: want redis://host:port", setting)
			continue
		}
		r.validateServer(setting, setting+".url", check)
		check(c.Gossip.KeyFile != "" || !r.BeyondLoopback(), needsKeyFile, setting)
	}
}

// strictRedis returns the Redis that decides on strict rules of a home region, and its setting; ok is false for none.
func (c *Config) strictRedis(region string) (r Redis, setting string, ok bool) {
	if region == c.Region && c.Redis.URL != "" {
		return c.Redis, "redis", true
	}
	r, ok = c.Strict.Redis[region]
	return r, strictSetting(region), ok
}

// strictRegions returns the regions whose Redis the node knows, its own first.
func (c *Config) strictRegions() []string {
	known := []string{}
	if _, _, ok := c.strictRedis(c.Region); ok {
		known = append(known, c.Region)
	}
	for _, region := range slices.Sorted(maps.Keys(c.Strict.Redis)) {
		if region != c.Region {
			known = append(known, region)
		}
	}
	return known
}

// RuleStores returns the stores of strict rules that the node knows, for the reader of rule files.
func (c *Config) RuleStores() *rulefile.Stores {
	return &rulefile.Stores{Region: c.Region, Known: c.strictRegions(), Check: strict.Check}
}

// unknownStores warns of strict rules whose Redis the node does not know: rule files that have one are refused, but
// programs may set any rules.
func (l *linter) unknownStores() {
	known := l.cfg.strictRegions()
	var names []string
	for _, r := range l.set.Rules() {
		if r.Strict && r.Limit != nil && !slices.Contains(known, r.Home(l.cfg.Region)) &&
			rules.AppliesIn(r.Regions, l.cfg.Region) {
			names = append(names, r.Name)
		}
	}
	if len(names) > 0 {
		hint := l.cfg.RuleSet == nil && len(l.cfg.Rules) == 0 // nobody has said which node the rules are for
		l.warn(hint, names, "rule %s%s is strict, and this node does not know the Redis that decides: on_failure "+
			"does; set redis.url or strict.redis", names[0], more(" (and %d more)", names))
	}
}
