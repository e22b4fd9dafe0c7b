package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// numClients is the number of clients, each with one request in flight.
const numClients = 64

func closeAll(all []client) error {
	var errs []error
	for _, c := range all {
		errs = append(errs, c.close())
	}
	return errors.Join(errs...)
}

// each runs f for every client concurrently, and returns the sum of the checks.
func each(all []client, f func(i int, c client) (checks int, err error)) (checks int, err error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i, c := range all {
		wg.Go(func() {
			n, failed := f(i, c)
			mu.Lock()
			defer mu.Unlock()
			checks, err = checks+n, errors.Join(err, failed)
		})
	}
	wg.Wait()
	return checks, err
}

// closedLoop has every client send a request once the one before is answered.
func closedLoop(ctx context.Context, p *protocol, all []client, d time.Duration) (checks int, err error) {
	end := time.Now().Add(d)
	return each(all, func(i int, c client) (checks int, err error) {
		for n := i * identities / numClients; time.Now().Before(end) && ctx.Err() == nil; n += p.depth {
			if err := c.check(n); err != nil {
				return checks, err
			}
			checks += p.depth
		}
		return checks, context.Cause(ctx)
	})
}

// openLoop sends requests at a rate of checks per second. The latency of a request counts from when it was due, also
// if its client was still busy then. It returns the sorted latencies.
func openLoop(ctx context.Context, p *protocol, all []client, rate int, d time.Duration) ([]time.Duration, error) {
	var mu sync.Mutex
	var latencies []time.Duration
	interval := time.Duration(p.depth) * time.Second / time.Duration(rate)
	start := time.Now().Add(10 * time.Millisecond)
	_, err := each(all, func(i int, c client) (checks int, err error) {
		var own []time.Duration
		for n := i; ; n += len(all) {
			after := time.Duration(n) * interval
			if after > d || ctx.Err() != nil {
				break
			}
			due := start.Add(after)
			time.Sleep(time.Until(due))
			if err := c.check(n * p.depth); err != nil {
				return 0, err
			}
			own = append(own, time.Since(due))
		}
		mu.Lock()
		defer mu.Unlock()
		latencies = append(latencies, own...)
		return 0, context.Cause(ctx)
	})
	slices.Sort(latencies)
	return latencies, err
}
