package regions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/edgelimit/edgelimit/counters"
)

// Redis is a Store in a Redis server, with or without Sentinels, or in a Redis Cluster. DESIGN.md has the layout, the
// rights that it needs and what it does in each fault. It is safe for concurrent use.
//
// It never repeats a call that failed, except once what a server refused because it did not know the script or was
// moving a part of the keys.
type Redis struct {
	client  redis.UniversalClient
	cluster bool
}

// OpenRedis returns the store of the configuration. It dials nobody: a Redis that is down makes calls fail, not this
// one. An error is that of Validate, or of a TLS file that cannot be read. Close it after its last call.
func OpenRedis(cfg RedisConfig) (*Redis, error) {
	r := &Redis{cluster: cfg.Cluster}
	var err error
	if r.client, err = cfg.Client(8); err != nil {
		return nil, err
	}
	return r, nil
}

// Close closes the connections. Calls that are under way fail.
func (r *Redis) Close() error { return r.client.Close() }

// Merge implements Store. It does not send slots that have expired. A server whose memory is full refuses every batch
// of slots that would raise one, known slots too, with ErrFull. Without slots, Merge only reads the epoch and the time.
func (r *Redis) Merge(ctx context.Context, slots []counters.Slot, now int64) (Merged, error) {
	merged, err := r.merge(ctx, slots, now)
	if err != nil {
		return Merged{}, fmt.Errorf("merge into redis: %w", Explain(ctx, err))
	}
	return merged, nil
}

func (r *Redis) merge(ctx context.Context, slots []counters.Slot, now int64) (Merged, error) {
	if err := ctx.Err(); err != nil {
		return Merged{}, err
	}
	batches := r.batches(slots, now, written)
	if err := r.run(ctx, batches, true); err != nil {
		return Merged{}, err
	}
	epoch, at, err := r.state(ctx) // after the slots: one answer shows a loss in between twice
	if err != nil {
		return Merged{}, err
	}
	m := Merged{Before: make([]uint64, len(slots)), Epoch: epoch, Time: at}
	for _, b := range batches {
		if err := b.read(&m); err != nil {
			return Merged{}, err
		}
	}
	return m, nil
}

// Restore implements Store. As to expired slots and full memory it does as Merge.
func (r *Redis) Restore(ctx context.Context, slots []counters.Slot, now int64) error {
	err := ctx.Err()
	if err == nil {
		err = r.run(ctx, r.batches(slots, now, restored), true)
	}
	if err != nil {
		return fmt.Errorf("restore in redis: %w", Explain(ctx, err))
	}
	return nil
}

// EachMaster calls f for every server of a [RedisConfig.Client] that takes writes, in a cluster concurrently, and
// returns an error of one of them.
func EachMaster(
	ctx context.Context, client redis.UniversalClient, f func(ctx context.Context, server *redis.Client) error,
) error {
	if c, ok := client.(*redis.ClusterClient); ok {
		return c.ForEachMaster(ctx, f)
	}
	return f(ctx, client.(*redis.Client))
}

// Explain adds to an error of the server what to do about it, and to one after the context's end the context's error.
func Explain(ctx context.Context, err error) error {
	ended := ctx.Err()
	if deadline, ok := ctx.Deadline(); ended == nil && ok && !time.Now().Before(deadline) {
		ended = context.DeadlineExceeded // the connection has the same deadline, and may be first
	}
	if ended != nil {
		if errors.Is(err, ended) {
			return err
		}
		return fmt.Errorf("%w (%w)", ended, err)
	}
	if redis.HasErrorPrefix(err, "OOM") {
		return fmt.Errorf("%w: raise its maxmemory (%w)", ErrFull, err)
	}
	for _, hint := range hints {
		if redis.HasErrorPrefix(err, hint.prefix) {
			return fmt.Errorf("%s (%w)", hint.say, err)
		}
	}
	return err
}

const needsRights = "give the user the rights listed in regions/DESIGN.md, for strict rules in regions/strict/DESIGN.md"

// hints are the answers that somebody has to do something about.
var hints = []struct{ prefix, say string }{
	{"WRONGPASS", "check the user and the password"},
	{"NOAUTH", "configure a password"},
	{"NOPERM", needsRights},
	{"The user executing the script can't run", needsRights},
	{"READONLY", "a replica answered: wait for the failover to end, or configure the master's address"},
	{"MOVED", "configure it as a cluster: it is one, or its slots are on the move"},
	{"CLUSTERDOWN", "the cluster lacks a part of its slots: bring its masters back"},
	{"CROSSSLOT", "configure it as a cluster"},
	{"LOADING", "the server is reading its data: wait"},
	{"MISCONF", "the server cannot save its data and so takes none: see its log"},
}

// LogRedisClient routes what the Redis client library logs (lost connections, changes of master) into a logger, for the
// whole process: it has one logger for all clients. It may be called at any time.
func LogRedisClient(log *slog.Logger) { redis.SetLogger(redisLog{log}) }

type redisLog struct{ *slog.Logger }

// Printf is called by the library.
func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	if l.Enabled(ctx, slog.LevelDebug) {
		l.DebugContext(ctx, "redis client", slog.String("says", fmt.Sprintf(format, v...)))
	}
}
