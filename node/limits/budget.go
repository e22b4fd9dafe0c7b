package limits

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

// floorShare is the part of a budget that a source may always hold while there is room: 1/floorShare.
const floorShare = 64

// Refusal is why a budget has no room for a source, as metrics and logs name it. Empty: it has room.
type Refusal string

// Refusals.
const (
	Full    Refusal = "full"   // all sources together hold the total
	AtShare Refusal = "source" // the source holds its share
)

// Budget is a cap on a resource that all clients use, with a share for each source of clients:
//
//	A source may hold as much as it leaves free, and 1/64 of the total if that is more.
//
// So a share grows into what is idle, one source alone never holds more than half, and k sources that take all they can
// leave 1/2^k of the total free, until that is less than 1/64. The zero source, which is not valid, has no share: it
// may hold the total. A budget remembers the sources that hold something, and no others.
//
// Budgets are safe for concurrent use. Take and Give allocate nothing.
type Budget struct {
	door, name string
	total      int64
	lacking    string // what happens where there is no room
	log        *slog.Logger

	mu       sync.Mutex
	used     int64
	held     map[netip.Addr]int64 // by source
	refused  map[Refusal]uint64
	warning  OncePerMinute
	unlogged int // refusals since the last warning
}

// NewBudget returns a budget of a total, which the log and metrics call name, of a listener (door), or of the whole
// node if that is empty. A nil log gets nothing.
func NewBudget(door, name string, total int64, log *slog.Logger) *Budget {
	return &Budget{door: door, name: name, total: total, lacking: "clients are refused", log: log,
		held: make(map[netip.Addr]int64), refused: map[Refusal]uint64{Full: 0, AtShare: 0}}
}

// Lacking sets what happens where there is no room, for the log, and returns b. The default is "clients are refused".
func (b *Budget) Lacking(consequence string) *Budget {
	b.lacking = consequence
	return b
}

// Room returns why a source may not hold n more; empty: it may. The caller may Refuse then.
func (b *Budget) Room(source netip.Addr, n int64) Refusal {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.room(source, n)
}

// room is Room. The lock is held.
func (b *Budget) room(source netip.Addr, n int64) Refusal {
	held, free := b.held[source]+n, b.total-b.used-n
	switch {
	case source.IsValid() && held > max(1, b.total/floorShare, free):
		return AtShare
	case free < 0:
		return Full
	}
	return ""
}

// add has a source hold n more, or less. The lock is held.
func (b *Budget) add(source netip.Addr, n int64) {
	b.used += n
	if now := b.held[source] + n; now != 0 {
		b.held[source] = now
	} else {
		delete(b.held, source)
	}
}

// Take has a source hold n more, or counts and logs why it may not.
func (b *Budget) Take(source netip.Addr, n int64) Refusal {
	b.mu.Lock()
	why := b.room(source, n)
	if why == "" {
		b.add(source, n)
	}
	b.mu.Unlock()
	if why != "" {
		b.Refuse(source, why)
	}
	return why
}

// Overdraw has a source hold n more, whether or not there is room: for what cannot be refused any more.
func (b *Budget) Overdraw(source netip.Addr, n int64) { b.Give(source, -n) }

// Give returns n of what a source holds.
func (b *Budget) Give(source netip.Addr, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(source, -n)
}

// Refuse counts a refusal, and logs once a minute how many there were, with the last source.
func (b *Budget) Refuse(source netip.Addr, why Refusal) {
	b.mu.Lock()
	b.refused[why]++
	b.unlogged++
	count, held, used := b.unlogged, b.held[source], b.used
	due := b.log != nil && b.warning.Due(time.Now())
	if due {
		b.unlogged = 0
	}
	b.mu.Unlock()
	if !due {
		return
	}
	hint := "all sources together hold the total: add nodes, or find who holds them by budget_largest_share"
	if why == AtShare {
		hint = "a source holds its share; if it is a proxy or a balancer of yours, list it in trusted_proxies"
	}
	b.log.Warn("a budget has no room", "door", b.door, "budget", b.name, "so", b.lacking, "reason", string(why),
		"source", source.String(), "refused", count, "source_holds", held, "used", used, "total", b.total, "hint", hint)
}

// Held returns how much a source holds.
func (b *Budget) Held(source netip.Addr) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held[source]
}

// Left returns how much of the total is held by no source; less than 0 where it is overdrawn.
func (b *Budget) Left() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total - b.used
}

// BudgetStats are the state of a budget, and its refusals since it was made.
type BudgetStats struct {
	Door, Name           string
	Used, Total, Largest int64 // Largest is what the source with a share holds that holds the most
	Refused              map[Refusal]uint64
}

// Stats returns the state.
func (b *Budget) Stats() BudgetStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := BudgetStats{Door: b.door, Name: b.name, Used: b.used, Total: b.total, Refused: make(map[Refusal]uint64)}
	for why, n := range b.refused {
		s.Refused[why] = n
	}
	for source, n := range b.held {
		if source.IsValid() {
			s.Largest = max(s.Largest, n)
		}
	}
	return s
}

// Budgets are all of a node. A nil one makes budgets that are neither exported nor logged, with a share for everybody.
type Budgets struct {
	exempt func(netip.Addr) bool
	log    *slog.Logger

	mu  sync.Mutex
	all []*Budget
}

// NewBudgets returns a set without budgets. Addresses that are exempt have no share: a nil exempt exempts none.
func NewBudgets(exempt func(netip.Addr) bool, log *slog.Logger) *Budgets {
	return &Budgets{exempt: exempt, log: log}
}

// New returns a budget of the set; its parameters are those of NewBudget.
func (s *Budgets) New(door, name string, total int64) *Budget {
	if s == nil {
		return NewBudget(door, name, total, nil)
	}
	b := NewBudget(door, name, total, s.log)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, b)
	return b
}

// All returns the budgets.
func (s *Budgets) All() []*Budget {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[:len(s.all):len(s.all)]
}

// Source returns the source of a client's address, as budgets know it: see SourceOf; the zero source for those that
// have no share.
func (s *Budgets) Source(addr netip.Addr) netip.Addr {
	if s != nil && s.exempt != nil && s.exempt(addr.Unmap()) {
		return netip.Addr{}
	}
	return SourceOf(addr)
}

// SourceAt is Source of a connection's remote address; the zero source on a Unix socket.
func (s *Budgets) SourceAt(remote net.Addr) netip.Addr {
	if tcp, ok := remote.(*net.TCPAddr); ok {
		return s.Source(tcp.AddrPort().Addr())
	}
	return netip.Addr{}
}

// HeaderBytes returns what the fields of a header occupy, about: 32 bytes each beside its text, as in RFC 7541,
// section 4.1. So many short ones cost no less than a long one.
func HeaderBytes(h map[string][]string) (sum int64) {
	for name, values := range h {
		for _, v := range values {
			sum += int64(len(name) + len(v) + 32)
		}
	}
	return sum
}

// Sourced has a source: a connection.
type Sourced interface{ Source() netip.Addr }

// From is a source alone.
type From netip.Addr

// Source implements Sourced.
func (f From) Source() netip.Addr { return netip.Addr(f) }

type sourceKey struct{}

// WithSource returns a context of what comes from a source.
func WithSource(ctx context.Context, from Sourced) context.Context {
	return context.WithValue(ctx, sourceKey{}, from)
}

// SourceIn returns the value of WithSource; nil: there is none.
func SourceIn(ctx context.Context) Sourced {
	from, _ := ctx.Value(sourceKey{}).(Sourced)
	return from
}

// SourceOfContext returns the source in a context; the zero source if there is none.
func SourceOfContext(ctx context.Context) netip.Addr {
	if from := SourceIn(ctx); from != nil {
		return from.Source()
	}
	return netip.Addr{}
}
