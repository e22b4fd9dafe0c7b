package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// inFlight is how many clients ask at a time.
const inFlight = 64

func disconnect(all []client) error {
	var errs []error
	for _, c := range all {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// each lets every client ask on its own, and returns what they asked for in all.
func each(all []client, f func(i int, c client) (asked int, err error)) (asked int, err error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i, c := range all {
		wg.Go(func() {
			n, failed := f(i, c)
			mu.Lock()
			defer mu.Unlock()
			asked, err = asked+n, errors.Join(err, failed)
		})
	}
	wg.Wait()
	return asked, err
}

// flatOut has every client ask as soon as it has its answer.
func flatOut(ctx context.Context, p *protocol, all []client, d time.Duration) (asked int, err error) {
	end := time.Now().Add(d)
	return each(all, func(i int, c client) (asked int, err error) {
		for n := i * clients / inFlight; time.Now().Before(end) && ctx.Err() == nil; n += p.deep {
			if err := c.ask(n); err != nil {
				return asked, err
			}
			asked += p.deep
		}
		return asked, context.Cause(ctx)
	})
}

// steady asks at a rate, whether answers have come or not: a check that had to wait for its client counts from when it was due.
func steady(ctx context.Context, p *protocol, all []client, rate int, d time.Duration) (took []time.Duration, err error) {
	var mu sync.Mutex
	every := time.Duration(p.deep) * time.Second / time.Duration(rate)
	start := time.Now().Add(10 * time.Millisecond)
	_, err = each(all, func(i int, c client) (asked int, err error) {
		var own []time.Duration
		for n := i; ; n += len(all) {
			after := time.Duration(n) * every
			if after > d || ctx.Err() != nil {
				break
			}
			due := start.Add(after)
			time.Sleep(time.Until(due))
			if err := c.ask(n * p.deep); err != nil {
				return 0, err
			}
			own = append(own, time.Since(due))
		}
		mu.Lock()
		defer mu.Unlock()
		took = append(took, own...)
		return 0, context.Cause(ctx)
	})
	slices.Sort(took)
	return took, err
}
