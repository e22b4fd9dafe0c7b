package gossiptest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// ErrCut is why a stream across a cut link cannot be opened or goes on no longer.
var ErrCut = errors.New("link is cut")

// Links is the weather between the endpoints of a network. Endpoints are known by their "host:port" address, spelled as
// net.JoinHostPort spells it, and belong to groups; links lead from group to group. An address that was never registered
// belongs to the group "".
//
// Make one with NewLinks. All methods are safe for concurrent use and take effect at once.
type Links struct {
	tally tally

	mu      sync.Mutex
	rand    *rand.Rand
	groups  map[string]string // endpoint -> group
	within  Link
	between Link
	links   map[direction]Link
	cuts    map[direction]bool
	islands []map[string]bool // each partition: the groups on one of its two sides
	open    map[*crossing]struct{}
}

// direction is one way between two groups.
type direction struct{ from, to string }

// crossing is a stream between two endpoints: a cut of either direction breaks it, for neither way lives without the other.
type crossing struct {
	dialler, acceptor string
	sever             func()
}

// NewLinks returns perfect links, none of them cut, whose draws follow from the seed.
func NewLinks(seed uint64) *Links {
	return &Links{
		rand:   rand.New(rand.NewPCG(seed, 0x65646765)),
		groups: make(map[string]string),
		links:  make(map[direction]Link),
		cuts:   make(map[direction]bool),
		open:   make(map[*crossing]struct{}),
	}
}

// Register puts an endpoint in a group, or moves it there. It breaks no stream that is already open.
func (l *Links) Register(addr, group string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.groups[addr] = group
}

// SetDefaults sets the link of every direction that Set was not called for: within for endpoints of one group, between for
// endpoints of two. It panics on a link that does not Validate.
func (l *Links) SetDefaults(within, between Link) {
	mustBeValid(within, "the default within a group")
	mustBeValid(between, "the default between groups")
	l.mu.Lock()
	defer l.mu.Unlock()
	l.within, l.between = within, between
}

// Set sets the link from one group to another, in that direction only; from and to may be the same group. Packets already
// in the air keep the delay that they drew. It panics on a link that does not Validate.
func (l *Links) Set(from, to string, link Link) {
	mustBeValid(link, fmt.Sprintf("from %q to %q", from, to))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.links[direction{from, to}] = link
}

func mustBeValid(link Link, which string) {
	if err := link.Validate(); err != nil {
		panic(fmt.Sprintf("gossiptest: link %s: %v", which, err))
	}
}

// Partition cuts the groups given off from all others, both ways; among themselves they stay connected. Partitions add up:
// Partition("a") and then Partition("b") leave a, b and the rest each on their own.
func (l *Links) Partition(groups ...string) {
	island := make(map[string]bool, len(groups))
	for _, g := range groups {
		island[g] = true
	}
	l.cut(func() { l.islands = append(l.islands, island) })
}

// Cut stops everything from one group to another, one way: packets still come back. Streams need both ways, so they break
// whichever is cut.
func (l *Links) Cut(from, to string) {
	l.cut(func() { l.cuts[direction{from, to}] = true })
}

// Heal undoes every Partition and Cut. The links keep their latency, loss and so on; streams have to be dialled again.
func (l *Links) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.islands = nil
	clear(l.cuts)
}

// cut makes the change and breaks the streams that it leaves without a way.
func (l *Links) cut(change func()) {
	l.mu.Lock()
	change()
	var broken []*crossing
	for c := range l.open {
		if l.isCutForStreams(c.dialler, c.acceptor) {
			broken = append(broken, c)
			delete(l.open, c)
		}
	}
	l.mu.Unlock()
	for _, c := range broken {
		l.tally.severed.Add(1)
		c.sever()
	}
}

// depart draws the fate of a packet that leaves now: the delays of the copies that will arrive, none if it is lost or cut.
func (l *Links) depart(from, to string) (delays []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally.sent.Add(1)
	if l.isCut(from, to) {
		l.tally.cut.Add(1)
		return nil
	}
	link := l.link(from, to)
	if chance(l.rand, link.Loss) {
		l.tally.lost.Add(1)
		return nil
	}
	copies := 1
	if chance(l.rand, link.Duplicate) {
		l.tally.duplicated.Add(1)
		copies = 2
	}
	for range copies {
		delay, heldBack := link.delayCopy(l.rand)
		if heldBack {
			l.tally.delayed.Add(1)
		}
		delays = append(delays, delay)
	}
	return delays
}

// arrives tells whether a copy that is due now still finds its way: the link may have been cut while it was in the air.
func (l *Links) arrives(from, to string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut(from, to) {
		l.tally.cut.Add(1)
		return false
	}
	return true
}

// streamDelay draws the one-way delay of a piece of a stream.
func (l *Links) streamDelay(from, to string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.link(from, to).delay(l.rand)
}

// dialDelay draws the round trip that it takes to open a stream, or refuses if either direction is cut.
func (l *Links) dialDelay(dialler, acceptor string) (time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCutForStreams(dialler, acceptor) {
		l.tally.refused.Add(1)
		return 0, ErrCut
	}
	return l.link(dialler, acceptor).delay(l.rand) + l.link(acceptor, dialler).delay(l.rand), nil
}

// cross watches over a stream from now on: sever is called, once and with no lock held, when a cut breaks it. The stream
// calls ended when it is over; calling it again is harmless. If the link is cut already, cross refuses.
func (l *Links) cross(dialler, acceptor string, sever func()) (ended func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCutForStreams(dialler, acceptor) {
		l.tally.refused.Add(1)
		return nil, ErrCut
	}
	c := &crossing{dialler: dialler, acceptor: acceptor, sever: sever}
	l.open[c] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.open, c)
	}, nil
}

// link, isCut and isCutForStreams need the lock.
func (l *Links) link(from, to string) Link {
	d := direction{l.groups[from], l.groups[to]}
	if link, ok := l.links[d]; ok {
		return link
	}
	if d.from == d.to {
		return l.within
	}
	return l.between
}

func (l *Links) isCut(from, to string) bool {
	d := direction{l.groups[from], l.groups[to]}
	if l.cuts[d] {
		return true
	}
	for _, island := range l.islands {
		if island[d.from] != island[d.to] {
			return true
		}
	}
	return false
}

func (l *Links) isCutForStreams(a, b string) bool {
	return l.isCut(a, b) || l.isCut(b, a)
}
