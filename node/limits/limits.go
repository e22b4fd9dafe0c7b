// Package limits keeps ad-hoc limits, which requests bring along instead of naming a rule: a bounded number of kinds
// for each API.
//
// # Eviction
//
// A kind is kept from its first charge on; a peek keeps nothing. When the keeper is full, a new kind evicts every kind
// under which nothing counts any more. If there is none, it evicts one kind of the source that holds the most: a source
// that floods the keeper with new kinds evicts its own, as long as it holds more than any other source.
//
// Within that source, kinds on trial go before proven ones, and the least recently charged goes first. A kind is on
// trial until it is charged again a second or more after its first charge, so that a flood of new kinds does not evict
// those in use.
//
// No request is refused because the keeper is full. An evicted kind only loses the counts of this node, and those of
// peers that arrive before the kind is charged again: counters.Table frees the counts of ad-hoc limits that it no
// longer knows.
package limits

import (
	"cmp"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// Options configure a Keeper.
type Options[Kind comparable] struct {
	Max   int                                 // kinds kept at a time
	Limit func(Kind) (*counters.Limit, error) // makes the limit of a kind, or returns what is wrong with it
	// Learn is called with all limits that are kept, soon after they change, and not more often than every 100 ms; the
	// slice is the callee's. It is never called concurrently, and must not call the Keeper. Nil: not called.
	Learn  func([]*counters.Limit)
	API    string       // whose requests bring the limits, for the log
	Logger *slog.Logger // nil: slog.Default()
}

// Keeper keeps limits by their kind: the parameters that requests bring. It is safe for concurrent use; finding a
// proven limit takes no lock.
type Keeper[Kind comparable] struct {
	opt     Options[Kind]
	evicted atomic.Uint64
	proven  atomic.Pointer[map[Kind]*kept] // a copy of those of all that are proven; never written to

	mu      sync.Mutex // guards all below
	all     map[Kind]*kept
	places  map[netip.Addr]int // how many of all each source holds
	warning OncePerMinute
	learned time.Time // of the last call of Learn, or of the pending one
	pending bool
}

// kept is a limit that is kept. Times are in nanoseconds.
type kept struct {
	*counters.Limit
	from    netip.Addr // the source that brought it
	first   int64      // the first charge
	counts  int64      // for how long after the last charge it counts
	proven  bool
	charged atomic.Int64 // the last charge, up to a second late
}

const (
	// coarse is how far kept.charged may be behind, so that not every request writes to it, and how long a kind is on
	// trial at least.
	coarse = time.Second
	// learnEvery is the shortest time between two calls of Learn.
	learnEvery = 100 * time.Millisecond
)

// NewKeeper returns a keeper without limits.
func NewKeeper[Kind comparable](opt Options[Kind]) *Keeper[Kind] {
	opt.Logger = cmp.Or(opt.Logger, slog.Default())
	k := &Keeper[Kind]{opt: opt, all: make(map[Kind]*kept), places: make(map[netip.Addr]int)}
	k.publish()
	return k
}

// Len returns how many limits are kept.
func (k *Keeper[Kind]) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.all)
}

// Evicted returns how many limits were evicted while something may still have counted under them.
func (k *Keeper[Kind]) Evicted() uint64 { return k.evicted.Load() }

// Peek returns the limit of a kind, and keeps nothing. The error is that of Options.Limit.
func (k *Keeper[Kind]) Peek(kind Kind) (*counters.Limit, error) {
	found := (*k.proven.Load())[kind]
	if found == nil {
		k.mu.Lock()
		found = k.all[kind]
		k.mu.Unlock()
	}
	if found != nil {
		return found.Limit, nil
	}
	return k.opt.Limit(kind)
}

// Charge returns the limit of a kind that a source charges at the time now, and keeps it. The zero source is one like
// others. The error is that of Options.Limit.
func (k *Keeper[Kind]) Charge(kind Kind, from netip.Addr, now time.Time) (*counters.Limit, error) {
	at := now.UnixNano()
	if found := (*k.proven.Load())[kind]; found != nil {
		if at-found.charged.Load() > int64(coarse) {
			found.charged.Store(at)
		}
		return found.Limit, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if found := k.all[kind]; found != nil {
		found.charged.Store(at)
		if !found.proven && at-found.first >= int64(coarse) {
			found.proven = true
			k.publish()
		}
		return found.Limit, nil
	}
	limit, err := k.opt.Limit(kind)
	if err != nil {
		return nil, err
	}
	if len(k.all) >= k.opt.Max {
		k.makeRoom(from, now)
	}
	added := &kept{Limit: limit, from: from, first: at, counts: int64(coarse + counts(limit))}
	added.charged.Store(at)
	k.all[kind] = added
	k.places[from]++
	k.changed(now)
	return limit, nil
}

// publish copies the proven kinds for the readers without a lock. The lock is held.
func (k *Keeper[Kind]) publish() {
	proven := make(map[Kind]*kept)
	for kind, l := range k.all {
		if l.proven {
			proven[kind] = l
		}
	}
	k.proven.Store(&proven)
}

// changed calls Learn, now or as soon as learnEvery allows. The lock is held.
func (k *Keeper[Kind]) changed(now time.Time) {
	if k.pending || k.opt.Learn == nil {
		return
	}
	wait := min(learnEvery-now.Sub(k.learned), learnEvery)
	if wait <= 0 {
		k.learned = now
		k.learn()
		return
	}
	k.pending, k.learned = true, now.Add(wait)
	time.AfterFunc(wait, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.pending = false
		k.learn()
	})
}

// learn calls Learn with all that is kept. The lock is held.
func (k *Keeper[Kind]) learn() {
	all := make([]*counters.Limit, 0, len(k.all))
	for _, l := range k.all {
		all = append(all, l.Limit)
	}
	k.opt.Learn(all)
}
