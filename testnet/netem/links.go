package netem

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// ErrPartitioned is the error of streams across a partition: of dials, and of open ones, which are reset.
var ErrPartitioned = errors.New("partitioned")

// Links are the links between the endpoints of a network. An endpoint is a "host:port" address as net.JoinHostPort
// writes it, and belongs to a group; links lead from group to group. Unregistered addresses belong to the group "".
//
// All methods are safe for concurrent use and take effect at once.
type Links struct {
	counters packetCounters

	mu         sync.Mutex
	rand       *rand.Rand
	groups     map[string]string // endpoint -> group
	within     Link
	between    Link
	links      map[direction]Link
	oneWay     map[direction]bool
	partitions []map[string]bool // for each: the groups on one side
	open       map[*openStream]struct{}
}

// direction is one way between two groups.
type direction struct{ from, to string }

// openStream is a stream between two endpoints. A partition of either direction resets it.
type openStream struct {
	dialer, acceptor string
	reset            func()
}

// NewLinks returns links without faults. All draws follow from the seed.
func NewLinks(seed uint64) *Links {
	return &Links{
		rand:   rand.New(rand.NewPCG(seed, 0x65646765)),
		groups: make(map[string]string),
		links:  make(map[direction]Link),
		oneWay: make(map[direction]bool),
		open:   make(map[*openStream]struct{}),
	}
}

// Register puts an endpoint in a group, or moves it there. It breaks no stream that is already open.
func (l *Links) Register(addr, group string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.groups[addr] = group
}

// SetDefaults sets the link of every direction that Set was not called for: within for endpoints of one group, between
// for endpoints of two. It panics on a link that does not Validate.
func (l *Links) SetDefaults(within, between Link) {
	mustBeValid(within, "the default within a group")
	mustBeValid(between, "the default between groups")
	l.mu.Lock()
	defer l.mu.Unlock()
	l.within, l.between = within, between
}

// Set sets the link from one group to another, in that direction only; from and to may be the same group. Delayed
// packets keep their delay. It panics on a link that does not Validate.
func (l *Links) Set(from, to string, link Link) {
	mustBeValid(link, fmt.Sprintf("from %q to %q", from, to))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.links[direction{from, to}] = link
}

func mustBeValid(link Link, which string) {
	if err := link.Validate(); err != nil {
		panic(fmt.Sprintf("netem: link %s: %v", which, err))
	}
}

// Partition separates these groups from all others, both ways; among themselves they stay connected. Partitions add up:
// after Partition("a") and Partition("b"), a, b and the rest are three sides.
func (l *Links) Partition(groups ...string) {
	side := make(map[string]bool, len(groups))
	for _, g := range groups {
		side[g] = true
	}
	l.partition(func() { l.partitions = append(l.partitions, side) })
}

// PartitionOneWay stops packets from one group to another; packets in the other direction pass. Streams need both
// directions: they are reset.
func (l *Links) PartitionOneWay(from, to string) {
	l.partition(func() { l.oneWay[direction{from, to}] = true })
}

// Heal undoes every Partition and PartitionOneWay. Links stay as they are set; streams must be dialed again.
func (l *Links) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partitions = nil
	clear(l.oneWay)
}

// partition makes the change and resets the streams that it separates.
func (l *Links) partition(change func()) {
	l.mu.Lock()
	change()
	var broken []*openStream
	for c := range l.open {
		if l.streamPartitioned(c.dialer, c.acceptor) {
			broken = append(broken, c)
			delete(l.open, c)
		}
	}
	l.mu.Unlock()
	for _, c := range broken {
		l.counters.reset.Add(1)
		c.reset()
	}
}

// send draws the delays of a packet's copies: none if it is lost or partitioned.
func (l *Links) send(from, to string) (delays []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counters.sent.Add(1)
	if l.partitioned(from, to) {
		l.counters.partitioned.Add(1)
		return nil
	}
	link := l.link(from, to)
	if chance(l.rand, link.Loss) {
		l.counters.lost.Add(1)
		return nil
	}
	copies := 1
	if chance(l.rand, link.Duplicate) {
		l.counters.duplicated.Add(1)
		copies = 2
	}
	for range copies {
		delay, heldBack := link.delayCopy(l.rand)
		if heldBack {
			l.counters.delayed.Add(1)
		}
		delays = append(delays, delay)
	}
	return delays
}

// arrives reports whether a copy that is due now may arrive: a partition may have come while it was delayed.
func (l *Links) arrives(from, to string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.partitioned(from, to) {
		l.counters.partitioned.Add(1)
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

// dialDelay draws the round trip time of a dial, or returns ErrPartitioned if either direction is partitioned.
func (l *Links) dialDelay(dialer, acceptor string) (time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.streamPartitioned(dialer, acceptor) {
		l.counters.refused.Add(1)
		return 0, ErrPartitioned
	}
	return l.link(dialer, acceptor).delay(l.rand) + l.link(acceptor, dialer).delay(l.rand), nil
}

// track calls reset, once and with no lock held, when a partition separates the stream's ends. The stream calls ended
// when it ends, once or more. If the ends are separated already, track returns ErrPartitioned.
func (l *Links) track(dialer, acceptor string, reset func()) (ended func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.streamPartitioned(dialer, acceptor) {
		l.counters.refused.Add(1)
		return nil, ErrPartitioned
	}
	c := &openStream{dialer: dialer, acceptor: acceptor, reset: reset}
	l.open[c] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.open, c)
	}, nil
}

// link, partitioned and streamPartitioned need the lock.
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

func (l *Links) partitioned(from, to string) bool {
	d := direction{l.groups[from], l.groups[to]}
	if l.oneWay[d] {
		return true
	}
	for _, side := range l.partitions {
		if side[d.from] != side[d.to] {
			return true
		}
	}
	return false
}

func (l *Links) streamPartitioned(a, b string) bool {
	return l.partitioned(a, b) || l.partitioned(b, a)
}
