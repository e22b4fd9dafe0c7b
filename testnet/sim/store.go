package sim

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
)

// store is the memory of a region: an embedded one, and what befalls it.
type store struct {
	cluster  *cluster
	region   int
	data     *regions.Embedded
	servers  int                    // that there have been
	epoch    int                    // number of the one at work
	inForce  map[StoreFaultKind]int // how many faults of each kind
	replicas []*regions.Embedded    // that replicate what the store does
	draw     *rand.Rand
}

const (
	storeTimeout = 250 * time.Millisecond  // what the reconciler and the client of a Redis wait for an answer
	slowest      = 2500 * time.Millisecond // that an answer of a slow store takes
	repeatsIn    = time.Second             // the most until what takes effect twice does so again
)

func newStore(c *cluster, region int) *store {
	s := &store{
		cluster: c, region: region, inForce: make(map[StoreFaultKind]int),
		draw: c.opt.stream(drawStore + concern(region)<<32),
	}
	s.data = s.empty()
	return s
}

func (s *store) empty() *regions.Embedded {
	return regions.NewEmbedded(0, func() time.Time { return time.Unix(0, s.cluster.now) })
}

// schedule enters a fault. A replica that takes over replicates the store until From.
func (s *store) schedule(f StoreFault, at func(time.Duration, func())) {
	var replica *regions.Embedded
	var epoch int // of the server that was replicated
	if f.Kind == StoreStale || f.Kind == StoreRewind {
		replica = s.empty()
		s.replicas = append(s.replicas, replica)
	}
	at(f.From, func() {
		s.inForce[f.Kind]++
		s.replicas = slices.DeleteFunc(s.replicas, func(r *regions.Embedded) bool { return r == replica })
		epoch = s.epoch
		s.faultBegan()
	})
	at(f.Until, func() {
		if s.inForce[f.Kind]--; !s.in(f.Kind) {
			delete(s.inForce, f.Kind)
		}
		switch f.Kind {
		case StoreStale:
			s.lose(func() { s.data = replica; s.another() })
		case StoreRewind:
			s.lose(func() { s.data, s.epoch = replica, epoch })
		case StoreRestart:
			s.lose(func() { s.forget(); s.another() })
		case StoreFlush:
			s.lose(s.forget)
		}
		if len(s.inForce) == 0 {
			s.faultsEnded()
		}
	})
}

// lose has the store lose data, and takes note of it.
func (s *store) lose(how func()) {
	before := s.held()
	how()
	s.lost(s.held().lacks(before))
}

func (s *store) another() {
	s.servers++
	s.epoch = s.servers
}

func (s *store) forget() {
	for _, c := range s.copies() {
		c.Flush()
	}
}

func (s *store) in(k StoreFaultKind) bool { return s.inForce[k] > 0 }

// slow is how long the store takes for a call: most often little, in comparison.
func (s *store) slow() time.Duration {
	if !s.in(StoreSlow) {
		return 0
	}
	part := s.draw.Float64()
	return time.Duration(part * part * float64(slowest))
}

// client is a node's way to the store of its region. Its calls take simulated time where the store does.
type client struct {
	*store
	node *node
}

var (
	errAway     = errors.New("the store is away")
	errNoAnswer = errors.New("the store did not answer in time")
	errGone     = errors.New("the node is gone")
)

// call has the store do something, now or later, once or twice, and waits for the answer.
func (c *client) call(do func() error) (err error) {
	c.cluster.redis.Calls++
	defer func() {
		if err != nil {
			c.cluster.redis.Failed++
		}
	}()
	if c.in(StoreDown) {
		return errAway
	}
	late := func() {
		if !c.in(StoreDown) {
			_ = do() // its result is lost
		}
	}
	took := c.slow()
	if took >= storeTimeout || c.in(StoreMute) {
		c.cluster.after(took, late)
		c.node.sleep(storeTimeout)
		return errNoAnswer
	}
	if took > 0 && !c.node.sleep(took) {
		return errGone
	}
	if c.in(StoreDown) {
		return errAway
	}
	if c.in(StoreTwice) {
		c.cluster.after(time.Duration(c.draw.Int64N(int64(repeatsIn))), late)
	}
	return do()
}

// copies are the store and the replicas that follow it, the store last.
func (s *store) copies() []*regions.Embedded { return append(slices.Clone(s.replicas), s.data) }

// Merge implements regions.Store.
func (c *client) Merge(ctx context.Context, slots []counters.Slot, now int64) (merged regions.Merged, err error) {
	slots, ctx = slices.Clone(slots), context.WithoutCancel(ctx) // it may be late
	err = c.call(func() (err error) {
		for _, s := range c.copies() {
			merged, err = s.Merge(ctx, slots, now)
		}
		merged.Epoch = strconv.Itoa(c.epoch)
		return err
	})
	return merged, err
}

// Restore implements regions.Store.
func (c *client) Restore(ctx context.Context, slots []counters.Slot, now int64) error {
	slots, ctx = slices.Clone(slots), context.WithoutCancel(ctx)
	return c.call(func() (err error) {
		for _, s := range c.copies() {
			err = s.Restore(ctx, slots, now)
		}
		return err
	})
}

// Load implements regions.Store, in an order that does not differ from run to run.
func (c *client) Load(ctx context.Context, now int64, page func([]counters.Slot)) error {
	var all []counters.Slot
	if err := c.call(func() error {
		all = nil
		return c.data.Load(ctx, now, func(slots []counters.Slot) { all = append(all, slots...) })
	}); err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b counters.Slot) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Index, b.Index), cmp.Compare(a.Origin, b.Origin),
			cmp.Compare(a.Birth, b.Birth))
	})
	page(all)
	return nil
}
