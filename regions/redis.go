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

// Redis is a Store in a Redis server, with or without Sentinels, or in a Redis Cluster. How it lies there, what rights
// it needs and what it does in each fault is in DESIGN.md. It is safe for concurrent use.
//
// Nothing is ever sent twice because it failed: whoever calls decides when to try again. A merge is repeated once for
// what the server did not do because it did not know the script, or because it was moving a part of the keys.
type Redis struct {
	client  redis.UniversalClient
	cluster bool
	epoch   redisEpoch
}

// OpenRedis returns the store of the configuration. It dials nobody: a Redis that is down makes calls fail, not this
// one. An error is that of Validate, or of a TLS file that cannot be read. Close it after its last call.
func OpenRedis(cfg RedisConfig) (*Redis, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := &Redis{cluster: cfg.Cluster}
	r.epoch.invalidate()
	var err error
	if r.client, err = cfg.client(r.epoch.invalidate); err != nil {
		return nil, err
	}
	return r, nil
}

// Close closes the connections. Calls that are under way fail.
func (r *Redis) Close() error { return r.client.Close() }

// Merge implements Store. Slots that have expired are not sent. When the server's memory is full it refuses every
// batch of slots that would raise one, known slots too, with ErrFull. Of no slots it asks whether the server answers.
func (r *Redis) Merge(ctx context.Context, slots []counters.Slot, now int64) (Merged, error) {
	merged, err := r.merge(ctx, slots, now)
	if err != nil {
		return Merged{}, fmt.Errorf("merge into redis: %w", explain(ctx, err))
	}
	return merged, nil
}

func (r *Redis) merge(ctx context.Context, slots []counters.Slot, now int64) (Merged, error) {
	if err := ctx.Err(); err != nil {
		return Merged{}, err
	}
	if len(slots) == 0 {
		epoch, err := r.fetchEpoch(ctx)
		return Merged{Epoch: epoch}, err
	}
	batches := r.batches(gather(slots, now, written))
	if err := r.run(ctx, batches, true); err != nil {
		return Merged{}, err
	}
	m := Merged{Before: make([]uint64, len(slots))}
	for _, b := range batches {
		if err := b.read(&m); err != nil {
			return Merged{}, err
		}
	}
	m.Epoch = r.knownEpoch(ctx)
	return m, nil
}

// Restore implements Store. It keeps to what Merge says of slots that have expired and of memory that is full.
func (r *Redis) Restore(ctx context.Context, slots []counters.Slot, now int64) error {
	err := ctx.Err()
	if err == nil {
		err = r.run(ctx, r.batches(gather(slots, now, restored)), true)
	}
	if err != nil {
		return fmt.Errorf("restore in redis: %w", explain(ctx, err))
	}
	return nil
}

// eachMaster calls f for every server that takes writes, in a cluster concurrently, and returns an error of one of
// them.
func (r *Redis) eachMaster(ctx context.Context, f func(ctx context.Context, server *redis.Client) error) error {
	if c, ok := r.client.(*redis.ClusterClient); ok {
		return c.ForEachMaster(ctx, f)
	}
	return f(ctx, r.client.(*redis.Client))
}

// explain says what to do about an error of the server, and makes what came of an ended context the context's.
func explain(ctx context.Context, err error) error {
	if deadline, ok := ctx.Deadline(); ctx.Err() == nil && ok && !time.Now().Before(deadline) {
		// The connection's deadline is the context's, and may be noticed first.
		return fmt.Errorf("%w (%w)", context.DeadlineExceeded, err)
	}
	if ended := ctx.Err(); ended != nil {
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

// hints are the answers that somebody has to do something about.
var hints = []struct{ prefix, say string }{
	{"WRONGPASS", "check the user and the password"},
	{"NOAUTH", "configure a password"},
	{"NOPERM", "give the user the rights listed in regions/DESIGN.md"},
	{"The user executing the script can't run", "give the user the rights listed in regions/DESIGN.md"},
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
