// Package strict decides by counters that all nodes of a region, or of the world, share in one Redis: each request is
// decided there, in one atomic step, and never over-admitted. A decision takes a round trip, unless the node holds a
// lease of permits for the key. DESIGN.md has the layout, the script, the rights that it needs, and what each fault
// does.
//
// # Invariants
//
//   - The script decides on all layers of a request at once, by the server's clock: all are charged, or none.
//   - A request is charged at most once: it has a token, by which the script knows a repeated call.
//   - A Take that failed is given up: its token is refunded if it was charged, and void if it has not arrived yet.
//   - A permit of a lease is used while it counts: not after the sub-window in which it was charged, and see lease.go.
//   - What cannot be reached is left alone (breaker.go). No lock is held across a call.
package strict

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/text"
	"github.com/edgelimit/edgelimit/regions"
)

// Ask is one layer of a request. Its charge has no Lender and no Elastic mode, and its limit does not tally (see
// Check). A ban of the limit is ignored: the caller bans.
type Ask struct {
	counters.Charge
	// Lease is how many permits a node takes at a time for a key that is busy, up to maxLeaseBatch; 0 or 1: none. Only
	// requests of a single layer in mode Enforce, without Pending or Overdraw, use leases (leasable).
	Lease uint64
}

// Config configures a Store.
type Config struct {
	Redis regions.RedisConfig
	// MinTimeout and MaxTimeout are the shortest and the longest time that a Take, a Report or a refund waits for the
	// store, its second attempt included. Between them the store waits patienceFactor times what 99 % of the last calls
	// took. Time in which the process does not run is not counted.
	MinTimeout, MaxTimeout time.Duration
	// OnCall gets the duration and the error of each call of Redis; may be nil.
	OnCall func(took time.Duration, err error)
	Log    *slog.Logger // nil is silent
}

// ErrUnavailable says that the store could not decide: it cannot be reached, was too slow, or failed of late and is
// left alone for a moment. Nothing is charged, or what was is given back as soon as the store can be reached.
var ErrUnavailable = errors.New("the strict store is unavailable")

// Store is the shared counters. It is safe for concurrent use.
type Store struct {
	cfg      Config
	script   script
	shapes   shapes
	link     atomic.Pointer[link]
	breaker  breaker
	patience patience
	refunds  chan *undo
	pending  atomic.Int64 // refunds that wait, and they and calls for permits that are under way
	leases   leases
	tokens   struct{ base, next atomic.Uint64 }
	stats    stats

	ctx    context.Context // ends with the store
	cancel context.CancelFunc
	work   sync.WaitGroup
	closed atomic.Bool
}

// Open returns the store of the configuration. It dials nobody. Close it after its last call.
func Open(cfg Config) (*Store, error) {
	if err := cfg.Redis.Validate(); err != nil {
		return nil, err
	}
	if cfg.MinTimeout <= 0 || cfg.MaxTimeout < cfg.MinTimeout {
		return nil, fmt.Errorf("strict store: the timeouts are %s to %s: the first one has to be positive, and at "+
			"most the second", text.Duration(cfg.MinTimeout), text.Duration(cfg.MaxTimeout))
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{cfg: cfg, script: decideScript, refunds: make(chan *undo, maxRefunds)}
	s.patience.min, s.patience.max = cfg.MinTimeout, cfg.MaxTimeout
	s.tokens.base.Store(rand.Uint64())
	first, err := s.dial()
	if err != nil {
		return nil, err
	}
	s.link.Store(first)
	s.leases.init()
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.work.Go(s.runRefunds)
	s.work.Go(s.runLeases)
	s.work.Go(s.watchEviction)
	return s, nil
}

// Close gives unused leases back, until ctx ends, and closes the connections. Calls that are under way may fail.
func (s *Store) Close(ctx context.Context) error {
	if s.closed.Swap(true) {
		return nil
	}
	s.returnAll()
	err := s.awaitRefunds(ctx)
	s.cancel()
	s.work.Wait()
	return errors.Join(err, s.link.Load().close())
}

// Receipt names what a Take charged. The zero value is of nothing.
type Receipt struct {
	undos []*undo
	lease *leaseUse
}

// Take decides on all layers of a request and appends a decision for each to dst, in order: it charges and answers as
// counters.Table.TakeAll does, modes, Each, Pending and Overdraw included, by the store's own clock. With an error,
// which wraps ErrUnavailable unless the caller made a mistake, dst is returned as it was.
//
// If ctx ends before the answer comes, the request is not charged, and the error wraps that of ctx too. In a Redis
// Cluster, layers of different keys are asked one key after the other: for a moment, a request that a later one denies
// counts in the earlier ones.
func (s *Store) Take(ctx context.Context, asks []Ask, dst []counters.Decision) ([]counters.Decision, Receipt, error) {
	if len(asks) == 1 && leasable(&asks[0]) {
		return s.takeLeased(ctx, &asks[0], dst)
	}
	return s.take(ctx, asks, dst)
}

// take is Take without leases.
func (s *Store) take(ctx context.Context, asks []Ask, dst []counters.Decision) ([]counters.Decision, Receipt, error) {
	first := len(dst)
	r := request{store: s, asks: asks}
	if err := r.group(); err != nil {
		return dst, Receipt{}, err
	}
	for range asks {
		dst = append(dst, counters.Decision{Allowed: true})
	}
	waiting, stop := s.patiently(ctx)
	defer stop()
	err := r.take(waiting, dst[first:])
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		s.Refund(Receipt{undos: r.undos})
		return dst[:first], Receipt{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return dst, Receipt{undos: r.undos}, nil
}

// Report charges layers after the request was served, as counters.Table.Report: up to twice their limits. A report that
// failed may have been charged.
func (s *Store) Report(ctx context.Context, asks []Ask) error {
	r := request{store: s, asks: asks}
	if err := r.group(); err != nil {
		return err
	}
	waiting, stop := s.patiently(ctx)
	defer stop()
	var errs []error
	for _, c := range r.calls {
		if _, _, err := s.run(waiting, callReport, c); err != nil {
			errs = append(errs, fmt.Errorf("%w: %w", ErrUnavailable, err))
		}
	}
	return errors.Join(errs...)
}

// Refund gives back what a Take charged, once, however often it is called. It does not wait, and tries again until it
// has, or what was charged has left the window. Of a bucket it gives back what has not been refilled since; of a queue,
// only its last place, as those behind it have their turns.
func (s *Store) Refund(r Receipt) {
	for _, u := range r.undos {
		s.enqueue(u)
	}
	s.giveBack(r.lease)
}

// newToken returns a token that no other request has. It is one of 2^63, as good as random.
func (s *Store) newToken() (token [8]byte) {
	n := s.tokens.base.Load() + s.tokens.next.Add(1)*0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	binary.LittleEndian.PutUint64(token[:], n^n>>31)
	token[7] |= 0x80 // a further layer on the same state has its number there, 32 at most
	return token
}

// Stats are totals since Open, but for Open, Evicts, Leased and Patience.
type Stats struct {
	Open      bool   // the breaker is: the store failed of late and is left alone for a moment
	Evicts    bool   // Redis may evict counts, by its maxmemory-policy
	Leased    int    // keys with a lease
	Local     uint64 // decisions by leases, and by denials whose end is known
	Calls     uint64 // of Redis
	Failed    uint64 // of those
	Retried   uint64
	Refunded  uint64 // takes, and parts of leases
	Abandoned uint64 // takes whose charge could neither be confirmed nor given back
	// Patience is how long a request waits for an answer now.
	Patience time.Duration
}

type stats struct {
	local, calls, failed, retried, refunded, abandoned atomic.Uint64
	evicts                                             atomic.Bool
}

// Stats returns the totals.
func (s *Store) Stats() Stats {
	return Stats{
		Open: s.breaker.open.Load(), Evicts: s.stats.evicts.Load(), Leased: s.leases.count(),
		Local: s.stats.local.Load(), Calls: s.stats.calls.Load(), Failed: s.stats.failed.Load(),
		Retried: s.stats.retried.Load(), Refunded: s.stats.refunded.Load(), Abandoned: s.stats.abandoned.Load(),
		Patience: s.patience.now(),
	}
}
