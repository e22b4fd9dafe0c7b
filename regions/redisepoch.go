package regions

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// The epoch of a Redis changes with whatever may have taken slots from it, and so has three parts:
//
//   - the run_id of each master: it was restarted, perhaps from an older copy, or another one took over;
//   - how many keys each master evicted since it started;
//   - a marker beside the slots, in a cluster one in each bucket: it went with them (FLUSHALL). Whoever misses one
//     writes another, with a text of its own, so that the loss shows to every node.
//
// Merge reads it each time, as a master that is emptied keeps its connections and its process.
const markerName = "epoch" // el1:{2f3}:epoch

// markers are the names of all markers.
func (r *Redis) markers() []string {
	names := make([]string, 1)
	if r.cluster {
		names = make([]string, 1<<bucketBits)
	}
	for bucket := range names {
		names[bucket] = fmt.Sprintf("%s%03x}:%s", redisKeyPrefix, bucket, markerName)
	}
	return names
}

// state returns the epoch, and the time of one of the masters; zero: the user has no right to it.
func (r *Redis) state(ctx context.Context) (epoch string, at time.Time, err error) {
	texts, err := r.readMarkers(ctx)
	if err != nil {
		return "", time.Time{}, err
	}
	var mu sync.Mutex
	var masters []string
	err = EachMaster(ctx, r.client, func(ctx context.Context, server *redis.Client) error {
		pipe := server.Pipeline()
		process, stats, clock := pipe.Info(ctx, "server"), pipe.Info(ctx, "stats"), pipe.Time(ctx)
		_, _ = pipe.Exec(ctx) // each has its error
		if err := cmp.Or(process.Err(), stats.Err()); err != nil {
			return err
		}
		id := infoField(process.Val(), "run_id")
		if id == "" {
			return errors.New("INFO has no run_id")
		}
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, id+"/"+infoField(stats.Val(), "evicted_keys"))
		at = clock.Val()
		return nil
	})
	if err != nil {
		return "", time.Time{}, err
	}
	slices.Sort(masters)
	return fmt.Sprintf("%s %x", strings.Join(masters, " "), sha256.Sum256([]byte(strings.Join(texts, " ")))), at, nil
}

// infoField returns a field of an answer to INFO; empty: it has none.
func infoField(info, name string) string {
	_, value, _ := strings.Cut(info, "\n"+name+":")
	value, _, _ = strings.Cut(value, "\r\n")
	return value
}

// readMarkers returns the texts of all markers, and writes those that are missing. Where a server has no room for one
// its text is empty.
func (r *Redis) readMarkers(ctx context.Context) ([]string, error) {
	names := r.markers()
	texts := make([]string, len(names))
	if err := r.fillMarkers(ctx, names, texts, false); err != nil || !slices.Contains(texts, "") {
		return texts, err
	}
	return texts, r.fillMarkers(ctx, names, texts, true)
}

// fillMarkers reads the markers whose texts are empty; if write, it writes them first.
func (r *Redis) fillMarkers(ctx context.Context, names, texts []string, write bool) error {
	pipe := r.client.Pipeline()
	written, read := make([]*redis.BoolCmd, len(names)), make([]*redis.StringCmd, len(names))
	for i, name := range names {
		if texts[i] != "" {
			continue
		}
		if write {
			written[i] = pipe.SetNX(ctx, name, rand.Text(), 0)
		}
		read[i] = pipe.Get(ctx, name)
	}
	_, _ = pipe.Exec(ctx) // each has its error
	for i := range names {
		if w := written[i]; w != nil && w.Err() != nil && !redis.HasErrorPrefix(w.Err(), "OOM") {
			return w.Err()
		}
		if read[i] == nil {
			continue
		}
		if err := read[i].Err(); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		texts[i] = read[i].Val()
	}
	return nil
}
