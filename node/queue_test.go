package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/limits"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// queueRule is a queue in which each client takes a turn every 100 ms.
const queueRule = "rate_limit: {name: q, algorithm: leaky_bucket, queue: true, unit: second, requests_per_unit: 10, "

// line is the requests of one client that stand in a queue, and the order in which they leave.
type line struct {
	*testing.T
	node  *Node
	began time.Time

	mu     sync.Mutex
	passed []departure
	ended  sync.WaitGroup
}

type departure struct {
	request int
	at      time.Duration // since the line began
}

// queued returns how many requests wait, the bytes of their headers, and how many were denied for want of a place.
func (n *Node) queued() (requests, bytes int, denied uint64) {
	places, headers := n.queues.requests.Stats(), n.queues.headers.Stats()
	for _, b := range []limits.BudgetStats{places, headers} {
		for _, count := range b.Refused {
			denied += count
		}
	}
	return int(places.Used), int(headers.Used), denied
}

// number is how many queues there are.
func (q *queues) number() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.byKey)
}

// join has a request stand in line. leave has it hang up. It returns false if it was denied.
func (l *line) join(request int) (leave func(), ok bool) {
	req := ask(by("client", "x"))
	d, pending := begin(l.T, l.node, &req)
	if !d.Allowed {
		return nil, false
	}
	ctx, leave := context.WithCancel(l.Context())
	l.ended.Go(func() {
		if pending != nil {
			if charges, err := pending.Wait(ctx); err != nil || charges {
				return
			}
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.passed = append(l.passed, departure{request, time.Since(l.began)})
	})
	return leave, true
}

// empty waits until nobody stands in line, and checks that nothing is left of those who did.
func (l *line) empty() {
	l.Helper()
	l.ended.Wait()
	if requests, bytes, _ := l.node.queued(); requests != 0 || bytes != 0 || l.node.queues.number() != 0 {
		l.Errorf("%d requests of %d bytes are left in %d queues", requests, bytes, l.node.queues.number())
	}
}

// One hundred requests at once leave at ten a second, in order, and nobody waits longer than max_wait. One more than
// these are denied at once.
func TestQueueShapes(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		for maxWait, admits := range map[time.Duration]int{20 * time.Second: 100, 5 * time.Second: 51} {
			l := line{T: t, node: idle(t, single(queueRule+"max_wait: "+maxWait.String()+"}")), began: time.Now()}
			admitted := 0
			for i := range 100 {
				if _, ok := l.join(i); ok {
					admitted++
				}
			}
			l.empty()
			if admitted != admits || len(l.passed) != admits {
				t.Errorf("max_wait %v: %d are admitted, %d leave, want %d", maxWait, admitted, len(l.passed), admits)
			}
			for i, d := range l.passed {
				want := time.Duration(i) * 100 * time.Millisecond
				if d.request != i || d.at < want || d.at > want+want/20 || d.at > maxWait {
					t.Errorf("max_wait %v: departure %d is %+v, want it at %v", maxWait, i, d, want)
				}
			}
		}
	})
}

// Requests that hang up free their places: those behind them move up, so that while anybody waits one leaves every
// 100 ms, in order. Counts of peers only ever make them wait for longer.
func TestQueueMovesUp(t *testing.T) {
	for seed := range uint64(testkit.Tenth(200)) {
		testkit.VirtualTime(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			l := line{T: t, node: idle(t, single(queueRule+"burst: 30}")), began: time.Now()}
			var leaves []func()
			peers := r.IntN(2) == 0
			stayed := make(map[int]bool)
			for i := range 200 {
				switch {
				case peers && r.IntN(20) == 0:
					mergeOne(l.node, uint64(i+1))
				case r.IntN(3) == 0 && len(leaves) > 0:
					which := r.IntN(len(leaves))
					leaves[which]()
					delete(stayed, which)
				default:
					if leave, ok := l.join(len(leaves)); ok {
						stayed[len(leaves)] = true
						leaves = append(leaves, leave)
					}
				}
				synctest.Wait()
				time.Sleep(time.Duration(r.IntN(3)) * 35 * time.Millisecond)
			}
			time.Sleep(time.Nanosecond) // past the turns that come now
			synctest.Wait()
			waiting, _, _ := l.node.queued()
			l.mu.Lock()
			passed := len(l.passed)
			l.mu.Unlock()
			l.empty()
			l.mu.Lock()
			defer l.mu.Unlock()
			if len(l.passed) != passed+waiting {
				t.Errorf("seed %d: %d leave, want %d and %d that waited", seed, len(l.passed), passed, waiting)
			}
			for i, d := range l.passed {
				delete(stayed, d.request)
				if i == 0 {
					continue
				}
				before := l.passed[i-1]
				apart := d.at - before.at
				if d.request < before.request || apart < 100*time.Millisecond-time.Microsecond {
					t.Errorf("seed %d: %+v leaves after %+v", seed, d, before)
				}
				if !peers && i >= passed && apart > 100*time.Millisecond+time.Microsecond {
					t.Errorf("seed %d: %+v leaves after %+v, and nobody in between", seed, d, before)
				}
			}
			if len(stayed) > 0 {
				t.Errorf("seed %d: %v never leave", seed, stayed)
			}
		})
	}
}

// mergeOne raises what a peer counts for the client.
func mergeOne(n *Node, count uint64) {
	m := n.policy.Load().set.Rule("test/client").Limit.Meter()
	now := n.clock.Now()
	n.table.Merge([]counters.Slot{{Meter: &m, Key: keyOf(n), Origin: 7, Index: m.Index(now), Count: count % 3}}, now)
}

// keyOf is the counter of the client.
func keyOf(n *Node) counters.Key {
	req := ask(by("client", "x"))
	matches, err := n.policy.Load().set.Match(&req, n.secret, nil)
	if err != nil {
		panic(err)
	}
	return matches[0].Key
}

// holding begins a request with a header of some bytes, and returns its wait for the end.
func holding(t *testing.T, n *Node, client string, bytes int) (Decision, answer.Pending) {
	t.Helper()
	req := ask(by("client", client), by("all", "x"))
	req.Header = map[string][]string{"X": {string(make([]byte, bytes/2-33))}}
	req.TargetBytes = bytes - bytes/2
	return begin(t, n, &req)
}

// Where all places are taken a request that would wait is denied at once, in no layer charged, counted, and warned of
// once. It is no offence: nobody is banned for it. Who need not wait passes. A request that leaves makes room.
func TestQueuePlaces(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		for name, queues := range map[string]Queues{
			"requests": {MaxRequests: 2, MaxHeaderBytes: 1 << 20},
			"bytes":    {MaxRequests: 100, MaxHeaderBytes: 64 << 10},
		} {
			log := new(testkit.Log)
			cfg := quiet("domain: test\ndescriptors: [{key: client, " + queueRule + "burst: 30, ban: 1h}}, " +
				"{key: all, rate_limit: {unit: hour, requests_per_unit: 100}}]\n")
			cfg.Queues, cfg.Logger = queues, log.Logger()
			n, err := New(cfg)
			testkit.Must(t, err)
			var held []answer.Pending
			for i := range 3 {
				d, pending := holding(t, n, "x", 32<<10)
				if !d.Allowed || (pending == nil) != (i == 0) {
					t.Fatalf("%s: request %d: %+v", name, i, d)
				}
				if pending != nil {
					held = append(held, pending)
				}
			}
			for range 2 {
				d, pending := holding(t, n, "x", 66)
				if d.Allowed || pending != nil || d.RetryAfter != 300*time.Millisecond || d.Rule != "q" {
					t.Errorf("%s: without a place: %+v", name, d)
				}
			}
			if d, pending := holding(t, n, "y", 66); !d.Allowed || pending != nil {
				t.Errorf("%s: another client, who need not wait: %+v", name, d)
			}
			if got := spent(t, n, "test/all", "x"); got != 4 {
				t.Errorf("%s: another layer is charged %d, want 4", name, got)
			}
			requests, bytes, denied := n.queued()
			if requests != 2 || bytes != 64<<10 || denied != 2 {
				t.Errorf("%s: %d requests of %d bytes wait, %d were denied", name, requests, bytes, denied)
			}
			if !log.HasLine("level=WARN", "a budget has no room", "budget=queue", "reason=full", "denied at once") ||
				strings.Count(log.String(), "a budget has no room") != 1 {
				t.Errorf("%s: the log says %s", name, log)
			}
			held[0].End(t.Context(), nil, nil)
			if d, pending := holding(t, n, "x", 66); !d.Allowed || pending == nil || d.Delay != 200*time.Millisecond {
				t.Errorf("%s: after one has left: %+v", name, d)
			} else {
				held = append(held, pending)
			}
			for _, pending := range held[1:] {
				if charges, err := pending.Wait(t.Context()); charges || err != nil {
					t.Errorf("%s: %v, %v", name, charges, err)
				}
			}
			if got := tallied(n, "test/client"); got != [3]uint64{5, 2, 0} {
				t.Errorf("%s: %v allowed, denied and waived", name, got)
			}
		}
	})
}

// A source of clients that fills its share of the places, or of the bytes, leaves room for the requests of others.
func TestQueuePlacesHaveAShare(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		for name, queues := range map[string]Queues{
			"queue":         {MaxRequests: 64, MaxHeaderBytes: 1 << 30},
			"queue_headers": {MaxRequests: 10_000, MaxHeaderBytes: 64 << 10},
		} {
			log := new(testkit.Log)
			cfg := quiet("domain: test\ndescriptors: [{key: client, " + queueRule + "burst: 1000}}]\n")
			cfg.Queues, cfg.Logger = queues, log.Logger()
			n, err := New(cfg)
			testkit.Must(t, err)
			var held []answer.Pending
			from := func(addr string) (waits bool) {
				req := ask(by("client", addr))
				req.TargetBytes, req.Client = 1<<10, netip.MustParseAddr(addr)
				if _, pending := begin(t, n, &req); pending != nil {
					held = append(held, pending)
					return true
				}
				return false
			}
			from("192.0.2.1") // its turn has come
			from("192.0.2.2")
			places := 0
			for from("192.0.2.1") {
				places++
			}
			if places != 32 || !from("192.0.2.2") {
				t.Errorf("%s: %d places of 64 for one source, and none for another", name, places)
			}
			if !log.HasLine("a budget has no room", "budget="+name, "reason=source", "source=192.0.2.1") {
				t.Errorf("%s: the log says %s", name, log)
			}
			for _, pending := range held {
				pending.End(t.Context(), nil, nil)
			}
			if requests, bytes, _ := n.queued(); requests != 0 || bytes != 0 {
				t.Errorf("%s: %d requests of %d bytes are left", name, requests, bytes)
			}
		}
	})
}

// Without a place a throttled client gets what needs no delay.
func TestThrottleWithoutPlaces(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		for places, want := range map[int]int{0: 5, 3: 8, 100: 15} {
			cfg := quiet(single("rate_limit: {name: q, algorithm: token_bucket, unit: second, requests_per_unit: 10, " +
				"burst: 5, mode: throttle, max_delay: 1s}"))
			cfg.Queues.MaxRequests = places
			n, err := New(cfg)
			testkit.Must(t, err)
			l, admitted := line{T: t, node: n, began: time.Now()}, 0
			for i := range 30 {
				if _, ok := l.join(i); ok {
					admitted++
				}
			}
			l.empty()
			if admitted != want {
				t.Errorf("with %d places %d are admitted, want %d", places, admitted, want)
			}
			for i, d := range l.passed {
				want := time.Duration(max(0, i-4)) * 100 * time.Millisecond
				if d.at != want || i >= 5 && d.request != i {
					t.Errorf("with %d places departure %d is %+v, want it at %v", places, i, d, want)
				}
			}
		}
	})
}

// A request goes once its turn has come in all its queues, and leaves those in which it has not.
func TestSeveralQueues(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		n := idle(t, "domain: test\ndescriptors: [{key: client, "+queueRule+"burst: 30}}, {key: all, "+
			"rate_limit: {algorithm: gcra, queue: true, unit: second, requests_per_unit: 2, burst: 10}}]\n")
		delay := func() (all []time.Duration) {
			for _, descriptor := range [][]string{{"client", "x"}, {"all", "x"}} {
				req := ask(by(descriptor[0], descriptor[1]))
				req.Peek = true
				all = append(all, take(t, n, req).Delay)
			}
			return all
		}
		if d, pending := holding(t, n, "x", 66); !d.Allowed || pending != nil {
			t.Fatalf("the first: %+v", d)
		}
		_, second := holding(t, n, "x", 66)
		_, third := holding(t, n, "x", 66)
		if got := fmt.Sprint(delay()); got != "[300ms 1.5s]" {
			t.Errorf("three wait: the next does for %s", got)
		}
		time.Sleep(250 * time.Millisecond) // in the client's queue their turns have come
		third.End(t.Context(), nil, nil)
		if got := fmt.Sprint(delay()); got != "[50ms 750ms]" {
			t.Errorf("one has left: the next waits for %s", got)
		}
		began := time.Now()
		if _, err := second.Wait(t.Context()); err != nil || time.Since(began) != 250*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if requests, _, _ := n.queued(); requests != 0 || n.queues.number() != 0 {
			t.Errorf("%d wait in %d queues", requests, n.queues.number())
		}
	})
}

// A request that is served before its turn, against the rules, has taken its turn.
func TestServedBeforeItsTurn(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		n := idle(t, single(queueRule+"burst: 30}"))
		for i := range 3 {
			req := ask(by("client", "x"))
			if d, pending := begin(t, n, &req); d.Delay != time.Duration(i)*100*time.Millisecond {
				t.Errorf("request %d: %+v", i, d)
			} else if pending != nil {
				pending.End(t.Context(), &rules.Response{Status: 200}, nil)
			}
		}
		time.Sleep(time.Second)
		if requests, _, _ := n.queued(); requests != 0 {
			t.Errorf("%d wait", requests)
		}
	})
}

// The attack: thousands stand in line and hang up at once, from the front, from the back and at random. None holds up
// the others, and the line is as it was before them.
func TestManyHangUp(t *testing.T) {
	const many = 10_000
	for _, order := range []string{"front", "back", "random"} {
		n := idle(t, single("rate_limit: {name: q, algorithm: leaky_bucket, queue: true, unit: hour, "+
			"requests_per_unit: 10, burst: 100000}"))
		var held []answer.Pending
		for range many + 1 {
			req := ask(by("client", "x"))
			if d, pending := begin(t, n, &req); pending != nil {
				held = append(held, pending)
			} else if !d.Allowed {
				t.Fatalf("%+v", d)
			}
		}
		switch order {
		case "back":
			slices.Reverse(held)
		case "random":
			rand.Shuffle(many, func(i, j int) { held[i], held[j] = held[j], held[i] })
		}
		for _, pending := range held {
			pending.End(t.Context(), nil, nil)
		}
		d := take(t, n, Request{Rule: "q", Identity: "x"})
		if d.Delay > 6*time.Minute || d.Delay < 5*time.Minute || n.queues.number() != 0 {
			t.Errorf("%s: the next waits for %v, %d queues are left", order, d.Delay, n.queues.number())
		}
	}
}

// The attack: many short fields, or a long target, in place of a long field. All of it is held while a request waits.
func TestWhatWaitsIsMeasured(t *testing.T) {
	empty := make([]string, 20_000)
	for name, req := range map[string]Request{
		"empty fields": {Header: map[string][]string{"A": empty}},
		"names":        {Header: map[string][]string{strings.Repeat("a", 100): empty[:5000]}},
		"the target":   {TargetBytes: 600_000},
	} {
		q := queues{requests: limits.NewBudget("", "queue", 1, nil),
			headers: limits.NewBudget("", "queue_headers", 4<<20, nil)}
		q.take(newHeld(&req, netip.Addr{}))
		if got := q.headers.Stats().Used; got < 600_000 {
			t.Errorf("%s: %d bytes", name, got)
		}
	}
}
