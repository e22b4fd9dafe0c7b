package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/strict"
	"github.com/edgelimit/edgelimit/testnet/bench/rig"
)

const (
	identities = 50 // few enough that all are busy, as leases need
	window     = time.Hour
	roomy      = 1_000_000_000 // a limit that is never reached
	patience   = 5 * time.Second
)

// contestant makes checks by Redis. Its clients share connections.
type contestant struct {
	name string
	ours bool
	base string // with a lease: the contestant without
	// open returns a check of the n-th identity, which each client has for itself, and what closes the connections.
	open func(ctx context.Context, addr string) (check func() func(n int) error, stop func() error, err error)
}

const (
	nameRoundTrip = "a bare round trip (PING)"
	nameRedisRate = "redis_rate"
	nameEnvoy     = "INCRBY, EXPIRE"
	lease         = 20
)

var contestants = []contestant{
	{name: nameRoundTrip, open: byClient(roundTrip)},
	{name: nameEnvoy, open: byClient(counting)},
	{name: nameEnvoy + ", pipelined", open: byClient(countingPipelined)},
	{name: nameRedisRate, open: byClient(redisRate)},
	ours(counters.SlidingWindow, 1, 0),
	ours(counters.FixedWindow, 1, 0),
	ours(counters.SlidingLog, 1, 0),
	ours(counters.TokenBucket, 1, 0),
	ours(counters.LeakyBucket, 1, 0),
	ours(counters.LeakyQueue, 1, 0),
	ours(counters.SlidingWindow, 3, 0),
	ours(counters.SlidingWindow, 1, lease),
	ours(counters.TokenBucket, 1, lease),
}

// clients returns the clients of a contestant, of which the first closes the connections.
func (c *contestant) clients(ctx context.Context, addr string) ([]rig.Client, error) {
	check, stop, err := c.open(ctx, addr)
	if err != nil {
		return nil, err
	}
	all := make([]rig.Client, rig.NumClients)
	for i := range all {
		all[i] = rig.Client{Check: check(), Close: func() error { return nil }}
	}
	all[0].Close = stop
	return all, nil
}

var errDenied = errors.New("the request was denied")

// ours is this project's store. Each layer has an identity of its own.
func ours(a counters.Algorithm, layers int, lease uint64) contestant {
	name := a.String()
	base := ""
	if layers > 1 {
		name += fmt.Sprintf(", %d layers", layers)
	}
	if lease > 0 {
		name, base = name+fmt.Sprintf(", lease: %d", lease), name
	}
	open := func(_ context.Context, addr string) (func() func(int) error, func() error, error) {
		var limits []*counters.Limit
		for i := range layers {
			largest := uint64(roomy)
			if a == counters.SlidingLog {
				largest = counters.MaxLog
			}
			l, err := counters.NewLimit(counters.NewMeter(fmt.Sprintf("%s/%d", name, i), a, window), largest)
			if err != nil {
				return nil, nil, err
			}
			limits = append(limits, l)
		}
		store, err := strict.Open(strict.Config{Redis: regions.DefaultRedisConfig(addr), MinTimeout: patience,
			MaxTimeout: patience})
		if err != nil {
			return nil, nil, err
		}
		check := func() func(int) error {
			asks, answers := make([]strict.Ask, layers), make([]counters.Decision, 0, layers)
			return func(n int) error {
				for i, l := range limits {
					key := counters.Key(n%identities*layers + i)
					asks[i] = strict.Ask{Charge: counters.Charge{Limit: l, Key: key, Cost: 1}, Lease: lease}
				}
				decisions, _, err := store.Take(context.Background(), asks, answers[:0])
				if err == nil && !counters.VerdictOf(decisions).Allowed {
					err = errDenied
				}
				return err
			}
		}
		return check, func() error { return store.Close(context.Background()) }, nil
	}
	return contestant{name: name, ours: true, base: base, open: open}
}

// byClient opens a contestant with a client of Redis, with as many connections as there are clients that ask. A check
// gets a key.
func byClient(open func(context.Context, *redis.Client) (func(context.Context, string) error, error)) func(
	context.Context, string) (func() func(int) error, func() error, error) {
	return func(ctx context.Context, addr string) (func() func(int) error, func() error, error) {
		client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: rig.NumClients, ReadTimeout: patience,
			PoolTimeout: patience})
		ask, err := open(ctx, client)
		if err != nil {
			return nil, nil, errors.Join(err, client.Close())
		}
		check := func(n int) error { return ask(context.Background(), fmt.Sprintf("identity/%d", n%identities)) }
		return func() func(int) error { return check }, client.Close, nil
	}
}

func roundTrip(_ context.Context, client *redis.Client) (func(context.Context, string) error, error) {
	return func(ctx context.Context, _ string) error { return client.Ping(ctx).Err() }, nil
}

// counting counts as envoyproxy/ratelimit does without REDIS_PIPELINE_WINDOW: the two commands of a request are a
// pipeline, and the window is in the key.
func counting(_ context.Context, client *redis.Client) (func(context.Context, string) error, error) {
	return func(ctx context.Context, key string) error {
		pipe := client.Pipeline()
		count := pipe.IncrBy(ctx, windowKey(nameEnvoy, key), 1)
		pipe.Expire(ctx, windowKey(nameEnvoy, key), window)
		_, err := pipe.Exec(ctx)
		return decide(count, err)
	}, nil
}

// countingPipelined has concurrent requests share pipelines, as with REDIS_PIPELINE_WINDOW.
func countingPipelined(_ context.Context, client *redis.Client) (func(context.Context, string) error, error) {
	pipes, err := client.AsyncAutoPipeline()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, key string) error {
		key = windowKey("pipelined", key)
		count, expires := pipes.IncrBy(ctx, key, 1), pipes.Expire(ctx, key, window)
		return decide(count, expires.Err())
	}, nil
}

func windowKey(name, key string) string {
	now := time.Now().Unix()
	return fmt.Sprintf("%s_%s_%d", name, key, now-now%int64(window.Seconds()))
}

func decide(count *redis.IntCmd, err error) error {
	used, failed := count.Result()
	if err = errors.Join(failed, err); err == nil && used > roomy {
		err = errDenied
	}
	return err
}

func redisRate(_ context.Context, client *redis.Client) (func(context.Context, string) error, error) {
	limiter, limit := redis_rate.NewLimiter(client), redis_rate.Limit{Rate: roomy, Burst: roomy, Period: window}
	return func(ctx context.Context, key string) error {
		got, err := limiter.Allow(ctx, key, limit)
		if err == nil && got.Allowed == 0 {
			err = errDenied
		}
		return err
	}, nil
}
