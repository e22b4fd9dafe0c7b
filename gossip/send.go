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
	maxStream = 16      // snapshots on their way, one to each peer; the others wait
	// maxStreamed is how many bytes they have together, if they are more than two: sending one takes thrice as much
	// memory as it has bytes.
	maxStreamed = 2 * maxSnapshot
)

// outbox spreads the packets of an interval over most of it, where there are many. An early flush does not wait behind
// them, and a peer whose stream is slow holds up only itself.
type outbox struct {
	pause   time.Duration // between bursts
	dropped atomic.Uint64

	mu      sync.Mutex
	paced   []delivery
	waiting chan struct{}           // something is in paced
	streams map[counters.Origin]int // to whom a snapshot is on its way, and its bytes
	queue   []*route                // who waits for one
	latest  []byte                  // what they get: the same for all
	detours map[counters.Origin]*detourQueue
}

// delivery is a message and how it goes.
type delivery struct {
	Message
	route *route
}

func newOutbox(interval time.Duration) *outbox {
	return &outbox{pause: interval / 10, waiting: make(chan struct{}, 1), streams: make(map[counters.Origin]int),
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

// sendStream sends a snapshot over a stream in the background, after those that wait already. One that waits is the
// latest when its turn comes: so snapshots take as much memory as are under way, and one more. The replica repeats one
// that was not sent.
func (c *Cluster) sendStream(r *route, b []byte) {
	s, o := c.outbox, r.member.Origin()
	s.mu.Lock()
	_, underWay := s.streams[o]
	waits := false
	for i, w := range s.queue {
		if w.member.Origin() == o {
			s.queue[i], waits = r, true
		}
	}
	if !underWay {
		s.latest = b
		if !waits {
			s.queue = append(s.queue, r)
		}
	}
	s.mu.Unlock()
	if underWay {
		c.snapshotFailed(r, errors.New("another one is under way"))
		return
	}
	c.sendQueued()
}

// nextStream takes the first that waits, if another snapshot may be under way.
func (s *outbox) nextStream() (r *route, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	bytes := len(s.latest)
	for _, n := range s.streams {
		bytes += n
	}
	if len(s.queue) == 0 || len(s.streams) == maxStream || len(s.streams) >= 2 && bytes > maxStreamed {
		return nil, nil
	}
	r, b = s.queue[0], s.latest
	if s.queue = s.queue[1:]; len(s.queue) == 0 {
		s.queue, s.latest = nil, nil
	}
	s.streams[r.member.Origin()] = len(b)
	return r, b
}

// sendQueued sends snapshots to those that wait, in the background, as many as may be under way.
func (c *Cluster) sendQueued() {
	s := c.outbox
	for r, b := s.nextStream(); r != nil; r, b = s.nextStream() {
		go func() {
			if err := r.pool.ml().SendReliable(&r.node, b); err != nil {
				c.snapshotFailed(r, err)
			}
			s.mu.Lock()
			delete(s.streams, r.member.Origin())
			s.mu.Unlock()
			c.sendQueued()
		}()
	}
}

func (c *Cluster) snapshotFailed(r *route, err error) {
	c.log.Debug("gossip: snapshot not sent", "peer", r.member.NodeID, "error", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replica.SnapshotFailed(r.member.Origin())
}
