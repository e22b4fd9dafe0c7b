package rules

import (
	"cmp"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/counters"
)

// algorithms are the names that a rule may give. A leaky bucket is a meter, or with queue: true a queue.
var algorithms = []string{"sliding_window", "fixed_window", "sliding_log", "token_bucket", "leaky_bucket", "gcra"}

// bucketKeys are the keys of a rate_limit that mean something for buckets only.
var bucketKeys = []string{"burst", "refill"}

// maxLimited is how many rules of a set may have a limit, so that a table has room for the meters of two sets while one takes the
// other's place.
const maxLimited = counters.MaxMeters / 2

// algorithm reads the algorithm, the default where there is none, and whether it is a queue.
func (p *parser) algorithm(f map[string]*yaml.Node) (a counters.Algorithm, ok bool) {
	a, ok = counters.SlidingWindow, true
	if n := f["algorithm"]; n != nil {
		var name string
		if name, ok = p.text(n, "algorithm"); ok {
			a, ok = p.named(n, name)
		}
	}
	queue, isBool := p.flag(f, "queue")
	switch {
	case !ok || !isBool:
		return 0, false
	case queue && a != counters.LeakyBucket:
		p.add(f["queue"], "queue is for a leaky_bucket, and the algorithm is %s", a)
		return 0, false
	case queue:
		a = counters.LeakyQueue
	}
	return a, true
}

func (p *parser) named(n *yaml.Node, name string) (counters.Algorithm, bool) {
	switch name {
	case "gcra":
		return counters.LeakyBucket, true
	case counters.LeakyQueue.String():
		p.add(n, "%s is written as algorithm: leaky_bucket with queue: true", name)
		return 0, false
	}
	a, ok := counters.ParseAlgorithm(name)
	if !ok {
		p.add(n, "%s", unknown("algorithm", name, "a rate_limit", algorithms))
	}
	return a, ok
}

func isBucket(a counters.Algorithm) bool {
	return a == counters.TokenBucket || a == counters.LeakyBucket || a == counters.LeakyQueue
}

// limit reads what may pass, and how that is told. It returns nil after a problem.
func (p *parser) limit(n *yaml.Node, f map[string]*yaml.Node, fullName string) *counters.Limit {
	if p.limited++; p.limited > maxLimited {
		p.stop(n, "there are more than %d rules with a limit", maxLimited)
		return nil
	}
	a, ok := p.algorithm(f)
	if ok && !isBucket(a) {
		for _, key := range bucketKeys {
			if f[key] != nil {
				p.add(f[key], "%s is for a token_bucket or a leaky_bucket, and the algorithm is %s", key, a)
				ok = false
			}
		}
	}
	if f["refill"] != nil && (isBucket(a) || a == 0) {
		return p.refilled(n, f, fullName, a, ok)
	}
	requests, requestsOK := p.requests(n, f["requests_per_unit"])
	window, windowOK := p.window(n, f)
	capacity, burstOK := requests, true
	if f["burst"] != nil {
		capacity, burstOK = p.amount(f["burst"], "burst")
	}
	if !ok || !requestsOK || !windowOK || !burstOK {
		return nil
	}
	return p.build(n, f, counters.NewMeter(fullName, a, window), capacity, requests)
}

// refilled reads a bucket that says how much comes back when: its window is the interval of its refill.
func (p *parser) refilled(n *yaml.Node, f map[string]*yaml.Node, fullName string, a counters.Algorithm, ok bool) *counters.Limit {
	for _, key := range []string{"unit", "window"} {
		if f[key] != nil {
			p.add(f[key], "%s and refill exclude each other: what comes back when is told by the refill's amount and every", key)
			ok = false
		}
	}
	capacity, capacityOK := uint64(0), false
	switch {
	case f["burst"] == nil:
		capacity, capacityOK = p.requests(n, f["requests_per_unit"])
	case f["requests_per_unit"] != nil:
		p.add(f["requests_per_unit"], "requests_per_unit, burst and refill are one too many: a bucket's capacity is its burst, or else its requests_per_unit")
	default:
		capacity, capacityOK = p.amount(f["burst"], "burst")
	}
	amount, every, refillOK := p.refill(f["refill"])
	if !ok || !capacityOK || !refillOK {
		return nil
	}
	return p.build(n, f, counters.NewMeter(fullName, a, every), capacity, amount)
}

// refill reads {amount: 50, every: 24h}.
func (p *parser) refill(n *yaml.Node) (amount uint64, every time.Duration, ok bool) {
	f, ok := p.fields(n, "a refill", refillKeys)
	if !ok {
		return 0, 0, false
	}
	for _, key := range refillKeys {
		if f[key] == nil {
			p.add(n, "a refill needs %s, as in {amount: 50, every: 24h}", key)
			ok = false
		}
	}
	amountOK, everyOK := true, true
	if f["amount"] != nil {
		amount, amountOK = p.amount(f["amount"], "amount")
	}
	if f["every"] != nil {
		every, everyOK = p.duration(f["every"], "every")
	}
	return amount, every, ok && amountOK && everyOK
}

// build makes the limit of what was read: of a bucket with its refill, which others have no use for.
func (p *parser) build(n *yaml.Node, f map[string]*yaml.Node, m counters.Meter, most, refill uint64) *counters.Limit {
	if err := m.Validate(); err != nil {
		p.add(cmp.Or(f["refill"], f["window"], n), "%v", err)
		return nil
	}
	var l *counters.Limit
	var err error
	if isBucket(m.Algorithm) {
		l, err = counters.NewBucket(m, most, refill)
	} else {
		l, err = counters.NewLimit(m, most)
	}
	if err != nil {
		p.add(cmp.Or(f["refill"], f["burst"], f["requests_per_unit"], n), "%v", err)
		return nil
	}
	return l
}
