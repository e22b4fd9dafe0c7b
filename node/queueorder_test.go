package node

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/limits"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Turns that stores give out may join in any order: each goes at its own time, and who leaves moves those behind it up
// by no more than what it takes.
func TestTurnsJoinInAnyOrder(t *testing.T) {
	l, err := counters.NewLimit(counters.NewMeter("q", counters.LeakyQueue, time.Second), 1)
	testkit.Must(t, err)
	base := time.Now().Add(time.Hour)
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		q := queues{withdraw: func(*turn) {}, requests: limits.NewBudget("", "queue", 1000, nil),
			headers: limits.NewBudget("", "queue_headers", 1, nil)}
		at := make(map[*turn]time.Time)
		var waiting []*heldRequest
		for range 40 {
			if len(waiting) > 0 && r.IntN(4) == 0 {
				i := r.IntN(len(waiting))
				q.leave(waiting[i])
				delete(at, &waiting[i].turns[0])
				waiting = slices.Delete(waiting, i, i+1)
				// Where those behind are now is TestQueue's; here they only have to be in order.
				for _, in := range q.byKey {
					turns := in.next
					for u := in.first; u != nil; u = u.next {
						turns = turns.Add(u.after)
						if turns.After(at[u]) {
							t.Fatalf("seed %d: a turn moved back by %v", seed, turns.Sub(at[u]))
						}
						at[u] = turns
					}
				}
				continue
			}
			h := &heldRequest{ready: make(chan struct{}), left: 1, turns: make([]turn, 1)}
			h.turns[0] = turn{request: h, limit: l, key: 1, cost: 1, span: time.Second}
			due := base.Add(time.Duration(r.IntN(20)) * time.Second)
			q.take(h)
			q.join(&h.turns[0], pendingKey{"q", 1}, due)
			at[&h.turns[0]], waiting = due, append(waiting, h)
			checkQueue(t, seed, &q, at)
		}
		for _, h := range waiting {
			q.leave(h)
		}
		if left := q.requests.Stats().Used; len(q.byKey) != 0 || left != 0 {
			t.Fatalf("seed %d: %d wait in %d queues", seed, left, len(q.byKey))
		}
	}
}

// checkQueue compares the only queue with when each turn should be.
func checkQueue(t *testing.T, seed uint64, q *queues, at map[*turn]time.Time) {
	t.Helper()
	for _, in := range q.byKey {
		var before *turn
		turns, count := in.next, 0
		for u := in.first; u != nil; u = u.next {
			turns = turns.Add(u.after)
			if !turns.Equal(at[u]) || u.prev != before || u.after < 0 || u == in.first && u.after != 0 {
				t.Fatalf("seed %d: turn %d is %v off", seed, count, turns.Sub(at[u]))
			}
			before = u
			count++
		}
		if count != len(at) || in.last != before || !in.end.Equal(turns) {
			t.Fatalf("seed %d: %d turns, want %d; the last is at %v, want %v", seed, count, len(at), in.end, turns)
		}
	}
}
