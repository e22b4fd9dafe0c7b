package rulefile

import (
	"cmp"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// MaxLimited is the maximum number of rules with a limit, and of bans, in a set: a table has room for the meters of two
// sets while one replaces the other, and for those of clients (respapi.MaxLimits).
const MaxLimited = 3 << 10

// algorithm reads the algorithm, the default if there is none, with queue: true the queue.
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

// limit reads a rule's limit with a number: the rule's own, or one of its schedule. margin is the part of the limit
// that a soft rule admits beyond that number. It returns nil after a problem.
func (p *parser) limit(src *source, fullName string, number *yaml.Node) (l *counters.Limit, margin uint64) {
	f := src.limit
	a, ok := p.algorithm(f)
	if ok && !rules.IsBucket(a) {
		for _, key := range []string{"burst", "refill"} {
			if f[key] != nil {
				p.add(f[key], "%s is for a token_bucket or a leaky_bucket, and the algorithm is %s", key, a)
				ok = false
			}
		}
	}
	var capacity, refill uint64
	var window time.Duration
	var readOK bool
	if f["refill"] != nil && (rules.IsBucket(a) || a == 0) {
		capacity, refill, window, readOK = p.refilled(src, number)
	} else {
		capacity, refill, window, readOK = p.windowed(src, number)
	}
	if !ok || !readOK {
		return nil, 0
	}
	margin = softMargin(f, capacity)
	return p.build(src, counters.NewMeter(fullName, a, window), capacity+margin, refill), margin
}

// windowed reads a limit with a window, in which a bucket gets the number back.
func (p *parser) windowed(src *source, number *yaml.Node) (capacity, refill uint64, window time.Duration, ok bool) {
	requests, requestsOK := p.requests(src, number)
	window, windowOK := p.window(src)
	capacity, burstOK := requests, true
	if burst := src.limit["burst"]; burst != nil {
		capacity, burstOK = p.complete(burst, "burst")
	}
	// a schedule's 0 blocks, whatever the bucket holds at other times
	if requests == 0 && number != src.limit[src.max] {
		capacity = 0
	}
	return capacity, requests, window, requestsOK && windowOK && burstOK
}

// refilled reads a bucket with a refill, whose interval is its window.
func (p *parser) refilled(src *source, number *yaml.Node) (capacity, refill uint64, window time.Duration, ok bool) {
	f, ok := src.limit, true
	for _, key := range src.windows.names() {
		if f[key] != nil {
			p.add(f[key],
				"%s and refill exclude each other: the refill already has amount and every", key)
			ok = false
		}
	}
	var capacityOK bool
	switch {
	case f["burst"] == nil:
		capacity, capacityOK = p.requests(src, number)
	case number != nil:
		p.add(number, "%s, burst and refill are one too many: the capacity is the burst, or else %s", src.max,
			src.max)
	default:
		capacity, capacityOK = p.complete(f["burst"], "burst")
	}
	refill, window, refillOK := p.refill(f["refill"])
	return capacity, refill, window, ok && capacityOK && refillOK
}

// requests reads the number that may pass; 0 blocks.
func (p *parser) requests(src *source, number *yaml.Node) (uint64, bool) {
	if number == nil {
		p.add(src.node, "%s needs %s, or unlimited: true", src.what, src.max)
		return 0, false
	}
	return p.complete(number, src.max)
}

// refill reads {amount: 50, every: 24h}.
func (p *parser) refill(n *yaml.Node) (amount uint64, every time.Duration, ok bool) {
	f, ok := p.fields(n, "a refill", refillKeys)
	if !ok {
		return 0, 0, false
	}
	for _, key := range refillKeys.names() {
		if f[key] == nil {
			p.add(n, "a refill needs %s, as in {amount: 50, every: 24h}", key)
			ok = false
		}
	}
	amountOK, everyOK := true, true
	if f["amount"] != nil {
		amount, amountOK = p.complete(f["amount"], "amount")
	}
	if f["every"] != nil {
		every, everyOK = p.duration(f["every"], "every")
	}
	return amount, every, ok && amountOK && everyOK
}

// build makes the limit; refill is for buckets.
func (p *parser) build(src *source, m counters.Meter, capacity, refill uint64) *counters.Limit {
	f := src.limit
	window := cmp.Or(f["refill"], f["window"], f["window_seconds"], src.node)
	if err := m.Validate(); err != nil {
		p.add(window, "%v", err)
		return nil
	}
	var l *counters.Limit
	var err error
	if rules.IsBucket(m.Algorithm) {
		l, err = counters.NewBucket(m, capacity, refill)
	} else {
		l, err = counters.NewLimit(m, capacity)
	}
	if err != nil {
		p.add(cmp.Or(f["refill"], f["burst"], f[src.max], src.node), "%v", err)
		return nil
	}
	return l
}
