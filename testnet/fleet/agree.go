package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/testnet/traffic"
)

// Agreement is whether all nodes that were asked for a client count what was admitted of it.
type Agreement struct {
	Clients int     `json:"clients"` // compared
	Counts  int     `json:"counts"`  // of a client at a node
	Wrong   int     `json:"wrong"`   // counts that differed when the patience was over
	First   string  `json:"first"`   // one of them
	Seconds float64 `json:"seconds"` // until all were right
	// Acknowledged is the cost that clients know was admitted, of all that were compared.
	Acknowledged uint64 `json:"acknowledged"`
}

// agreePatience is how long nodes may take to agree after the last request.
const agreePatience = 30 * time.Second

// compared is how many small clients are compared.
const compared = 300

// agree asks once more for each compared client at each of its nodes, and then waits until all of them count what was
// admitted.
func (l *load) agree(ctx context.Context) (Agreement, error) {
	l.askEverywhere()
	began := time.Now()
	var a Agreement
	clients := l.comparable()
	err := await(ctx, agreePatience, func() (bool, error) {
		a = Agreement{Clients: len(clients)}
		err := l.compare(ctx, clients, &a)
		return err == nil && a.Wrong == 0, errors.Join(err, fmt.Errorf("%d counts are wrong", a.Wrong))
	})
	a.Seconds = time.Since(began).Seconds()
	if a.Wrong > 0 {
		return a, nil // that is a finding
	}
	return a, err
}

// comparable returns the clients whose counts are compared, in order.
func (l *load) comparable() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	small := 0
	return slices.DeleteFunc(slices.Sorted(maps.Keys(l.counts)), func(client string) bool {
		if ruleOf(client) == smallRule {
			small++
		}
		return ruleOf(client) == smallRule && small > compared
	})
}

// askEverywhere asks for each compared client at each node that was ever to be asked.
func (l *load) askEverywhere() {
	all := len(l.fleet.nodes)
	var asking sync.WaitGroup
	slots := make(chan struct{}, workers/4)
	for _, client := range l.comparable() {
		nodes := make([]int, 0, all)
		if ruleOf(client) == keptRule {
			for i := range all {
				nodes = append(nodes, i)
			}
		} else {
			var number int
			_, _ = fmt.Sscanf(client, smallRule+"-%d", &number)
			homes := l.fleet.opt.homes(number)
			nodes = append(nodes, homes[:]...)
		}
		for _, i := range nodes {
			slots <- struct{}{}
			asking.Go(func() {
				l.ask(i, client)
				<-slots
			})
		}
	}
	asking.Wait()
}

// compare asks each node for the counts of the clients that it was asked for.
func (l *load) compare(ctx context.Context, clients []string, a *Agreement) error {
	byNode := make([][]string, len(l.fleet.nodes))
	l.mu.Lock()
	for _, client := range clients {
		a.Acknowledged += l.counts[client].acknowledged
		for i := range l.counts[client].nodes {
			byNode[i] = append(byNode[i], client)
		}
	}
	l.mu.Unlock()
	var errs []error
	for i, mine := range byNode {
		for _, rule := range []string{keptRule, smallRule} {
			names := slices.DeleteFunc(slices.Clone(mine), func(c string) bool { return ruleOf(c) != rule })
			counts, err := traffic.Counts(ctx, l.fleet.client, l.fleet.nodes[i].target, rule, names)
			errs = append(errs, err)
			for client, n := range counts {
				l.check(a, i, client, n)
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// check compares a count of a node with what clients know.
func (l *load) check(a *Agreement, node int, client string, n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.counts[client]
	a.Counts++
	if n >= c.acknowledged && n <= c.acknowledged+c.uncertain {
		return
	}
	a.Wrong++
	if a.First == "" {
		a.First = fmt.Sprintf("%s counts %d of %s, %d were acknowledged", l.fleet.nodes[node].name, n, client,
			c.acknowledged)
	}
}
