package rulefile

import (
	"cmp"
	"math"
	"math/bits"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/text"
)

// MaxLimited is the maximum number of rules with a limit, of those with bans, and of those that export these, in a set:
// a table has room for the meters of two sets while one replaces the other, and for those of clients
// (counters.Debts).
const MaxLimited = 24 << 10

const day = 24 * time.Hour

// units are the windows with names.
var units = []struct {
	name   string
	window time.Duration
}{
	{"second", time.Second},
	{"minute", time.Minute},
	{"hour", time.Hour},
	{"day", day},
	{"week", 7 * day},
	{"month", 30 * day},
	{"year", 365 * day},
}

// unitNames are the names of the units.
var unitNames = func() (names []string) {
	for _, u := range units {
		names = append(names, u.name)
	}
	return names
}()

// algorithm reads the algorithm, with queue: true the queue; 0 after a problem.
func (p *parser) algorithm(f map[string]*yaml.Node) counters.Algorithm {
	a, queue := p.named(f["algorithm"]), p.flag(f, "queue")
	if mode := f["mode"]; a != 0 && mode != nil && mode.Value == "throttle" { // a queue with room before it
		if !rules.IsBucket(a) {
			p.add(mode, "mode: throttle is for a token_bucket or a leaky_bucket, and the algorithm is %s", a)
			return 0
		}
		return counters.LeakyQueue
	}
	switch {
	case !queue || a == 0:
		return a
	case a == counters.LeakyBucket:
		return counters.LeakyQueue
	}
	p.add(f["queue"], "queue is for a leaky_bucket, and the algorithm is %s", a)
	return 0
}

// named reads the name of an algorithm, the default if there is none.
func (p *parser) named(n *yaml.Node) counters.Algorithm {
	name, ok := p.opt.Algorithm, true
	if p.compatible {
		name = counters.FixedWindow.String()
	}
	if n != nil {
		name, ok = p.text(n, "algorithm")
	}
	switch {
	case !ok:
		return 0
	case name == "gcra":
		return counters.LeakyBucket
	case name == counters.LeakyQueue.String():
		p.add(n, "%s is written as algorithm: leaky_bucket with queue: true", name)
		return 0
	}
	a, ok := counters.ParseAlgorithm(name)
	if !ok {
		p.add(n, "%s", unknown("algorithm", name, "a rate_limit", algorithms))
	}
	return a
}

// limit reads a rule's limit with a number: the rule's own, or one of its schedule. margin is the part of the limit
// that a soft rule admits beyond that number. It returns nil after a problem.
func (p *parser) limit(src *source, fullName string, number *yaml.Node) (l *counters.Limit, margin uint64) {
	f, before := src.limit, p.found
	a, percent := p.algorithm(f), p.whole(f, "soft_percent", 0)
	if a != 0 && !rules.IsBucket(a) {
		p.refuse(f, "is for a token_bucket or a leaky_bucket, and the algorithm is "+a.String(), "burst", "refill")
	}
	if a != 0 && !p.flag(f, "queue") {
		p.refuse(f, "is for a queue: write queue: true", "max_wait")
	}
	var capacity, refill uint64
	var window time.Duration
	if f["refill"] != nil && (a == 0 || rules.IsBucket(a)) {
		capacity, refill, window = p.refilled(src, number)
	} else {
		capacity, refill, window = p.windowed(src, number)
	}
	if p.found > before {
		return nil, 0
	}
	margin = capacity * percent / 100
	if delay := p.duration(f["max_delay"], "max_delay"); delay > 0 {
		margin = refilledIn(delay, refill, window)
	}
	return p.build(src, counters.NewMeter(fullName, a, window), capacity+margin, refill), margin
}

// windowed reads a limit with a window, in which a bucket gets the number back.
func (p *parser) windowed(src *source, number *yaml.Node) (capacity, refill uint64, window time.Duration) {
	requests, window := p.requests(src, number), p.window(src)
	capacity = p.waiting(src.limit, requests, window, p.whole(src.limit, "burst", requests))
	// a schedule's 0 blocks, whatever the bucket holds at other times
	if requests == 0 && number != src.limit[src.max] {
		capacity = 0
	}
	return capacity, requests, window
}

// refilled reads a bucket with a refill, whose interval is its window.
func (p *parser) refilled(src *source, number *yaml.Node) (capacity, refill uint64, window time.Duration) {
	f := src.limit
	p.refuse(f, "and refill exclude each other: the refill already has amount and every", src.windows.names()...)
	switch {
	case f["burst"] == nil && f["max_wait"] == nil:
		capacity = p.requests(src, number)
	case number != nil:
		p.add(number, "%s is one too many: the capacity is the burst, or follows from max_wait", src.max)
	default:
		capacity = p.whole(f, "burst", 0)
	}
	r := p.fields(f["refill"], "a refill", refillKeys)
	for _, key := range refillKeys.names() {
		if r != nil && r[key] == nil {
			p.add(f["refill"], "a refill needs %s, as in {amount: 50, every: 24h}", key)
		}
	}
	refill, window = p.whole(r, "amount", 0), p.duration(r["every"], "every")
	return p.waiting(f, refill, window, capacity), refill, window
}

// waiting returns the capacity of a queue in which nobody waits for longer than max_wait, or else the given one.
func (p *parser) waiting(f map[string]*yaml.Node, refill uint64, window time.Duration, capacity uint64) uint64 {
	wait := p.duration(f["max_wait"], "max_wait")
	if wait <= 0 || window <= 0 {
		return capacity
	}
	p.refuse(f, "and max_wait exclude each other: remove one of them", "burst")
	return refilledIn(wait, refill, window) + 1
}

// refilledIn returns how much comes back into a bucket in a time.
func refilledIn(d time.Duration, refill uint64, window time.Duration) uint64 {
	hi, lo := bits.Mul64(refill, uint64(d))
	if hi >= uint64(window) {
		return counters.MaxLimit
	}
	n, _ := bits.Div64(hi, lo, uint64(window))
	return min(n, counters.MaxLimit)
}

// requests reads the number that may pass; 0 blocks.
func (p *parser) requests(src *source, number *yaml.Node) uint64 {
	if number == nil {
		p.add(src.node, "%s needs %s, or unlimited: true", src.what, src.max)
		return 0
	}
	return p.inRange(number, src.max)
}

// build makes the limit; refill is for buckets.
func (p *parser) build(src *source, m counters.Meter, capacity, refill uint64) *counters.Limit {
	f := src.limit
	if err := m.Validate(); err != nil {
		p.add(cmp.Or(f["refill"], f["window"], f["window_seconds"], src.node), "%v", err)
		return nil
	}
	c := counters.LimitConfig{Meter: m, Max: capacity}
	if rules.IsBucket(m.Algorithm) {
		if c.Refill = refill; refill == 0 && capacity > 0 {
			p.add(cmp.Or(f["refill"], f["burst"], f[src.max], src.node),
				"a bucket without a refill would stay empty for ever")
			return nil
		}
	}
	l, err := c.New()
	if err != nil {
		p.add(cmp.Or(f["refill"], f["burst"], f[src.max], src.node), "%v", err)
		return nil
	}
	return l
}

// window reads the window under the keys of the form.
func (p *parser) window(src *source) time.Duration {
	f := src.limit
	switch {
	case f["unit"] != nil && f["window"] != nil:
		p.add(f["window"], "unit and window exclude each other: remove one of them")
	case f["unit"] != nil:
		return p.unit(f["unit"])
	case f["window"] != nil:
		return p.duration(f["window"], "window")
	case f["window_seconds"] != nil:
		seconds := p.number(f["window_seconds"], "window_seconds", "number of seconds", counters.MaxWindow.Seconds())
		return time.Duration(math.Round(seconds * float64(time.Second)))
	default:
		p.add(src.node, "%s needs a %s, or unlimited: true", src.what, strings.Join(src.windows.names(), " or a "))
	}
	return 0
}

func (p *parser) unit(n *yaml.Node) time.Duration {
	s, ok := p.text(n, "unit")
	for _, u := range units {
		if strings.EqualFold(s, u.name) {
			return u.window
		}
	}
	if ok {
		p.add(n, "%s", unknown("unit", s, "a rate_limit", unitNames))
	}
	return 0
}

// duration reads a positive duration, 0 if it is missing.
func (p *parser) duration(n *yaml.Node, what string) time.Duration {
	s, ok := p.text(n, what)
	if n == nil || !ok {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		p.add(n, "%s %.32q is no duration: write it as 10s, 1m30s or 24h", what, s)
	} else if d <= 0 {
		p.add(n, "%s %v must be positive", what, text.Setting(d))
	}
	return d
}
