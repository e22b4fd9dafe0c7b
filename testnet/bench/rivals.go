package main

import (
	"context"
	"strings"
	"sync"
	"time"

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

func openXTime(s *state) (*limiter, error) {
	limit, burst := rate.Limit(1e9), int(1e9)
	if s.limited {
		limit, burst = rate.Every(time.Hour), 1
	}
	var limiters sync.Map // identity -> *rate.Limiter
	return &limiter{take: each(func(s *stream, i int) bool {
		id := s.identity(i)
		l, ok := limiters.Load(id)
		if !ok {
			l, _ = limiters.LoadOrStore(strings.Clone(id), rate.NewLimiter(limit, burst))
		}
		return l.(*rate.Limiter).Allow()
	})}, nil
}

// asked is a limiter that is asked for identities. It is filled with identities in memory of their own, as a server
// receives them: a limiter that keeps the identity keeps its memory.
func asked(admit func(identity string) bool) *limiter {
	return &limiter{
		take: each(func(s *stream, i int) bool { return admit(s.identity(i)) }),
		fill: func(s *stream) error {
			for i := range s.len() {
				admit(strings.Clone(s.identity(i)))
			}
			return nil
		},
	}
}

func openGoLimiter(s *state) (*limiter, error) {
	cfg := &memorystore.Config{Tokens: 1 << 40, Interval: time.Hour}
	if s.limited {
		cfg.Tokens = 1
	}
	store, err := memorystore.New(cfg)
	ctx := context.Background()
	l := asked(func(identity string) bool {
		_, _, _, ok, err := store.Take(ctx, identity)
		return ok && err == nil
	})
	l.close = func() error { return store.Close(ctx) }
	return l, err
}

func openThrottled(s *state) (*limiter, error) {
	store, err := memstore.NewCtx(0)
	if err != nil {
		return nil, err
	}
	quota := throttled.RateQuota{MaxRate: throttled.PerSec(1e9), MaxBurst: 1 << 30}
	if s.limited {
		quota = throttled.RateQuota{MaxRate: throttled.PerHour(1)}
	}
	gcra, err := throttled.NewGCRARateLimiterCtx(store, quota)
	return asked(func(identity string) bool {
		limited, _, err := gcra.RateLimitCtx(context.Background(), identity, 1)
		return !limited && err == nil
	}), err
}

func openUlule(s *state) (*limiter, error) {
	limit := int64(1 << 40)
	if s.limited {
		limit = 1
	}
	// Its cleaner would disturb all slices: no more than once an hour.
	store := memory.NewStoreWithOptions(ulule.StoreOptions{Prefix: ulule.DefaultPrefix, CleanUpInterval: time.Hour})
	u := ulule.New(store, ulule.Rate{Period: time.Hour, Limit: limit})
	return &limiter{take: each(func(s *stream, i int) bool {
		c, err := u.Get(context.Background(), s.identity(i))
		return err == nil && !c.Reached
	})}, nil
}
