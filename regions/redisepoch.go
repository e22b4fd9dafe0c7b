package regions

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// redisEpoch is which processes hold the data. It is asked for after a connection was made and after a script was
// forgotten, since a server that was restarted or replaced can be reached in no other way, and not with every call.
type redisEpoch struct {
	stale atomic.Bool
	mu    sync.Mutex
	known string
}

func (e *redisEpoch) invalidate() { e.stale.Store(true) }

// knownEpoch returns the epoch, empty if there is doubt about it and the servers do not tell.
func (r *Redis) knownEpoch(ctx context.Context) string {
	if r.epoch.stale.Load() {
		epoch, _ := r.fetchEpoch(ctx) // data that was lost is noticed by its counts as well
		return epoch
	}
	r.epoch.mu.Lock()
	defer r.epoch.mu.Unlock()
	return r.epoch.known
}

// fetchEpoch asks each master which process it is.
func (r *Redis) fetchEpoch(ctx context.Context) (string, error) {
	r.epoch.stale.Store(false) // first: who connects from now on may meet another server
	var mu sync.Mutex
	var processes []string
	err := r.eachMaster(ctx, func(ctx context.Context, server *redis.Client) error {
		info, err := server.Info(ctx, "server").Result()
		if err != nil {
			return err
		}
		id, ok := runID(info)
		if !ok {
			return errors.New("INFO tells no run_id")
		}
		mu.Lock()
		defer mu.Unlock()
		processes = append(processes, id)
		return nil
	})
	if err != nil {
		r.epoch.invalidate()
		return "", err
	}
	slices.Sort(processes)
	epoch := strings.Join(processes, " ")
	r.epoch.mu.Lock()
	defer r.epoch.mu.Unlock()
	r.epoch.known = epoch
	return epoch, nil
}

func runID(info string) (string, bool) {
	for line := range strings.Lines(info) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "run_id:"); ok {
			return id, id != ""
		}
	}
	return "", false
}
