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
}

// late is how far behind its schedule offer may fall: what is still to come after the duration and this is not offered.
const late = time.Second

// offer calls take for each request at its time, on a node chosen evenly at random, until the duration or ctx is over.
func offer(ctx context.Context, o *Options, start time.Time, take func(node int, client string)) {
	r := rand.New(rand.NewPCG(o.Seed, 2))
	nodes := o.Regions * o.Nodes
	next := poisson(o, r)
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
		take(r.IntN(nodes), a.client)
	}
}

// poisson generates the requests of one client that asks for Load times the limit, at random moments.
func poisson(o *Options, r *rand.Rand) func() (arrival, bool) {
	rate := o.Load * float64(o.Limit) / o.Window.Seconds()
	var at time.Duration
	return func() (arrival, bool) {
		at += time.Duration(r.ExpFloat64() / rate * float64(time.Second))
		return arrival{at, "client"}, at < o.Duration
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
		a := arrival{time.Duration(at), log[i].Addr}
		i++
		return a, true
	}
}
