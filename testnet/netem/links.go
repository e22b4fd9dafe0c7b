package netem

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
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
	mu         sync.Mutex
	counts     Counts
	rand       *rand.Rand
	groups     map[string]string // endpoint -> group
	within     Link
	between    Link
	links      map[direction]Link
	oneWay     map[direction]bool
	noStreams  map[direction]bool // from the dialer
	partitions []map[string]bool  // for each: the groups on one side
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
		rand:      rand.New(rand.NewPCG(seed, 0x65646765)),
		groups:    make(map[string]string),
		links:     make(map[direction]Link),
		oneWay:    make(map[direction]bool),
		noStreams: make(map[direction]bool),
		open:      make(map[*openStream]struct{}),
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

// BlockStreams stops the streams that one group opens to another, as a firewall does that lets packets pass: open ones
// are reset.
func (l *Links) BlockStreams(from, to string) {
	l.partition(func() { l.noStreams[direction{from, to}] = true })
}

// Heal undoes every Partition, PartitionOneWay and BlockStreams. Links stay as they are set; streams must be dialed
// again.
func (l *Links) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partitions = nil
	clear(l.oneWay)
	clear(l.noStreams)
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
	l.counts.Reset += uint64(len(broken))
	l.mu.Unlock()
	for _, c := range broken {
		c.reset()
	}
}

// Counts returns the counts so far.
func (l *Links) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// carry sends a packet: it calls deliver for every copy that arrives, through the queue of those that are delayed; nil
// stands for no receiver. Each copy has bytes of its own, because memberlist decrypts in place. carry returns the error
// of a copy without delay, or net.ErrClosed if the queue is closed.
func (l *Links) carry(from, to string, b []byte, queue *delayedPackets, deliver func(b []byte) error) (err error) {
	for _, delay := range l.send(from, to) {
		packet := bytes.Clone(b)
		scheduled := queue.schedule(delay, func() {
			if !l.arrives(from, to) {
				return
			}
			failure := deliver(packet)
			l.countDelivery(failure)
			if delay <= 0 && failure != nil { // a delayed packet comes after carry has returned
				err = failure
			}
		})
		if !scheduled {
			l.countDelivery(net.ErrClosed)
			err = net.ErrClosed
		}
	}
	return err
}

func (l *Links) countDelivery(err error) {
	if err != nil {
		l.countDropped(1)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Delivered++
}

func (l *Links) countDropped(copies int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Dropped += uint64(copies)
}

// send draws the delays of a packet's copies: none if it is lost or partitioned.
func (l *Links) send(from, to string) (delays []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Sent++
	if l.partitioned(from, to) {
		l.counts.Partitioned++
		return nil
	}
	link := l.link(from, to)
	if chance(l.rand, link.Loss) {
		l.counts.Lost++
		return nil
	}
	copies := 1
	if chance(l.rand, link.Duplicate) {
		l.counts.Duplicated++
		copies = 2
	}
	for range copies {
		delay, heldBack := link.delayCopy(l.rand)
		if heldBack {
			l.counts.Delayed++
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
		l.counts.Partitioned++
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
		l.counts.Refused++
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
		l.counts.Refused++
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

// Counts are the packets and streams so far. Of packets:
//
//	Sent + Duplicated = Delivered + Lost + Partitioned + Dropped + those still delayed
type Counts struct {
	// Sent counts the packets that were sent; Delivered the copies that reached the receiver's queue (in memory) or the
	// real transport (wrapped).
	Sent, Delivered uint64
	// Lost and Duplicated count packets; Delayed counts the copies held back by Reorder.
	Lost, Duplicated, Delayed uint64
	// Partitioned counts the packets and copies that a partition stopped.
	Partitioned uint64
	// Dropped counts the copies that the receiver did not take: no endpoint at that address, its queue full, its
	// transport shut down, or an error of the real transport.
	Dropped uint64
	// Refused counts the dials that a partition stopped; Reset the open streams that it closed.
	Refused, Reset uint64
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
	separates := func(side map[string]bool) bool { return side[d.from] != side[d.to] }
	return l.oneWay[d] || slices.ContainsFunc(l.partitions, separates)
}

func (l *Links) streamPartitioned(dialer, acceptor string) bool {
	return l.noStreams[direction{l.groups[dialer], l.groups[acceptor]}] || l.partitioned(dialer, acceptor) ||
		l.partitioned(acceptor, dialer)
}

const (
	// holdBackMin delays a packet until the others of the same burst have overtaken it.
	holdBackMin = time.Millisecond
	// holdBackMax is two ticks of 100 ms: a frame held back may arrive behind the frames of the next two ticks.
	holdBackMax = 200 * time.Millisecond
)

// Link holds the properties of the way from one group to another, in that direction only. The zero value loses nothing
// and takes no time.
//
// Streams are reliable and ordered, as TCP is: only Latency and Jitter touch them.
type Link struct {
	// Latency is the one-way delay.
	Latency time.Duration
	// Jitter adds a delay that each packet draws uniformly from [0, Jitter].
	Jitter time.Duration
	// Loss is the probability, 0 to 1, that a packet is lost.
	Loss float64
	// Duplicate is the probability, 0 to 1, that a packet which is not lost arrives twice, each copy with its own
	// delay.
	Duplicate float64
	// Reorder is the probability, 0 to 1, that a copy is held back so that later ones overtake it: by Jitter and
	// another 1 to 200 ms on top of its delay.
	Reorder float64
}

// Validate reports all negative durations and all probabilities outside [0, 1].
func (k Link) Validate() error {
	var errs []error
	check := func(ok bool, format string, value any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, value))
		}
	}
	check(k.Latency >= 0, "latency is %v, give a duration of 0 or more", k.Latency)
	check(k.Jitter >= 0, "jitter is %v, give a duration of 0 or more", k.Jitter)
	check(k.Loss >= 0 && k.Loss <= 1, "loss is %v, give a probability from 0 to 1", k.Loss)
	check(k.Duplicate >= 0 && k.Duplicate <= 1, "duplicate is %v, give a probability from 0 to 1", k.Duplicate)
	check(k.Reorder >= 0 && k.Reorder <= 1, "reorder is %v, give a probability from 0 to 1", k.Reorder)
	return errors.Join(errs...)
}

// delay draws the delay of a packet that is not held back.
func (k Link) delay(r *rand.Rand) time.Duration { return k.Latency + between(r, 0, k.Jitter) }

// delayCopy draws the delay of one copy of a packet, and whether it is held back.
func (k Link) delayCopy(r *rand.Rand) (delay time.Duration, heldBack bool) {
	delay = k.delay(r)
	if !chance(r, k.Reorder) {
		return delay, false
	}
	return delay + k.Jitter + between(r, holdBackMin, holdBackMax), true
}

func chance(r *rand.Rand, p float64) bool { return p > 0 && r.Float64() < p }

// between draws uniformly from [low, high].
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(r.Int64N(int64(high-low)+1))
}
