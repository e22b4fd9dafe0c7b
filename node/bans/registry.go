package bans

import (
	"context"
	"log/slog"
	"math"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/bans/banname"
)

// Table is the part of counters.Table that a Registry follows.
type Table interface {
	WatchBans() <-chan struct{}
	ChangedBans(now int64, f func(m *counters.Meter, key counters.Key))
	RelistBans()
	BanEnds(b *counters.Bans, key counters.Key, now int64) int64
}

// MaxBans is how many bans a Registry knows. Manual bans take the place of rules' own: those hold all the same, and are
// listed and exported once there is room. A manual ban for which there is none does not hold.
const MaxBans = 1 << 20

// The registry and the exports look for changes no more often than this: 100,000 bans cost some 20 ms each time.
const (
	minPause = 50 * time.Millisecond
	maxPause = 500 * time.Millisecond
	// tick is the longest time between two looks at the clock while somebody is banned.
	tick = time.Second
)

// Registry knows the bans in force. It is safe for concurrent use.
type Registry struct {
	table   Table
	now     func() int64
	nameOf  func(fullName string) string // of a rule
	log     *slog.Logger
	changed <-chan struct{}
	manual  atomic.Pointer[Manual]
	max     int

	unlisted, refused atomic.Uint64 // see Unlisted and Refused

	mu      sync.Mutex                // the table's locks are taken after it
	meters  map[counters.Meter]*meter // those with bans
	bans    int                       // of all meters
	manuals int                       // how many of them are manual
	missing bool                      // others are not there for want of room
	lacking bool                      // and manual ones among them
	next    int64                     // no ban ends before it
	waiting []chan struct{}           // each receives after a change
}

// meter is a meter of bans.
type meter struct {
	*counters.Bans
	name banname.Name
	ends map[counters.Key]int64 // in nanoseconds since the Unix epoch
}

// NewRegistry returns a registry of so many of the table's bans, which has to be new. now is the node's clock, in
// nanoseconds since the Unix epoch; nameOf returns the name of the rule of a full name.
func NewRegistry(table Table, max int, now func() int64, nameOf func(string) string, log *slog.Logger) *Registry {
	return &Registry{table: table, now: now, nameOf: nameOf, log: log, changed: table.WatchBans(), max: max,
		next: math.MaxInt64, meters: make(map[counters.Meter]*meter)}
}

// Run follows the table until ctx ends.
func (r *Registry) Run(ctx context.Context) {
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		changed := false
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
			changed = true
		case <-timer.C:
		}
		began := time.Now()
		wait := r.Update()
		if !changed && wait >= tick { // as usual while nobody is banned: nothing needs a pause
			timer.Reset(tick)
			continue
		}
		timer.Reset(min(max(10*time.Since(began), minPause), maxPause)) // what changes meanwhile comes together
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(min(wait, tick))
	}
}

// Update learns at once what has changed in the table. It returns how long until the next ban ends, at most tick.
func (r *Registry) Update() (wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	u := update{Registry: r, now: now}
	if r.next <= now {
		u.expire()
	}
	r.table.ChangedBans(now, u.note)
	if r.missing && r.bans < r.max-r.max/8 || r.lacking && r.manuals < r.max {
		r.missing, r.lacking = false, false
		r.table.RelistBans()
	}
	if u.manual {
		r.manual.Store(r.newManual())
	}
	if u.dirty {
		r.notify()
	}
	return time.Duration(min(max(r.next-now, 0), int64(tick)))
}

// Refresh has the exports look again, as after a change of rules.
func (r *Registry) Refresh() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notify()
}

func (r *Registry) notify() {
	for _, c := range r.waiting {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// subscribe returns a channel that receives after changes, at once if there may have been one.
func (r *Registry) subscribe() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := make(chan struct{}, 1)
	c <- struct{}{}
	r.waiting = append(r.waiting, c)
	return c
}

// update is one call of Update. The registry is locked.
type update struct {
	*Registry
	now    int64
	last   *counters.Meter
	meter  *meter // of last; nil: its name means nothing
	victim *meter // whose bans make room for manual ones
	dirty  bool   // bans have changed
	manual bool   // and manual ones
}

// note learns of a ban that has changed.
func (u *update) note(m *counters.Meter, key counters.Key) {
	if m != u.last {
		u.last, u.meter = m, u.meterOf(m)
	}
	if u.meter == nil {
		return
	}
	ends := u.table.BanEnds(u.meter.Bans, key, u.now)
	known := u.meter.ends[key]
	if ends != known && (ends == 0 || known != 0 || u.bans < u.max || u.makeRoom()) {
		u.set(u.meter, key, ends)
	}
	u.release(u.meter)
}

// makeRoom makes room for a ban of u.meter in a full registry: a manual one takes the place of another one. It reports
// what is not there afterwards; ok is false if that is the ban itself.
func (u *update) makeRoom() (ok bool) {
	u.missing = true
	manual := u.meter.name.Keys.Manual()
	if manual && u.manuals >= u.max {
		u.lacking = true
		if u.refused.Add(1) == 1 {
			u.log.Error("there are too many bans by hand: those beyond do not hold on this node; remove some",
				"hold", u.max)
		}
		return false
	}
	if u.unlisted.Add(1) == 1 {
		u.log.Warn("there are more bans than are listed and exported; they hold all the same", "listed", u.max)
	}
	if !manual {
		return false
	}
	if u.victim == nil || len(u.victim.ends) == 0 {
		for _, m := range u.meters { // in random order, as are its keys
			if u.victim = m; !m.name.Keys.Manual() {
				break
			}
		}
	}
	for key := range u.victim.ends {
		u.set(u.victim, key, 0)
		break
	}
	u.release(u.victim)
	return true
}

// meterOf returns a meter, which may have no bans yet; nil for one whose name means nothing.
func (u *update) meterOf(m *counters.Meter) *meter {
	if known := u.meters[*m]; known != nil {
		return known
	}
	bans, err := counters.NewBans(*m)
	if err != nil {
		return nil
	}
	name, ok := banname.Parse(m.Rule)
	if !ok {
		return nil
	}
	u.meters[*m] = &meter{bans, name, make(map[counters.Key]int64)}
	return u.meters[*m]
}

// release forgets a meter without bans.
func (u *update) release(m *meter) {
	if len(m.ends) == 0 {
		delete(u.meters, m.Meter())
		u.last = nil
	}
}

// set notes when a ban ends; 0: it does not hold any more.
func (u *update) set(m *meter, key counters.Key, ends int64) {
	before := len(m.ends)
	if ends == 0 {
		delete(m.ends, key)
	} else {
		m.ends[key] = ends
		u.next = min(u.next, ends)
	}
	more := len(m.ends) - before
	u.bans += more
	if u.dirty = true; m.name.Keys.Manual() {
		u.manual = true
		u.manuals += more
	}
}

// expire forgets the bans that have ended.
func (u *update) expire() {
	u.next = math.MaxInt64
	for _, m := range u.meters {
		for key, ends := range m.ends {
			if ends <= u.now {
				u.set(m, key, 0)
			} else {
				u.next = min(u.next, ends)
			}
		}
		u.release(m)
	}
}

// Counts returns how many bans are in force by rule, as [Rule] names it.
func (r *Registry) Counts() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := make(map[string]int)
	for _, m := range r.meters {
		rule, _ := Rule(m.name.Rule)
		counts[rule] += len(m.ends)
	}
	return counts
}

// Unlisted returns how often a rule's ban was not taken into the registry, or given up, because that is full.
func (r *Registry) Unlisted() uint64 { return r.unlisted.Load() }

// Refused returns how often a manual ban came, as from a peer, for which there was no room: it does not hold here.
func (r *Registry) Refused() uint64 { return r.refused.Load() }

// HasRoom reports whether so many more manual bans would hold.
func (r *Registry) HasRoom(more int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.manuals+more <= r.max
}

// Manual returns the manual bans in force, nil while there are none.
func (r *Registry) Manual() *Manual { return r.manual.Load() }

// Target is whom bans are of: a key that the rule counts by, if HasKey, and an address or a prefix, if valid.
type Target struct {
	Key    counters.Key
	HasKey bool
	Addr   netip.Addr
	Prefix netip.Prefix
}

// Found is a ban that the registry knows.
type Found struct {
	Bans *counters.Bans
	Key  counters.Key
}

// Find returns the bans in force of a target under a rule, by its full name, also those that began when the rule had
// another length of bans, another scope, or counted IPv6 otherwise. A ban of a prefix is found by that prefix alone.
func (r *Registry) Find(fullName string, of Target) (found []Found) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for _, m := range r.meters {
		if rule, _ := Rule(m.name.Rule); rule != fullName {
			continue
		}
		if key, ok := of.keyOf(&m.name); ok && m.ends[key] > now {
			found = append(found, Found{m.Bans, key})
		}
	}
	return found
}

// keyOf returns the target's key in the meters of a name; ok is false if it has none there.
func (of *Target) keyOf(name *banname.Name) (key counters.Key, ok bool) {
	if name.Keys == banname.RuleKeys || name.Keys == banname.ManualKeys {
		return of.Key, of.HasKey
	}
	if name.Keys == banname.AddressKeys && of.Addr.IsValid() {
		return banname.AddressKey(of.Addr, int(name.Bits))
	}
	key, _, ok = banname.PrefixKey(of.Prefix)
	return key, ok && name.Prefix(key) == of.Prefix
}

// Spare says whether a banned address or prefix is to be blocked before its requests reach a node, and why not.
type Spare uint8

// The values of Spare.
const (
	Blocked     Spare = iota
	AllowListed       // some of it is on the allow list of the rule: that is not denied
	Protected         // some of it is not one client: its bans deny requests, and are not exported
)

func (s Spare) String() string {
	return [...]string{"", "they hold addresses on the allow list of their rule: ban the rest of each",
		"they hold addresses of this machine, of proxies, or of no client, which are never blocked"}[s]
}

// Spares says what is spared of the bans of a meter; nil: nothing.
type Spares func(p netip.Prefix) Spare

// Selection reports whether the bans of a meter, and of what its name says, are wanted, and which are spared.
type Selection func(b *counters.Bans, name *banname.Name) (spares Spares, ok bool)

// each calls do for each ban that ends after now, of the meters that f selects. The registry is locked meanwhile: some
// 20 ms for 100,000 bans.
func (r *Registry) each(f Selection, now int64, do func(m *meter, key counters.Key, ends int64, spared Spare)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.meters {
		spares, ok := f(m.Bans, &m.name)
		if !ok {
			continue
		}
		for key, ends := range m.ends {
			if ends <= now {
				continue
			}
			spared := Blocked
			if spares != nil {
				spared = spares(m.name.Prefix(key))
			}
			do(m, key, ends, spared)
		}
	}
}

// Rule returns the full name and the scope of the rule that a limit's meter names.
func Rule(meter string) (fullName string, scope counters.Scope) {
	scope, _ = counters.Meter{Rule: meter}.Home()
	fullName, _, _ = strings.Cut(meter, "%@")
	return fullName, scope
}
