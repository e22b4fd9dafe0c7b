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

// MaxLimited is how many rules of a set may have a limit, and bans, so that a table has room for the meters of two sets while one takes the
// other's place, and for those that clients make (respapi.MaxLimits).
const MaxLimited = 3 << 10

// algorithm reads the algorithm, the default where there is none, and whether it is a queue.
func (p *parser) algorithm(f map[string]*yaml.Node) (a counters.Algorithm, ok bool) {
	name, n := p.opt.Algorithm, f["algorithm"]
	ok = true
	if n != nil {
		name, ok = p.text(n, "algorithm")
	}
	if ok {
		a, ok = p.named(n, name)
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

// limit reads what may pass, which is most or a part of it, and how that is told. How much of the limit is margin is what a soft rule
// admits beyond. It returns nil after a problem.
func (p *parser) limit(src *source, fullName string, most *yaml.Node) (l *counters.Limit, margin uint64) {
	f := src.limit
	a, ok := p.algorithm(f)
	if ok && !isBucket(a) {
		for _, key := range bucketKeys {
			if f[key] != nil {
				p.add(f[key], "%s is for a token_bucket or a leaky_bucket, and the algorithm is %s", key, a)
				ok = false
			}
		}
	}
	var capacity, refill uint64
	var window time.Duration
	var readOK bool
	if f["refill"] != nil && (isBucket(a) || a == 0) {
		capacity, refill, window, readOK = p.refilled(src, most)
	} else {
		capacity, refill, window, readOK = p.windowed(src, most)
	}
	if !ok || !readOK {
		return nil, 0
	}
	margin = softMargin(f, capacity)
	return p.build(src, counters.NewMeter(fullName, a, window), capacity+margin, refill), margin
}

// windowed reads a limit by window; a bucket gets back in each what may pass in it.
func (p *parser) windowed(src *source, most *yaml.Node) (capacity, refill uint64, window time.Duration, ok bool) {
	requests, requestsOK := p.requests(src, most)
	window, windowOK := p.window(src)
	capacity, burstOK := requests, true
	if burst := src.limit["burst"]; burst != nil {
		capacity, burstOK = p.amount(burst, "burst")
	}
	if requests == 0 && most != src.limit[src.most] { // a part of a schedule blocks, whatever the bucket holds at other times
		capacity = 0
	}
	return capacity, requests, window, requestsOK && windowOK && burstOK
}

// refilled reads a bucket that says how much comes back when: its window is the interval of its refill.
func (p *parser) refilled(src *source, most *yaml.Node) (capacity, refill uint64, window time.Duration, ok bool) {
	f, ok := src.limit, true
	for _, key := range src.windows {
		if f[key] != nil {
			p.add(f[key], "%s and refill exclude each other: what comes back when is told by the refill's amount and every", key)
			ok = false
		}
	}
	var capacityOK bool
	switch {
	case f["burst"] == nil:
		capacity, capacityOK = p.requests(src, most)
	case most != nil:
		p.add(most, "%s, burst and refill are one too many: a bucket's capacity is its burst, or else its %s", src.most, src.most)
	default:
		capacity, capacityOK = p.amount(f["burst"], "burst")
	}
	refill, window, refillOK := p.refill(f["refill"])
	return capacity, refill, window, ok && capacityOK && refillOK
}

// requests reads the most that may pass, where 0 blocks.
func (p *parser) requests(src *source, most *yaml.Node) (uint64, bool) {
	if most == nil {
		p.add(src.node, "%s needs %s, or unlimited: true", src.what, src.most)
		return 0, false
	}
	return p.whole(most, src.most, 0)
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
func (p *parser) build(src *source, m counters.Meter, most, refill uint64) *counters.Limit {
	f := src.limit
	window := cmp.Or(f["refill"], f["window"], f["window_seconds"], src.node)
	if err := m.Validate(); err != nil {
		p.add(window, "%v", err)
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
		p.add(cmp.Or(f["refill"], f["burst"], f[src.most], src.node), "%v", err)
		return nil
	}
	return l
}
