package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/testnet/load"
)

// restoredWithin is how long a Redis that came back empty may lack what the nodes count: the breaker's cool-down of a second, two
// flushes of 750 ms with time-outs of 250 ms each, and what asking a container takes.
const restoredWithin = 4 * time.Second

// faultRegion is the region whose Redis or node is harmed, faultNode the node.
const (
	faultRegion = "eu-west"
	faultNode   = "eu-west-1"
)

// accountLoad is what scenarios offer in which every single count matters: each client far below its limit, everywhere.
func accountLoad() []load.Stream {
	return []load.Stream{{Identity: "first", Rate: 60}, {Identity: "second", Rate: 60}}
}

// redisRun is what a run with a fault of a Redis finds out.
type redisRun struct {
	began, ended int64 // of the fault, Unix ns
	restored     time.Duration
	opened       time.Duration
	origins      map[string][]string // the region's nodes, by what was offered
}

// mark has something admitted once that nobody adds to, and waits until Redis holds it: what is there again after a loss.
func (c *redisRun) mark(ctx context.Context, r *Run) error {
	if err := r.Prime(ctx, faultNode, r.ID("mark")); err != nil {
		return err
	}
	took, err := r.awaitRedis(ctx, r.ID("mark"), primeCost, 15*time.Second)
	if err == nil {
		err = c.findOrigins(ctx, r)
	}
	if err == nil {
		r.Evidence("the Redis of %s held what %s had admitted after %.1f s", faultRegion, faultNode, took.Seconds())
	}
	return err
}

// findOrigins looks under which origins the Redis has what is offered. Nodes tell a Redis what they admitted themselves, and what others did
// only when it has lost data: so before the fault these are the region's own.
func (c *redisRun) findOrigins(ctx context.Context, r *Run) error {
	c.origins = make(map[string][]string)
	for _, identity := range r.Streams() {
		counts, err := r.Net.RedisCounts(ctx, faultRegion, r.rule, identity)
		if err != nil {
			return err
		}
		c.origins[identity] = slices.Collect(maps.Keys(counts))
	}
	return nil
}

// redisCount is how much the Redis of the region holds of the identity, of all origins.
func (r *Run) redisCount(ctx context.Context, identity string) (total uint64, err error) {
	counts, err := r.Net.RedisCounts(ctx, faultRegion, r.rule, identity)
	for _, n := range counts {
		total += n
	}
	return total, err
}

// awaitRedis waits until the Redis holds so much of the identity.
func (r *Run) awaitRedis(ctx context.Context, identity string, want uint64, patience time.Duration) (time.Duration, error) {
	began := time.Now()
	for {
		got, err := r.redisCount(ctx, identity)
		took := time.Since(began)
		switch {
		case err == nil && got == want:
			return took, nil
		case err == nil && got > want:
			return took, fmt.Errorf("the Redis of %s holds %d of %s, of which only %d were admitted", faultRegion, got, identity, want)
		case took > patience:
			return took, fmt.Errorf("after %v the Redis of %s holds %d of %s, want %d (%v)", patience, faultRegion, got, identity, want, err)
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return took, err
		}
	}
}

// checkRestored holds that the Redis has all that was admitted, and the nodes count nothing twice.
func (c *redisRun) checkRestored(r *Run) {
	r.Promise("Redis holds again what it had lost", c.restored <= restoredWithin, "within 4 s: the breaker's second, and two flushes", fmt.Sprintf("%.2f s", c.restored.Seconds()))
	r.Figure("restored_s", c.restored.Seconds())
	c.checkExact(r, r.Streams()...)
}

// checkExact holds that every node counts exactly what was admitted everywhere, and Redis what was in its region.
func (c *redisRun) checkExact(r *Run, identities ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, identity := range identities {
		admitted, inRegion, held := r.Admitted(identity, ""), uint64(0), uint64(0)
		counts, err := r.Counts(ctx, r.Nodes, r.rule.Name, identity)
		exact := err == nil
		for _, n := range r.Nodes {
			exact = exact && counts[n.Name] == admitted
			if n.Region == faultRegion {
				inRegion += r.Admitted(identity, n.Name)
			}
		}
		byOrigin, redisErr := r.Net.RedisCounts(ctx, faultRegion, r.rule, identity)
		for _, origin := range c.origins[identity] {
			held += byOrigin[origin]
		}
		r.Promise(fmt.Sprintf("nothing is lost or counted twice of %s", strings.TrimPrefix(identity, r.name+"-")), exact && redisErr == nil && held == inRegion,
			fmt.Sprintf("%d in every node, of them the region's %d in Redis", admitted, inRegion),
			fmt.Sprintf("%v, Redis %d%s", slices.Sorted(maps.Values(counts)), held, errorText(errors.Join(err, redisErr))))
	}
}

// Streams are the identities that load was offered for.
func (r *Run) Streams() (identities []string) {
	decisions, _ := r.recorded()
	for _, d := range decisions {
		if !slices.Contains(identities, d.Identity) {
			identities = append(identities, d.Identity)
		}
	}
	slices.Sort(identities)
	return identities
}
