package respapi

import (
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// A throttled key exists as long as it owes something, as redis-cell's does: its time to live is its debt. It may be
// deleted by whoever may charge it, as in Redis.

// databases is how many SELECT knows, Redis' default. Each has keys of its own.
const databases = 16

// selectDB is SELECT index.
func (c *session) selectDB(args [][]byte) outcome {
	switch n, ok := parseInt(args[1]); {
	case !ok:
		return c.fail("ERR value is not an integer or out of range")
	case n < 0 || n >= databases:
		return c.fail("ERR DB index is out of range")
	default:
		c.db = byte(n)
	}
	return c.ok()
}

// identity is what the limiter knows a key by: the key itself, in other databases than 0 and for keys that begin with a
// zero byte after a zero byte and the database. It is valid until the next call.
func (c *session) identity(key []byte) []byte {
	if c.db == 0 && (len(key) == 0 || key[0] != 0) {
		return key
	}
	c.key = append(append(c.key[:0], 0, c.db), key...)
	return c.key
}

// del is DEL or UNLINK key [key ...]: it frees the keys.
func (c *session) del(args [][]byte) outcome {
	deleted := int64(0)
	for _, key := range args[1:] {
		deleted += flag(c.free(key))
	}
	c.integer(deleted)
	return other
}

// free gives back all that a key owes, and reports whether it did owe.
func (c *session) free(key []byte) bool {
	owed, _ := c.server.limiter.GiveBack(c.identity(key), counters.MaxDebt, counters.MaxDebt)
	return owed > 0
}

// exists is EXISTS key [key ...]: a key named twice counts twice.
func (c *session) exists(args [][]byte) outcome {
	found := int64(0)
	for _, key := range args[1:] {
		found += flag(c.owed(key) > 0)
	}
	c.integer(found)
	return other
}

func (c *session) ttl(args [][]byte) outcome {
	return c.lives(args[1], func(owed time.Duration) int64 {
		return int64((owed.Truncate(time.Millisecond) + time.Second/2) / time.Second)
	})
}

func (c *session) pttl(args [][]byte) outcome { return c.lives(args[1], time.Duration.Milliseconds) }

// lives replies with a key's time to live, -2 if there is no such key.
func (c *session) lives(key []byte, in func(time.Duration) int64) outcome {
	if owed := c.owed(key); owed > 0 {
		c.integer(in(owed))
	} else {
		c.integer(-2)
	}
	return other
}

func (c *session) typeOf(args [][]byte) outcome {
	if c.owed(args[1]) > 0 {
		c.status("string")
	} else {
		c.status("none")
	}
	return other
}

const expiresEarly = "ERR a throttled key cannot expire before it owes nothing; DEL frees it"

// expire is EXPIRE key seconds or PEXPIRE key milliseconds. A time that has passed deletes the key; one that ends after
// the debt changes nothing, as an idle key counts for nothing. An earlier one cannot be kept.
func (c *session) expire(args [][]byte) outcome {
	n, ok := parseInt(args[2])
	if !ok {
		return c.fail("ERR value is not an integer or out of range")
	}
	unit := time.Second
	if strings.EqualFold(string(args[0]), "pexpire") {
		unit = time.Millisecond
	}
	if n <= 0 {
		c.integer(flag(c.free(args[1])))
		return other
	}
	switch owed := c.owed(args[1]); {
	case owed == 0:
		c.integer(0)
	case n < int64((owed.Truncate(time.Millisecond)+unit-1)/unit):
		return c.fail(expiresEarly)
	default:
		c.integer(1)
	}
	return other
}
