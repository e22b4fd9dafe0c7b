package regions

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// How slots lie in Redis. One hash holds all slots of a meter, a key and a sub-window:
//
//	el1:{2f3}:bcd05f2a9e1774c6:4958722:1:1h0m0s/10:edge/remote_address
//	│    │    │                │       │ │      │  └ rule, as it is: it comes last
//	│    │    │                │       │ │      └ sub-windows in the window
//	│    │    │                │       │ └ window
//	│    │    │                │       └ algorithm
//	│    │    │                └ sub-window
//	│    │    └ key
//	│    └ bucket, the first 10 bits of the key: Redis Cluster places keys by what is in braces
//	└ version of this layout
//
// A field is an origin and a birth, like "AAAAAAAAAAE.3", its value the count in decimal. The meter is in the name of
// the hash so that whoever finds the hash knows what it counts, with nothing beside it that could be lost or left
// behind.
const (
	redisKeyPrefix  = "el1:{"
	redisKeyPattern = redisKeyPrefix + "*"
	bucketBits      = 10
)

// hashID names one hash.
type hashID struct {
	meter counters.Meter
	key   counters.Key
	index int64
}

// bucketOf is the part of Redis Cluster that a key belongs to.
func bucketOf(key counters.Key) int { return int(uint64(key) >> (64 - bucketBits)) }

func appendRedisKey(dst []byte, id *hashID) []byte {
	dst = fmt.Appendf(dst, "%s%03x}:%016x:%d:", redisKeyPrefix, bucketOf(id.key), uint64(id.key), id.index)
	return AppendMeter(dst, &id.meter)
}

// AppendMeter appends a meter's part of the names of keys.
func AppendMeter(dst []byte, m *counters.Meter) []byte {
	return fmt.Appendf(dst, "%d:%s/%d:%s", m.Algorithm, m.Window, m.SubWindows(), m.Rule)
}

// parseRedisKey is the inverse of appendRedisKey. It takes nothing that appendRedisKey does not write.
func parseRedisKey(name string) (hashID, error) {
	parts := strings.SplitN(name, ":", 7)
	if len(parts) != 7 {
		return hashID{}, fmt.Errorf("redis key %q: not of this layout", name)
	}
	// What cannot be read is 0, and so not written back as it was.
	key, _ := strconv.ParseUint(parts[2], 16, 64)
	index, _ := strconv.ParseInt(parts[3], 10, 64)
	algorithm, _ := strconv.ParseUint(parts[4], 10, 8)
	length, n, _ := strings.Cut(parts[5], "/")
	window, _ := time.ParseDuration(length)
	subs, _ := strconv.ParseInt(n, 10, 64)
	id := hashID{counters.Meter{
		Rule: parts[6], Algorithm: counters.Algorithm(algorithm), Window: window,
		Sub: window / time.Duration(max(subs, 1)),
	}, counters.Key(key), index}
	if err := id.meter.Validate(); err != nil {
		return hashID{}, fmt.Errorf("redis key %q: %w", name, err)
	}
	if string(appendRedisKey(nil, &id)) != name {
		return hashID{}, fmt.Errorf("redis key %q: not as this layout writes it", name)
	}
	return id, nil
}

// A field is 11 characters of base64, a mark, and the birth: short, since it is what a hash has most of, and legible.
var fieldEncoding = base64.RawURLEncoding.Strict()

const originLen = 11

// fieldKind is the mark of a field. What the origin sent itself and what others restored are apart, so that an origin
// can tell that the store lost what it sent.
type fieldKind byte

const (
	written  fieldKind = '.'
	restored fieldKind = '~'
)

func fieldOf(origin counters.Origin, birth uint32, kind fieldKind) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(origin))
	dst := fieldEncoding.AppendEncode(make([]byte, 0, 24), b[:])
	return string(strconv.AppendUint(append(dst, byte(kind)), uint64(birth), 10))
}

func parseField(field string) (origin counters.Origin, birth uint32, ok bool) {
	if len(field) <= originLen || fieldKind(field[originLen]) != written && fieldKind(field[originLen]) != restored {
		return 0, 0, false
	}
	b, err := fieldEncoding.DecodeString(field[:originLen])
	if err != nil || len(b) != 8 {
		return 0, 0, false
	}
	n, err := strconv.ParseUint(field[originLen+1:], 10, 32)
	return counters.Origin(binary.BigEndian.Uint64(b)), uint32(n), err == nil
}

// timeToLive is for how long Redis keeps a sub-window, in milliseconds: for as long as it can count, and longer by more
// than clocks are expected to differ, and not all keys of a sub-window equally long. It is a length of time and not a
// moment: the server's clock may be another than the caller's, and either may be set.
func timeToLive(id *hashID, now int64) int64 {
	const spread = 4096 // milliseconds
	counts := lifetime(&id.meter, id.index, now) + clockSkew
	return counts.Milliseconds() + 1 + int64(id.key%spread)
}
