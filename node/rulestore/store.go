package rulestore

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/edgelimit/edgelimit/regions"
)

//go:embed publish.lua
var publishScript string

// Names in Redis. The hash tag keeps them together in a cluster.
const (
	prefix  = "elrules1:{rules}:"
	channel = "elrules1:changes"
)

func (k Kind) key(what string) string { return prefix + k.String() + ":" + what }

const (
	inForce  = "current"  // "version sha256"
	versions = "versions" // hash: version to description
	texts    = "texts"    // hash: version to text
)

// Store is one Redis with rules. It is safe for concurrent use.
type Store struct {
	client redis.UniversalClient
	addr   string
}

// Timeouts of a Store: the texts of one call are large, and may cross an ocean.
const (
	dialTimeout = 2 * time.Second
	callTimeout = 5 * time.Second
)

// Open returns the store in the Redis of a configuration, whose timeouts it does not use. It dials nobody. Close it
// after its last call.
func Open(cfg regions.RedisConfig) (*Store, error) {
	cfg.DialTimeout, cfg.CallTimeout, cfg.PoolTimeout = dialTimeout, callTimeout, callTimeout
	client, err := cfg.Client(8)
	if err != nil {
		return nil, err
	}
	return &Store{client, cfg.String()}, nil
}

// Close closes the connections.
func (s *Store) Close() error { return s.client.Close() }

// String returns the URL of the Redis, with *** for its password.
func (s *Store) String() string { return s.addr }

// ErrNoVersion means that a Store does not hold a version, or holds none.
var ErrNoVersion = errors.New("no such version")

// ErrGarbage means that a Store holds what no edgelimit has written.
var ErrGarbage = errors.New("it is not what was published")

// ConflictError is what Publish returns where another version is in force than the publisher has seen.
type ConflictError struct {
	InForce uint64 // 0: none
}

// Error implements error.
func (e *ConflictError) Error() string {
	if e.InForce == 0 {
		return "there is no version any more"
	}
	return fmt.Sprintf("version %d is in force by now", e.InForce)
}

// failed says what a call was for, and what to do about its error.
func (s *Store) failed(ctx context.Context, what string, err error) error {
	if redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "The user executing the script can't run") {
		return fmt.Errorf("%s %s: give the user the rights listed in node/rules/REDIS.md (%w)", what, s, err)
	}
	if strings.Contains(err.Error(), "WRONGTYPE") {
		return fmt.Errorf("%s %s: another program has written to a key that begins with %s; keys of versions and "+
			"texts are hashes: delete what is none (%v; %w)", what, s, prefix, err, ErrGarbage)
	}
	return fmt.Errorf("%s %s: %w", what, s, regions.Explain(ctx, err))
}

// found is what a Store says is in force of a document, or why that cannot be read.
type found struct {
	head
	err error
}

// heads returns what is in force.
func (s *Store) heads(ctx context.Context) (all [kinds]found, err error) {
	values, err := s.client.MGet(ctx, Rules.key(inForce), Limits.key(inForce)).Result()
	if err != nil {
		return all, s.failed(ctx, "read the versions from", err)
	}
	for i := range min(len(values), int(kinds)) {
		text, _ := values[i].(string)
		h, err := parseHead(text)
		if err != nil {
			err = fmt.Errorf("%s: %s: %w (%w)", s, Kind(i), err, ErrGarbage)
		}
		all[i] = found{h, err}
	}
	return all, nil
}

// Current returns the version of a document that is in force; the zero Document if nothing was published.
func (s *Store) Current(ctx context.Context, k Kind) (Document, error) {
	for range 3 { // another version may come in force, and this one be dropped from the history
		all, err := s.heads(ctx)
		if err = errors.Join(err, all[k].err); err != nil || all[k].version == 0 {
			return Document{}, err
		}
		d, err := s.fetch(ctx, k, all[k].head)
		if !errors.Is(err, ErrNoVersion) {
			return d, err
		}
	}
	return Document{}, fmt.Errorf("%s: the text of the %s in force is missing: publish them again (%w)", s, k,
		ErrNoVersion)
}

// fetch returns the version of a head.
func (s *Store) fetch(ctx context.Context, k Kind, h head) (Document, error) {
	d, err := s.Fetch(ctx, k, h.version)
	if err == nil && d.head() != h {
		return Document{}, fmt.Errorf("%s: %s: version %d has another text than the one in force (%w)", s, k,
			h.version, ErrGarbage)
	}
	return d, err
}

// Fetch returns a version. It is ErrNoVersion if the store does not hold it.
func (s *Store) Fetch(ctx context.Context, k Kind, version uint64) (Document, error) {
	id := strconv.FormatUint(version, 10)
	// What is too large is not read.
	pipe := s.client.Pipeline()
	metaSize, textSize := pipe.HStrLen(ctx, k.key(versions), id), pipe.HStrLen(ctx, k.key(texts), id)
	if _, err := pipe.Exec(ctx); err != nil {
		return Document{}, s.failed(ctx, "read from", err)
	}
	switch most := kindBounds[k].text; {
	case metaSize.Val() == 0 || textSize.Val() == 0:
		return Document{}, fmt.Errorf("%s: %s: version %d: %w", s, k, version, ErrNoVersion)
	case metaSize.Val() > maxMeta || textSize.Val() > int64(most):
		return Document{}, fmt.Errorf("%s: %s: version %d has %d and %d bytes, at most %d and %d are allowed (%w)", s,
			k, version, metaSize.Val(), textSize.Val(), maxMeta, most, ErrGarbage)
	}
	pipe = s.client.Pipeline()
	meta, text := pipe.HGet(ctx, k.key(versions), id), pipe.HGet(ctx, k.key(texts), id)
	if _, err := pipe.Exec(ctx); errors.Is(err, redis.Nil) {
		return Document{}, fmt.Errorf("%s: %s: version %d: %w", s, k, version, ErrNoVersion)
	} else if err != nil {
		return Document{}, s.failed(ctx, "read from", err)
	}
	d, err := decodeDocument([]byte(meta.Val()), []byte(text.Val()))
	if err == nil && d.Version.Version != version {
		err = fmt.Errorf("it says that it is version %d", d.Version.Version)
	}
	if err != nil {
		return Document{}, fmt.Errorf("%s: %s: version %d: %w (%w)", s, k, version, err, ErrGarbage)
	}
	return d, nil
}

// History returns the versions that the store holds, the latest first; with an error those that it could read.
func (s *Store) History(ctx context.Context, k Kind) ([]Version, error) {
	n, err := s.client.HLen(ctx, k.key(versions)).Result()
	if err != nil {
		return nil, s.failed(ctx, "read the history from", err)
	}
	if most := int64(kindBounds[k].keep); n > most {
		return nil, fmt.Errorf("%s: %d versions, at most %d are kept: something else has written there", s, n, most)
	}
	all, err := s.client.HGetAll(ctx, k.key(versions)).Result()
	if err != nil {
		return nil, s.failed(ctx, "read the history from", err)
	}
	list := make([]Version, 0, len(all))
	var failed error
	for id, meta := range all {
		var v Version
		if err := decodeStrictly([]byte(meta), &v); err != nil || strconv.FormatUint(v.Version, 10) != id {
			failed = fmt.Errorf("%s: the description of version %.20q is of another one, or cannot be read (%v)", s,
				id, err)
			continue
		}
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b Version) int { return cmp.Compare(b.Version, a.Version) })
	return list, failed
}

// Publish puts a document in force if before, which may be the zero Document, still is: of two that publish at once one
// wins, and the other gets a *ConflictError. The version has to be later than before's.
func (s *Store) Publish(ctx context.Context, k Kind, d, before Document) error {
	return s.publish(ctx, k, d, before.head().String())
}

// Follow puts in force what another store decided on, unless a later version is: then it is a *ConflictError. Again it
// does nothing.
func (s *Store) Follow(ctx context.Context, k Kind, d Document) error {
	return s.publish(ctx, k, d, "older")
}

func (s *Store) publish(ctx context.Context, k Kind, d Document, expected string) error {
	if err := d.validate(); err != nil {
		return fmt.Errorf("%s: version %d: %w", k, d.Version.Version, err)
	}
	b := kindBounds[k]
	answer, err := s.client.Eval(ctx, publishScript, []string{k.key(inForce), k.key(versions), k.key(texts)},
		expected, d.Version.Version, d.head().String(), encode(d.Version), d.Text, b.keep, b.keepSize, channel).Slice()
	if err != nil {
		return s.failed(ctx, "publish to", err)
	}
	if len(answer) != 2 {
		return fmt.Errorf("%s: it answered %.80q", s, fmt.Sprint(answer))
	}
	if done, _ := answer[0].(int64); done == 1 {
		return nil
	}
	text, _ := answer[1].(string)
	h, err := parseHead(text)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", s, k, err)
	}
	return &ConflictError{h.version}
}
