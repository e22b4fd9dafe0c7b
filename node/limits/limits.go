// Package limits keeps ad-hoc limits, which requests bring along instead of naming a rule: a bounded number of kinds
// for each API.
//
// # Which are kept
//
// A kind is kept from its first charge on. A peek keeps nothing: it is answered by a limit that is made for it alone.
// Where there are as many kinds as may be kept, the next one takes the place of another:
//
//   - of all under which nothing counts any more, if there are any;
//   - else of one that the source which holds the most places has brought: so a source that brings ever new kinds
//     pushes out its own, and no other's, as long as it holds more than they do;
//   - of those, of one on trial before a proven one, the one that was charged least recently. A kind is on trial
//     until it is charged a second after its first charge. So new kinds in a flood push out each other, and not those
//     that are in use.
//
// To be pushed out costs a kind nothing but that peers' counts of it are no longer held against it as they come, and
// that its counts on this node go, unless it is charged again soon: counters.Table frees those of ad-hoc limits that
// it no longer knows. No request is refused for want of a place.
package limits

import (
	"log/slog"
	"maps"
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
	// slice is the callee's. It is never called concurrently. Nil: not called.
	Learn  func([]*counters.Limit)
	API    string       // whose requests bring the limits, for the log
	Logger *slog.Logger // nil: slog.Default()
}

// Keeper keeps limits by their kind: the parameters that requests bring. It is safe for concurrent use; finding a
// proven limit takes no lock.
type Keeper[Kind comparable] struct {
	opt     Options[Kind]
	proven  atomic.Pointer[map[Kind]*kept] // the map is not to be written to
	evicted atomic.Uint64

	mu      sync.Mutex // of what follows, and of those that replace proven
	trial   map[Kind]*kept
	places  map[netip.Addr]int // that each source holds
	expiry  int64              // none of the limits expires before, in nanoseconds
	warning OncePerMinute
	learned time.Time // when Learn was last called, or will be where it is pending
	pending bool

	learning sync.Mutex // one call of Learn at a time; taken before mu
}

// kept is a limit with who brought it first, and when it was charged, in nanoseconds.
type kept struct {
	*counters.Limit
	from    netip.Addr
	first   int64
	charged atomic.Int64 // the last time, up to a second late
}

const (
	// coarse is how far behind kept.charged may be, so that not every request writes to it, and how long a kind is on
	// trial at least.
	coarse = time.Second
	// learnEvery bounds how often Learn is called.
	learnEvery = 100 * time.Millisecond
)

// NewKeeper returns a keeper without limits.
func NewKeeper[Kind comparable](opt Options[Kind]) *Keeper[Kind] {
	if opt.Logger == nil {
		opt.Logger = slog.Default()
	}
	k := &Keeper[Kind]{opt: opt, trial: make(map[Kind]*kept), places: make(map[netip.Addr]int)}
	k.proven.Store(&map[Kind]*kept{})
	return k
}

// Len returns how many limits are kept.
func (k *Keeper[Kind]) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(*k.proven.Load()) + len(k.trial)
}

// Evicted returns how many limits were pushed out under which something may still have counted.
func (k *Keeper[Kind]) Evicted() uint64 { return k.evicted.Load() }

// Peek returns the limit of a kind, and keeps nothing. The error is that of Options.Limit.
func (k *Keeper[Kind]) Peek(kind Kind) (*counters.Limit, error) {
	if found := (*k.proven.Load())[kind]; found != nil {
		return found.Limit, nil
	}
	k.mu.Lock()
	found := k.trial[kind]
	k.mu.Unlock()
	if found != nil {
		return found.Limit, nil
	}
	return k.opt.Limit(kind)
}

// Charge returns the limit of a kind that a source charges at the time now, and keeps it. The zero source is one like
// others. The error is that of Options.Limit.
func (k *Keeper[Kind]) Charge(kind Kind, from netip.Addr, now time.Time) (*counters.Limit, error) {
	found := (*k.proven.Load())[kind]
	if found == nil {
		return k.chargeNew(kind, from, now)
	}
	if at := now.UnixNano(); at-found.charged.Load() > int64(coarse) {
		found.charged.Store(at)
	}
	return found.Limit, nil
}

// chargeNew is Charge of a kind that is not proven.
func (k *Keeper[Kind]) chargeNew(kind Kind, from netip.Addr, now time.Time) (*counters.Limit, error) {
	k.mu.Lock()
	if found := k.trial[kind]; found != nil {
		defer k.mu.Unlock()
		k.try(kind, found, now.UnixNano())
		return found.Limit, nil
	}
	k.mu.Unlock()
	limit, err := k.opt.Limit(kind)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	if found := k.find(kind); found != nil { // another request was first
		k.mu.Unlock()
		return found.Limit, nil
	}
	k.makeRoom(from, now)
	added := &kept{Limit: limit, from: from, first: now.UnixNano()}
	added.charged.Store(added.first)
	k.trial[kind] = added
	k.expiry = min(k.expiry, added.expires())
	k.places[from]++
	learnNow := k.changed(now)
	k.mu.Unlock()
	if learnNow {
		k.learn()
	}
	return limit, nil
}

// find returns what is kept of a kind. The lock is held.
func (k *Keeper[Kind]) find(kind Kind) *kept {
	if found := k.trial[kind]; found != nil {
		return found
	}
	return (*k.proven.Load())[kind]
}

// try notes a charge of a kind on trial, which may prove it. The lock is held.
func (k *Keeper[Kind]) try(kind Kind, l *kept, at int64) {
	l.charged.Store(at)
	if at-l.first < int64(coarse) {
		return
	}
	proven := maps.Clone(*k.proven.Load())
	proven[kind] = l
	k.proven.Store(&proven)
	delete(k.trial, kind)
}

// changed has Learn be called, and reports whether the caller is to do so at once, when it has given back the lock
// that is held.
func (k *Keeper[Kind]) changed(now time.Time) bool {
	if k.pending || k.opt.Learn == nil {
		return false
	}
	wait := min(learnEvery-now.Sub(k.learned), learnEvery)
	if wait <= 0 {
		k.learned = now
		return true
	}
	k.pending, k.learned = true, now.Add(wait)
	time.AfterFunc(wait, k.learn)
	return false
}

// learn calls Learn with what is kept now.
func (k *Keeper[Kind]) learn() {
	k.learning.Lock()
	defer k.learning.Unlock()
	k.mu.Lock()
	k.pending = false
	proven := *k.proven.Load()
	all := make([]*counters.Limit, 0, len(proven)+len(k.trial))
	for _, limits := range [...]map[Kind]*kept{proven, k.trial} {
		for _, l := range limits {
			all = append(all, l.Limit)
		}
	}
	k.mu.Unlock()
	k.opt.Learn(all)
}
