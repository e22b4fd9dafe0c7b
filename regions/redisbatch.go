package regions

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/edgelimit/edgelimit/counters"
)

//go:embed lua/merge.lua
var mergeSource string

var mergeScript = redis.NewScript(mergeSource)

// maxBatch is how many hashes one run of the script touches, so that it holds up nobody else for long: some 0.2 ms.
const maxBatch = 64

// redisHash are the slots of one call that lie in one hash.
type redisHash struct {
	id   hashID
	name string
	ttl  int64 // milliseconds
	at   []int // indices in the slots of the call
}

// batch is one run of the script and its answer.
type batch struct {
	slots  []counters.Slot // of the whole call
	kind   fieldKind
	hashes []*redisHash
	answer *redis.Cmd
	again  []*batch // replace it because the server would not run it
}

// with returns a batch of the same call with other hashes.
func (b *batch) with(hashes []*redisHash) *batch {
	return &batch{slots: b.slots, kind: b.kind, hashes: hashes}
}

// batches groups slots by hash, and hashes for the script: in a cluster, those of one bucket. It leaves out slots that
// have expired.
func (r *Redis) batches(slots []counters.Slot, now int64, kind fieldKind) []*batch {
	byID := make(map[hashID]*redisHash, len(slots))
	hashes := make([]*redisHash, 0, len(slots))
	var name []byte
	for i := range slots {
		s := &slots[i]
		if expired(s.Meter, s.Index, now) {
			continue
		}
		id := hashID{*s.Meter, s.Key, s.Index}
		h := byID[id]
		if h == nil {
			name = appendRedisKey(name[:0], &id)
			h = &redisHash{id: id, name: string(name), ttl: timeToLive(&id, now)}
			byID[id] = h
			hashes = append(hashes, h)
		}
		h.at = append(h.at, i)
	}
	if r.cluster {
		slices.SortStableFunc(hashes,
			func(a, b *redisHash) int { return cmp.Compare(bucketOf(a.id.key), bucketOf(b.id.key)) })
	}
	call := batch{slots: slots, kind: kind}
	var all []*batch
	first := 0
	for i := range hashes {
		if i+1 == len(hashes) || i+1 == first+maxBatch ||
			r.cluster && bucketOf(hashes[i+1].id.key) != bucketOf(hashes[i].id.key) {
			all = append(all, call.with(hashes[first:i+1]))
			first = i + 1
		}
	}
	return all
}

// AtMostOnce is a command that the client library does not send again when its answer was lost. It still follows
// redirects.
type AtMostOnce struct{ *redis.Cmd }

// NoRetry is asked by the library.
func (AtMostOnce) NoRetry() bool { return true }

// run runs the script for all batches, in one pipeline for each server. With again set it repeats what a server
// refused.
func (r *Redis) run(ctx context.Context, batches []*batch, again bool) error {
	if len(batches) == 0 {
		return nil
	}
	pipe := r.client.Pipeline()
	for _, b := range batches {
		b.answer = redis.NewCmd(ctx, b.command()...)
		if err := pipe.Process(ctx, AtMostOnce{b.answer}); err != nil {
			return err
		}
	}
	_, failed := pipe.Exec(ctx)
	if failed == nil || !again {
		return failed
	}
	retry, unknown, err := refused(batches, failed)
	if err != nil {
		return err
	}
	if unknown {
		err := EachMaster(ctx, r.client, func(ctx context.Context, server *redis.Client) error {
			return mergeScript.Load(ctx, server).Err()
		})
		if err != nil && !r.cluster { // in a cluster the server that failed need not be one that is asked
			return err
		}
	}
	return r.run(ctx, retry, false)
}

// refused returns which batches to repeat after a pipeline failed, and whether a server did not know the script. The
// error is that of a batch which failed for another reason.
func refused(batches []*batch, failed error) (retry []*batch, unknown bool, err error) {
	for _, b := range batches {
		switch err := b.answer.Err(); {
		case err == nil && b.answer.Val() == nil:
			return nil, false, failed // it was not sent: the library says why of the pipeline alone
		case err == nil:
			continue
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			unknown = true
			b.again = []*batch{b.with(b.hashes)}
		case redis.IsTryAgainError(err) && len(b.hashes) > 1:
			// Its slot is moving, and its keys are on both sides: each for itself is found.
			for i := range b.hashes {
				b.again = append(b.again, b.with(b.hashes[i:i+1]))
			}
		default:
			return nil, false, err
		}
		retry = append(retry, b.again...)
	}
	return retry, unknown, nil
}

// command is the script's call; see lua/merge.lua.
func (b *batch) command() []any {
	args := make([]any, 0, 3+7*len(b.hashes))
	args = append(args, "evalsha", mergeScript.Hash(), len(b.hashes))
	for _, h := range b.hashes {
		args = append(args, h.name)
	}
	for _, h := range b.hashes {
		args = append(args, h.ttl, len(h.at))
		for _, i := range h.at {
			s := &b.slots[i]
			args = append(args, fieldOf(s.Origin, s.Birth, b.kind), strconv.FormatUint(s.Count, 10))
		}
	}
	return args
}

// read adds the batch's answer to m.
func (b *batch) read(m *Merged) error {
	for _, part := range b.again {
		if err := part.read(m); err != nil {
			return err
		}
	}
	if b.again != nil {
		return nil
	}
	answers, err := b.answer.Slice()
	if err != nil {
		return err
	}
	if len(answers) != len(b.hashes) {
		return fmt.Errorf("the script gave %d answers about %d keys", len(answers), len(b.hashes))
	}
	for i, h := range b.hashes {
		values, ok := answers[i].([]any)
		if !ok || len(values) < len(h.at) {
			return fmt.Errorf("the script answered %v about %s", answers[i], h.name)
		}
		for j, at := range h.at {
			text, _ := values[j].(string)
			if m.Before[at], err = strconv.ParseUint(text, 10, 64); err != nil {
				return fmt.Errorf("%s holds %v where a count belongs; delete the key", h.name, values[j])
			}
		}
		others := appendFields(nil, b.slots[h.at[0]].Meter, &h.id, values[len(h.at):])
		given := func(s counters.Slot) bool { // somebody may have restored it
			return slices.ContainsFunc(h.at,
				func(i int) bool { return b.slots[i].Origin == s.Origin && b.slots[i].Birth == s.Birth })
		}
		m.Others = append(m.Others, slices.DeleteFunc(others, given)...)
	}
	return nil
}

// appendFields appends the slots of alternating fields and counts, each once. It leaves out fields of other programs.
func appendFields(dst []counters.Slot, meter *counters.Meter, id *hashID, values []any) []counters.Slot {
	first := len(dst)
	for i := 0; i+1 < len(values); i += 2 {
		field, _ := values[i].(string)
		text, _ := values[i+1].(string)
		origin, birth, ok := parseField(field)
		count, err := strconv.ParseUint(text, 10, 64)
		if !ok || err != nil {
			continue
		}
		known := slices.IndexFunc(dst[first:],
			func(s counters.Slot) bool { return s.Origin == origin && s.Birth == birth })
		if known >= 0 {
			dst[first+known].Count = max(dst[first+known].Count, count)
			continue
		}
		dst = append(dst,
			counters.Slot{Meter: meter, Key: id.key, Index: id.index, Origin: origin, Birth: birth, Count: count})
	}
	return dst
}
