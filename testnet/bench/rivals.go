package main

import (
	"context"
	"strings"
	"sync"
	"time"

	golimiter "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"
)

// rivals returns the alternatives in process. Their limit is never reached, or 1 per hour.
func rivals() []contestant {
	return []contestant{
		{name: nameXTime, open: openXTime},
		{name: nameGoLimiter, open: openGoLimiter},
		{name: nameThrottled, open: openThrottled},
		{name: nameUlule, open: openUlule},
	}
}

type xTime struct {
	limiters sync.Map // identity -> *rate.Limiter
	limit    rate.Limit
	burst    int
}

func openXTime(s *state) (limiter, error) {
	if s.limited {
		return &xTime{limit: rate.Every(time.Hour), burst: 1}, nil
	}
	return &xTime{limit: 1e9, burst: 1e9}, nil
}

func (x *xTime) take(s *stream, from, to int) (admitted int) {
	for i := from; i < to; i++ {
		id := s.identity(i)
		l, ok := x.limiters.Load(id)
		if !ok {
			l, _ = x.limiters.LoadOrStore(strings.Clone(id), rate.NewLimiter(x.limit, x.burst))
		}
		if l.(*rate.Limiter).Allow() {
			admitted++
		}
	}
	return admitted
}

// fillCloned makes a request of each client with an identity in memory of its own, as a server receives it: a limiter
// that keeps the identity keeps its memory.
func fillCloned(s *stream, take func(identity string)) {
	for i := range s.len() {
		take(strings.Clone(s.identity(i)))
	}
}

type goLimiter struct{ store golimiter.Store }

func openGoLimiter(s *state) (limiter, error) {
	cfg := &memorystore.Config{Tokens: 1 << 40, Interval: time.Hour}
	if s.limited {
		cfg.Tokens = 1
	}
	store, err := memorystore.New(cfg)
	return &goLimiter{store}, err
}

func (g *goLimiter) take(s *stream, from, to int) (admitted int) {
	ctx := context.Background()
	for i := from; i < to; i++ {
		if _, _, _, ok, err := g.store.Take(ctx, s.identity(i)); ok && err == nil {
			admitted++
		}
	}
	return admitted
}

func (g *goLimiter) fill(s *stream) error {
	fillCloned(s, func(id string) { g.store.Take(context.Background(), id) })
	return nil
}

func (g *goLimiter) close() error { return g.store.Close(context.Background()) }

type throttledGCRA struct{ limiter *throttled.GCRARateLimiterCtx }

func openThrottled(s *state) (limiter, error) {
	store, err := memstore.NewCtx(0)
	if err != nil {
		return nil, err
	}
	quota := throttled.RateQuota{MaxRate: throttled.PerSec(1e9), MaxBurst: 1 << 30}
	if s.limited {
		quota = throttled.RateQuota{MaxRate: throttled.PerHour(1)}
	}
	l, err := throttled.NewGCRARateLimiterCtx(store, quota)
	return &throttledGCRA{l}, err
}

func (t *throttledGCRA) take(s *stream, from, to int) (admitted int) {
	ctx := context.Background()
	for i := from; i < to; i++ {
		if limited, _, err := t.limiter.RateLimitCtx(ctx, s.identity(i), 1); !limited && err == nil {
			admitted++
		}
	}
	return admitted
}

func (t *throttledGCRA) fill(s *stream) error {
	fillCloned(s, func(id string) { t.limiter.RateLimitCtx(context.Background(), id, 1) })
	return nil
}

type ululeLimiter struct{ limiter *ulule.Limiter }

func openUlule(s *state) (limiter, error) {
	limit := int64(1 << 40)
	if s.limited {
		limit = 1
	}
	// Its cleaner would disturb all slices: no more than once an hour.
	store := memory.NewStoreWithOptions(ulule.StoreOptions{Prefix: ulule.DefaultPrefix, CleanUpInterval: time.Hour})
	return &ululeLimiter{ulule.New(store, ulule.Rate{Period: time.Hour, Limit: limit})}, nil
}

func (u *ululeLimiter) take(s *stream, from, to int) (admitted int) {
	ctx := context.Background()
	for i := from; i < to; i++ {
		if c, err := u.limiter.Get(ctx, s.identity(i)); err == nil && !c.Reached {
			admitted++
		}
	}
	return admitted
}
