package regions

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/edgelimit/edgelimit/counters"
)

// scanCount is how many keys a server looks at for one page.
const scanCount = 512

// Load implements Store. Of a cluster it reads all masters at once; a page is still given one at a time. What moves
// from one master to another meanwhile may be missed.
func (r *Redis) Load(ctx context.Context, now int64, page func(slots []counters.Slot)) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("load from redis: %w", err)
	}
	l := loader{client: r.client, now: now, page: page}
	if err := EachMaster(ctx, r.client, l.scan); err != nil {
		return fmt.Errorf("load from redis: %w", Explain(ctx, err))
	}
	return nil
}

// loader is one Load.
type loader struct {
	client redis.UniversalClient
	now    int64

	mu   sync.Mutex // held while page is called: one at a time
	page func([]counters.Slot)
}

// scan gives what one server holds.
func (l *loader) scan(ctx context.Context, server *redis.Client) error {
	var slots []counters.Slot
	for cursor := uint64(0); ; {
		names, next, err := server.Scan(ctx, cursor, redisKeyPattern, scanCount).Result()
		if err != nil {
			return err
		}
		if slots, err = l.read(ctx, slots[:0], names); err != nil {
			return err
		}
		if err := l.give(ctx, slots); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// read appends the slots of the hashes that can still count. They are asked of the client, not of the server that named
// them: in a cluster they may have moved.
func (l *loader) read(ctx context.Context, dst []counters.Slot, names []string) ([]counters.Slot, error) {
	pipe := l.client.Pipeline()
	var ids []hashID
	var hashes []*redis.Cmd
	for _, name := range names {
		id, err := parseRedisKey(name)
		if err != nil || expired(&id.meter, id.index, l.now) {
			continue // of another layout, or not ours
		}
		ids = append(ids, id)
		hashes = append(hashes, pipe.Do(ctx, "hgetall", name))
	}
	if len(ids) == 0 {
		return dst, nil
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return dst, err
	}
	for i := range ids {
		values, err := hashes[i].Slice()
		if err != nil {
			return dst, err
		}
		dst = appendFields(dst, &ids[i].meter, &ids[i], values)
	}
	return dst, nil
}

func (l *loader) give(ctx context.Context, slots []counters.Slot) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for chunk := range slices.Chunk(slots, pageSlots) {
		if err := ctx.Err(); err != nil {
			return err
		}
		l.page(chunk)
	}
	return nil
}
