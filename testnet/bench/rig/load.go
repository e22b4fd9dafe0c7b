// Package rig is what the benchmark programs share: clients that load servers, a Redis, CPU times and statistics.
package rig

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// NumClients is the number of clients, each with one request in flight.
const NumClients = 64

// Client sends requests, one at a time.
type Client struct {
	Check func(n int) error // sends a request: the n-th check, or the checks from n on
	Close func() error
}

// CloseAll closes all clients.
func CloseAll(all []Client) error {
	var errs []error
	for _, c := range all {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// each runs f for every client concurrently, and returns the sum of the checks.
func each(all []Client, f func(i int, c Client) (checks int, err error)) (checks int, err error) {
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

// ClosedLoop has every client send a request of so many checks once the one before is answered. The i-th client begins
// with the check i*apart. It returns how many checks were made.
func ClosedLoop(ctx context.Context, all []Client, depth, apart int, d time.Duration) (checks int, err error) {
	end := time.Now().Add(d)
	return each(all, func(i int, c Client) (checks int, err error) {
		for n := i * apart; time.Now().Before(end) && ctx.Err() == nil; n += depth {
			if err := c.Check(n); err != nil {
				return checks, err
			}
			checks += depth
		}
		return checks, context.Cause(ctx)
	})
}

// OpenLoop sends requests of so many checks at a rate of checks per second. The latency of a request counts from when
// it was due, also if its client was still busy then. It returns the sorted latencies.
func OpenLoop(ctx context.Context, all []Client, depth, rate int, d time.Duration) ([]time.Duration, error) {
	var mu sync.Mutex
	var latencies []time.Duration
	interval := time.Duration(depth) * time.Second / time.Duration(rate)
	start := time.Now().Add(10 * time.Millisecond)
	_, err := each(all, func(i int, c Client) (checks int, err error) {
		var own []time.Duration
		for n := i; ; n += len(all) {
			after := time.Duration(n) * interval
			if after > d || ctx.Err() != nil {
				break
			}
			due := start.Add(after)
			time.Sleep(time.Until(due))
			if err := c.Check(n * depth); err != nil {
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
