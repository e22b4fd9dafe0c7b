package gossip

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

const (
	// burst is how many packets leave at once; memberlist's receive queue holds 1024 from all peers together, then
	// drops.
	burst     = 128
	maxPaced  = 1 << 14 // packets that wait for their turn
	maxStream = 16      // snapshots on their way, one to each peer
)

// outbox spreads the packets of an interval over most of it, where there are many. An early flush does not wait behind
// them, and a peer whose stream is slow holds up only itself.
type outbox struct {
	pause   time.Duration // between bursts
	dropped atomic.Uint64

	mu      sync.Mutex
	paced   []delivery
	waiting chan struct{}            // something is in paced
	streams map[counters.Origin]bool // to whom a snapshot is on its way
	detours map[counters.Origin]*detourQueue
}

// delivery is a message and how it goes.
type delivery struct {
	Message
	route *route
}

func newOutbox(interval time.Duration) *outbox {
	return &outbox{pause: interval / 10, waiting: make(chan struct{}, 1), streams: make(map[counters.Origin]bool),
		detours: make(map[counters.Origin]*detourQueue)}
}

// send delivers messages of the replica: at once if they are urgent, or few; otherwise the first of them, and the rest
// after what waits already. It does not wait. messages is called under the lock.
func (c *Cluster) send(messages func() []Message, urgent bool) {
	var out []delivery
	c.mu.Lock()
	for _, m := range messages() {
		if r := c.routes[m.To]; r != nil {
			out = append(out, delivery{m, r})
		}
	}
	c.mu.Unlock()
	s := c.outbox
	s.mu.Lock()
	now := len(out)
	if !urgent {
		now = min(now, max(0, burst-len(s.paced)))
		later := out[now:]
		if n := max(0, len(s.paced)+len(later)-maxPaced); n > 0 { // the oldest are the least worth
			s.dropped.Add(uint64(n))
			s.paced = s.paced[min(n, len(s.paced)):]
		}
		s.paced = append(s.paced, later[max(0, len(later)-maxPaced):]...)
	}
	waits := len(s.paced) > 0
	s.mu.Unlock()
	if waits {
		select {
		case s.waiting <- struct{}{}:
		default:
		}
	}
	c.deliver(out[:now])
}

// sendPaced sends what waits, a burst at a time, until ctx ends; then what is left at once: it is the last.
func (c *Cluster) sendPaced(ctx context.Context) {
	s := c.outbox
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-s.waiting:
		}
		for sleep(ctx, s.pause) && c.deliver(s.next(burst, 8)) > 0 {
		}
	}
	c.deliver(s.next(maxPaced, 1))
}

// next takes n of the messages that wait, or a part of them if that is more.
func (s *outbox) next(n, part int) []delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(max(n, len(s.paced)/part), len(s.paced))
	next := s.paced[:n:n]
	if s.paced = s.paced[n:]; len(s.paced) == 0 {
		s.paced = nil
	}
	return next
}

func (c *Cluster) deliver(out []delivery) int {
	for _, d := range out {
		if d.Reliable {
			c.sendStream(d.route, d.Data)
		} else if err := d.route.pool.ml().SendBestEffort(&d.route.node, d.Data); err != nil {
			c.log.Debug("gossip: packet not sent", "peer", d.route.member.NodeID, "error", err)
		}
	}
	c.sendDetours(out)
	return len(out)
}

// sendStream sends a snapshot over a stream in the background, unless one is on its way to the peer, or too many to
// others. The replica repeats one that was not sent.
func (c *Cluster) sendStream(r *route, b []byte) {
	s, o := c.outbox, r.member.Origin()
	s.mu.Lock()
	free := len(s.streams) < maxStream && !s.streams[o]
	if free {
		s.streams[o] = true
	}
	s.mu.Unlock()
	if !free {
		c.snapshotFailed(r, errors.New("others are under way"))
		return
	}
	go func() {
		err := r.pool.ml().SendReliable(&r.node, b)
		s.mu.Lock()
		delete(s.streams, o)
		s.mu.Unlock()
		if err != nil {
			c.snapshotFailed(r, err)
		}
	}()
}

func (c *Cluster) snapshotFailed(r *route, err error) {
	c.log.Debug("gossip: snapshot not sent", "peer", r.member.NodeID, "error", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replica.SnapshotFailed(r.member.Origin())
}
