package ratelimit

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/node/limits"
	"github.com/edgelimit/edgelimit/node/rules"
)

const (
	// DefaultMaxNameBytes is the budget of names that clients choose: some 20,000 of them.
	DefaultMaxNameBytes = 8 << 20
	// nameOverhead is what a name takes beside its bytes: its counts, and its places in the maps.
	nameOverhead = 256
	// maxName is the longest name, so that a line of statsd fits a packet.
	maxName = 1024
)

// Options are the settings of Stats. The zero value is ready to use.
type Options struct {
	// NearLimitRatio is the part of a limit from which on it is nearly used up. 0 means 0.8.
	NearLimitRatio float64
	// MaxNameBytes is the budget for names with values or domains that clients choose. 0 means DefaultMaxNameBytes.
	MaxNameBytes int
	// Loads returns how many loads of rules there were. Nil: none.
	Loads func() (ok, failed uint64)
	// Logger receives a line a minute while that is used up. Nil means slog.Default().
	Logger *slog.Logger
}

// Stats are the statistics of envoyproxy/ratelimit. NewStats makes them; all methods are safe for concurrent use, and
// those that count allocate nothing for names that are known.
type Stats struct {
	nearRatio float32
	budget    int
	loads     func() (ok, failed uint64)
	log       *slog.Logger
	usedUp    limits.OncePerMinute

	// ServiceErrors counts refused requests, Requests all of them, GlobalShadow those that only the shadow mode of all
	// rules let pass.
	ServiceErrors, Requests, GlobalShadow atomic.Uint64

	took    durations                               // of gRPC requests
	unnamed atomic.Uint64                           // hits without a name of their own
	rules   atomic.Pointer[map[*rules.Rule]*counts] // of the rules in force whose name is always the same

	mu       sync.RWMutex
	byRaw    map[string]*counts        // by the name before sanitize, of rules and of requests
	ofRules  map[string]bool           // those of rules
	byName   map[string]*counts        // after it
	notFound map[string]*atomic.Uint64 // by domain
	taken    int                       // of the budget
}

// NewStats returns statistics without any rule.
func NewStats(opt Options) *Stats {
	s := &Stats{
		nearRatio: float32(cmp.Or(opt.NearLimitRatio, 0.8)), budget: cmp.Or(opt.MaxNameBytes, DefaultMaxNameBytes),
		log: cmp.Or(opt.Logger, slog.Default()), byRaw: make(map[string]*counts), byName: make(map[string]*counts),
		notFound: make(map[string]*atomic.Uint64), loads: opt.Loads,
	}
	if s.loads == nil {
		s.loads = func() (ok, failed uint64) { return 0, 0 }
	}
	s.rules.Store(new(map[*rules.Rule]*counts))
	return s
}

// SetRules makes known the rules that are in force. Rules that keep their names keep their counts; the names of rules
// that are gone go with them, so that a node whose rules come and go does not grow.
func (s *Stats) SetRules(all []*rules.Rule) {
	known := make(map[*rules.Rule]*counts, len(all))
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := s.ofRules
	s.ofRules = make(map[string]bool, len(all))
	for _, r := range all {
		name := r.ReferenceKey()
		c := s.named(name)
		if hasOwnName(r) {
			known[r] = c
		}
		s.ofRules[name] = true
		delete(gone, name)
	}
	s.rules.Store(&known)
	s.forget(gone)
}

// forget removes names, before sanitize. mu is held.
func (s *Stats) forget(gone map[string]bool) {
	if len(gone) == 0 {
		return
	}
	for raw := range gone {
		delete(s.byRaw, raw)
	}
	clear(s.byName) // several names may have become one
	for raw, c := range s.byRaw {
		s.byName[sanitize(raw)] = c
	}
}

// named returns the counts of a name, which it adds. mu is held.
func (s *Stats) named(raw string) *counts {
	c := s.byRaw[raw]
	if c != nil {
		return c
	}
	name := sanitize(raw)
	if c = s.byName[name]; c == nil {
		c = new(counts)
		s.byName[name] = c
	}
	s.byRaw[raw] = c
	return c
}

// names are buffers for names, reused.
var names = sync.Pool{New: func() any { return new([maxName]byte) }}

// Count counts a decision on one descriptor. The hit is only read during the call.
func (s *Stats) Count(h *Hit) {
	c := (*s.rules.Load())[h.Rule]
	if c == nil || !asInFile(h) {
		buf := names.Get().(*[maxName]byte)
		c = s.countsOf(h, appendName(buf[:0], h))
		names.Put(buf)
	}
	c.add(h, s.nearRatio)
}

// discarded takes the counts of hits that have no name at all. Nothing reads it.
var discarded counts

// countsOf returns the counts of a hit's name; those of its rule's own name where the budget is used up.
func (s *Stats) countsOf(h *Hit, raw []byte) *counts {
	s.mu.RLock()
	c := s.byRaw[string(raw)]
	s.mu.RUnlock()
	if c != nil {
		return c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c = s.byRaw[string(raw)]; c != nil { // somebody else was faster
		return c
	}
	if s.take(2 * len(raw)) {
		return s.named(string(raw))
	}
	s.unnamed.Add(1)
	if h.Rule == nil {
		return &discarded
	}
	if c = s.byRaw[h.Rule.ReferenceKey()]; c == nil { // the rule has just gone
		return &discarded
	}
	return c
}

// take takes bytes for a name from the budget, and reports whether they were left. mu is held.
func (s *Stats) take(bytes int) bool {
	bytes += nameOverhead
	if bytes <= 2*maxName+nameOverhead && s.taken+bytes <= s.budget {
		s.taken += bytes
		return true
	}
	if s.usedUp.Due(time.Now()) {
		s.log.Warn("no room for more statistics of values or domains that requests bring, or a name is too long: "+
			"these requests are counted under the name of their rule", "names", len(s.byName), "bytes", s.taken,
			"max_bytes", s.budget, "max_name", maxName)
	}
	return false
}

// DomainNotFound counts the descriptors of a request whose domain has no rules.
func (s *Stats) DomainNotFound(domain string, descriptors int) {
	s.mu.RLock()
	n := s.notFound[domain]
	s.mu.RUnlock()
	if n == nil {
		n = s.newDomain(domain)
	}
	n.Add(uint64(descriptors))
}

func (s *Stats) newDomain(domain string) *atomic.Uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.notFound[domain]
	switch {
	case n != nil:
	case s.take(2 * len(domain)):
		n = new(atomic.Uint64)
		s.notFound[string([]byte(domain))] = n // the request's memory is not kept
	default:
		n = &s.unnamed
	}
	return n
}

// Unnamed returns how many hits, and descriptors of unknown domains, had no room for a name of their own.
func (s *Stats) Unnamed() uint64 { return s.unnamed.Load() }

// Each calls f with every statistic, sorted by what it is of.
func (s *Stats) Each(f func(name string, value uint64)) {
	const service, limit = "ratelimit.service.", "ratelimit.service.rate_limit."
	ok, failed := s.loads()
	f(service+"call.should_rate_limit.redis_error", 0) // no request waits for Redis
	f(service+"call.should_rate_limit.service_error", s.ServiceErrors.Load())
	f(service+"config_load_error", failed)
	f(service+"config_load_success", ok)
	f(service+"global_shadow_mode", s.GlobalShadow.Load())
	if unnamed := s.unnamed.Load(); unnamed > 0 { // which is none of theirs
		f(service+"hits_without_name", unnamed)
	}
	for _, e := range s.sorted() {
		if e.counts != nil {
			e.counts.each(func(suffix string, value uint64) { f(limit+e.name+suffix, value) })
		} else {
			f(limit+e.name+".domain_not_found", e.notFound)
		}
	}
	f("ratelimit_server.ShouldRateLimit.total_requests", s.Requests.Load())
}

// entry is the statistics of one name: of a rule or, without counts, of an unknown domain.
type entry struct {
	name     string
	counts   *counts
	notFound uint64
}

func (s *Stats) sorted() []entry {
	s.mu.RLock()
	all := make([]entry, 0, len(s.byName)+len(s.notFound))
	for name, c := range s.byName {
		all = append(all, entry{name: name, counts: c})
	}
	domains := make(map[string]uint64, len(s.notFound))
	for domain, n := range s.notFound {
		domains[sanitize(domain)] += n.Load()
	}
	s.mu.RUnlock()
	for _, domain := range slices.Sorted(maps.Keys(domains)) {
		all = append(all, entry{name: domain, notFound: domains[domain]})
	}
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	return all
}
