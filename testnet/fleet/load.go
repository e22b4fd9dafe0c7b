package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/testnet/traffic"
)

const (
	keptClients = 20 // whose requests come to all nodes
	smallNodes  = 2  // that a small client asks
	compliant   = "compliant"
	workers     = 64
	askTimeout  = 5 * time.Second
)

// ruleOf returns the rule that decides on a client: its name begins with it.
func ruleOf(client string) string {
	if client == compliant {
		return hotRule
	}
	rule, _, _ := strings.Cut(client, "-")
	return rule
}

// homes are the nodes that a small client asks.
func (o *Options) homes(client int) (nodes [smallNodes]int) {
	all := o.Regions * o.Nodes
	for i := range nodes {
		nodes[i] = (client + i*(client%(all-1)+1)) % all
	}
	return nodes
}

// arrivals are the requests of all clients.
func (o *Options) arrivals() traffic.Source {
	all := o.Regions * o.Nodes
	random := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(n, 1)) }
	sources := []traffic.Source{o.small(random(0)), traffic.Compliant(compliant, hotLimit, hotWindow, all)}
	for i := range o.HotClients {
		s := traffic.Stream{Identity: fmt.Sprintf("%s-%d", hotRule, i),
			Rate: o.HotLoad * hotLimit / hotWindow.Seconds()}
		sources = append(sources, s.Arrivals(all, random(uint64(1000+i))))
	}
	for i := range keptClients {
		s := traffic.Stream{Identity: fmt.Sprintf("%s-%d", keptRule, i), Rate: o.Rate / keptClients}
		sources = append(sources, s.Arrivals(all, random(uint64(2000+i))))
	}
	return traffic.Merge(sources...)
}

// small are the requests of the small clients, each at one of its nodes.
func (o *Options) small(r *rand.Rand) traffic.Source {
	after := time.Duration(0)
	return func() (traffic.Arrival, bool) {
		after += time.Duration(r.ExpFloat64() / o.Rate * float64(time.Second))
		client := r.IntN(o.SmallClients)
		return traffic.Arrival{After: after, Client: fmt.Sprintf("%s-%d", smallRule, client),
			Node: o.homes(client)[r.IntN(smallNodes)]}, true
	}
}

// decision is an answer for a client of hotRule.
type decision struct {
	client     string
	sent, done int64 // Unix ns
	allowed    bool
}

// count is what clients know of one of them.
type count struct {
	acknowledged uint64       // admitted, and the client knows
	uncertain    uint64       // asked for without an answer
	nodes        map[int]bool // that answered since they were started last
}

// load offers requests and keeps what came of them. Its methods are safe for concurrent use.
type load struct {
	fleet *fleet

	mu        sync.Mutex
	counts    map[string]*count // of kept and small clients
	hot       []decision
	offered   int
	denied    int // of kept and small clients, which is never right
	failed    map[string]int
	late      time.Duration
	lastError string
}

func newLoad(f *fleet) *load {
	return &load{fleet: f, counts: make(map[string]*count), failed: make(map[string]int)}
}

// run offers the load until ctx ends, and waits for the answers.
func (l *load) run(ctx context.Context) {
	type job struct {
		traffic.Arrival
		due time.Time
	}
	jobs := make(chan job)
	var asking sync.WaitGroup
	for range workers {
		asking.Go(func() {
			for j := range jobs {
				late := time.Since(j.due)
				l.mu.Lock()
				l.late = max(l.late, late)
				l.mu.Unlock()
				node := l.fleet.enter(j.Node)
				l.ask(node, j.Client)
				l.fleet.away[node].RUnlock()
			}
		})
	}
	traffic.Play(ctx, time.Now(), l.fleet.opt.arrivals(), func(a traffic.Arrival, due time.Time) bool {
		select {
		case <-ctx.Done():
			return false
		case jobs <- job{a, due}:
			return true
		}
	})
	close(jobs)
	asking.Wait()
}

// enter returns the node, or the next one of its region that is not away, and keeps it from going away.
func (f *fleet) enter(i int) int {
	first := i - i%f.opt.Nodes
	for n := range f.opt.Nodes {
		if at := first + (i-first+n)%f.opt.Nodes; f.away[at].TryRLock() {
			return at
		}
	}
	f.away[i].RLock()
	return i
}

// ask asks a node to admit a request of a client. Not the run's context: what was sent is to be answered.
func (l *load) ask(node int, client string) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	rule, sent := ruleOf(client), time.Now()
	a, err := traffic.Take(ctx, l.fleet.client, l.fleet.nodes[node].target, rule, client, 1)
	done := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.offered++
	if err != nil {
		l.failed[l.fleet.nodes[node].name]++
		l.lastError = err.Error()
	}
	if rule == hotRule {
		if err == nil {
			l.hot = append(l.hot, decision{client, sent.UnixNano(), done.UnixNano(), a.Allowed})
		}
		return
	}
	c := l.counts[client]
	if c == nil {
		c = &count{nodes: make(map[int]bool)}
		l.counts[client] = c
	}
	switch {
	case err != nil:
		c.uncertain++
	case a.Allowed:
		c.acknowledged++
		c.nodes[node] = true
	default:
		l.denied++
	}
}

// restarted forgets that a node was asked: a new process has to be asked before it learns what others count.
func (l *load) restarted(node int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.counts {
		delete(c.nodes, node)
	}
}
