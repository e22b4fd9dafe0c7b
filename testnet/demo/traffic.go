package demo

import (
	"context"
	"math/rand/v2"
	"time"
)

// arrival is a request of a client.
type arrival struct {
	after  time.Duration // the start
	client string
	node   int // that is asked, or anywhere
}

// anywhere is a node chosen evenly at random.
const anywhere = -1

// late is how far behind its schedule offer may fall: what is still to come after the duration and this is not offered.
const late = time.Second

// offer calls take for each request at its time, until the duration or ctx is over: those of the log, or a client that asks for Load times
// the limit and beside it one that keeps to it.
func offer(ctx context.Context, o *Options, start time.Time, take func(node int, client string)) {
	r := rand.New(rand.NewPCG(o.Seed, 2))
	nodes := o.Regions * o.Nodes
	next := merged(poisson(o, r), beside(o))
	if len(o.Log) > 0 {
		next = replayed(o)
	}
	for a, ok := next(); ok; a, ok = next() {
		if wait := time.Until(start.Add(a.after)); wait > 0 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
		} else if ctx.Err() != nil || time.Since(start) > o.Duration+late {
			return
		}
		if a.node == anywhere {
			a.node = r.IntN(nodes)
		}
		take(a.node, a.client)
	}
}

// poisson generates the requests of one client that asks for Load times the limit, at random moments.
func poisson(o *Options, r *rand.Rand) func() (arrival, bool) {
	rate := o.Load * float64(o.Limit) / o.Window.Seconds()
	var at time.Duration
	return func() (arrival, bool) {
		at += time.Duration(r.ExpFloat64() / rate * float64(time.Second))
		return arrival{at, "client", anywhere}, at < o.Duration
	}
}

// modest is the client beside the load. No log names one so: names have no spaces in them.
const modest = "the client beside the load"

// modestShare is what it asks for of the limit, in its fullest window: less than 95 %, so that it stays compliant where requests come late.
const modestShare = 0.9

// beside generates the requests of the modest client. Over and over it asks for modestShare of the limit within a window: half of that
// evenly, of each node in turn, and half in a burst of a fiftieth of the window, of one node, another one each time. Then it waits a little.
// The requests of a round come at the same moments of it, and a round is longer than any sub-window keeps what is in it: so no view holds
// more than one round.
func beside(o *Options) func() (arrival, bool) {
	round, share := o.Window*12/10, int(modestShare*float64(o.Limit))
	evenly := share - share/2
	burst, step, within := o.Window/2, o.Window/time.Duration(max(1, evenly)), o.Window/50/time.Duration(max(1, share/2))
	nodes, rounds := o.Regions*o.Nodes, 0
	even, i, j := step/2, 0, 0 // what comes next: the i-th of the even ones, the j-th of the burst
	return func() (arrival, bool) {
		if share == 0 {
			return arrival{}, false
		}
		if i == evenly && j == share/2 {
			rounds, i, j, even = rounds+1, 0, 0, step/2
		}
		began := time.Duration(rounds) * round
		var a arrival
		if at := burst + time.Duration(j)*within; j < share/2 && (i == evenly || at < even) {
			a = arrival{began + at, modest, rounds % nodes}
			j++
		} else {
			a = arrival{began + even, modest, (rounds + i) % nodes}
			even += step
			i++
		}
		return a, a.after < o.Duration
	}
}

// merged gives the arrivals of both in the order of time.
func merged(a, b func() (arrival, bool)) func() (arrival, bool) {
	nextA, okA := a()
	nextB, okB := b()
	return func() (next arrival, ok bool) {
		if okA && (!okB || nextA.after <= nextB.after) {
			next, ok = nextA, true
			nextA, okA = a()
			return next, ok
		}
		next, ok = nextB, okB
		if okB {
			nextB, okB = b()
		}
		return next, ok
	}
}

// replayed gives the requests of the log, sped up to last the duration. Requests of one second are spread over it.
func replayed(o *Options) func() (arrival, bool) {
	log := o.sortedLog()
	first := log[0].Time
	span := log[len(log)-1].Time.Sub(first) + time.Second
	i, from, to := 0, 0, 0 // log[from:to] are the requests of one second
	return func() (arrival, bool) {
		if i == len(log) {
			return arrival{}, false
		}
		if i == to {
			for from = i; to < len(log) && log[to].Time.Equal(log[i].Time); {
				to++
			}
		}
		within := time.Second * time.Duration(i-from) / time.Duration(to-from)
		at := float64(log[i].Time.Sub(first)+within) / float64(span) * float64(o.Duration)
		a := arrival{time.Duration(at), log[i].Addr, anywhere}
		i++
		return a, true
	}
}
