package respapi

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"
)

// cellModel is redis-cell 0.5 in a Redis 7, as naive as can be: per key a theoretical arrival time in nanoseconds. It
// is written from the documented behaviour and from what its replies are made of: whole nanoseconds for an interval,
// whole microseconds for what remains, whole milliseconds for waits and for a key's time to live.
type cellModel struct {
	now    int64
	keys   map[string]int64
	listed map[string]int // deviations that were met, see COMPATIBILITY.md
}

const (
	listedEarly = "retry_after that is early by less than a millisecond"
	listedAbove = "remaining above what is admitted"
	listedWraps = "a quantity whose time wraps around in 64 bits"
)

// owed is a key's debt; a key without one has expired.
func (m *cellModel) owed(key string) int64 { return max(m.keys[key]-m.now, 0) }

// up rounds milliseconds up to seconds.
func up(ns int64) int64 {
	whole := ns / 1e9
	if ns%1e9/1e6 > 0 {
		whole++
	}
	return whole
}

func (m *cellModel) throttle(key string, n [4]int64) string {
	burst, count, period, quantity := n[0], n[1], n[2], n[3]
	if count == 0 || period == 0 {
		return "-Cell error: Store error: Zero rates are not supported"
	}
	interval := int64(float64(period) * 1e9 / float64(count))
	if quantity > math.MaxInt64/interval/2 {
		m.listed[listedWraps]++
		quantity = math.MaxInt64 / interval / 2
	}
	tolerance, limit, owed := interval*(burst+1), burst+1, m.owed(key)
	limited, retry, ttl := int64(0), int64(-1e9), owed+interval*quantity
	if over := ttl - tolerance; over > 0 {
		if limited, ttl = 1, owed; interval*quantity <= tolerance {
			retry = over
		}
	} else if ttl/1e6 < -1 {
		delete(m.keys, key)
		return "-Cell error: Store error: Error while setting key expire"
	} else {
		m.keys[key] = m.now + ttl
	}
	remaining := int64(0)
	if left := tolerance - ttl; left > -interval {
		remaining = int64(float64(left/1e3) / float64(interval/1e3))
	}
	if admitted := min(max(0, (tolerance-ttl)/interval), limit); burst >= 0 && remaining != admitted {
		m.listed[listedAbove]++
		remaining = admitted
	}
	wait := up(retry)
	if rest := retry % 1e9; retry > 0 && rest > 0 && rest < 1e6 {
		m.listed[listedEarly]++
		wait++
	}
	return fmt.Sprint([]int64{limited, limit, remaining, wait, up(ttl)})
}

func (m *cellModel) run(words []string) string {
	key := words[1]
	owed := m.owed(key)
	flag := fmt.Sprint(flag(owed > 0))
	switch strings.ToLower(words[0]) {
	case "cl.throttle":
		if len(words) < 5 || len(words) > 6 {
			return "-" + usage
		}
		n := [4]int64{3: 1}
		for i, w := range words[2:] {
			var err error
			if n[i], err = strconv.ParseInt(w, 10, 64); err != nil {
				return "-Cell error: Store error: Couldn't parse as integer: " + w
			}
		}
		return m.throttle(key, n)
	case "del":
		delete(m.keys, key)
		return flag
	case "exists":
		return flag
	case "type":
		if owed > 0 {
			return "+string"
		}
		return "+none"
	case "ttl", "pttl":
		if owed == 0 {
			return "-2"
		}
		if words[0] == "ttl" {
			return fmt.Sprint((owed/1e6 + 500) / 1000)
		}
		return fmt.Sprint(owed / 1e6)
	case "expire":
		if strings.HasPrefix(words[2], "-") || words[2] == "0" {
			delete(m.keys, key)
		}
		return flag
	}
	panic(words)
}

// TestAsRedisCell asks random sessions of thousands of commands of the server and of the model, at the same times, over
// both versions of the protocol. All replies are equal but for those that are listed in COMPATIBILITY.md.
func TestAsRedisCell(t *testing.T) {
	for _, version := range []string{"2", "3"} {
		t.Run("RESP"+version, func(t *testing.T) {
			b, asked := newBank(), 0
			s := New(b, quiet())
			m := &cellModel{now: b.now.Load(), keys: make(map[string]int64), listed: make(map[string]int)}
			random := rand.New(rand.NewPCG(5, uint64(version[0])))
			for range 5_000 {
				words := randomCommand(random)
				if random.IntN(3) == 0 {
					m.now += random.Int64N([]int64{10, 1e3, 1e5, 1e8}[random.IntN(4)]) * int64(time.Millisecond)
					b.now.Store(m.now)
				}
				before := m.owed(words[1])
				got := replies(t, converse(s, array("HELLO", version), array(words...)))[1]
				if want := m.run(words); got != want {
					t.Fatalf("%q with %v owed: %s, want %s", words, time.Duration(before), got, want)
				}
				asked++
			}
			t.Logf("%d replies are equal; listed ones among them: %v", asked, m.listed)
			if listed := m.listed[listedEarly] + m.listed[listedAbove]; listed == 0 || listed > asked/25 {
				t.Errorf("%d replies were listed ones", listed)
			}
		})
	}
}

// randomCommand is a command for one of a few keys, with numbers that people use: mostly for the same limit.
func randomCommand(random *rand.Rand) []string {
	shapes := []string{
		"15 30 60", "15 30 60", "15 30 60", "4 1 1", "0 1 2", "9 3 1", "99 7 60", "59 60 60", "999 1000 1",
		"2999 3000 1",
		"999 1000 3600", "9999 10000 86400", "30 1 86400", "99 100 2592000", "11 1 31536000", "0 1 63072000", "-1 1 1",
		"5 0 1", "5 1 0", "x 1 1", "1 1 1e3", "+5 05 1",
	}
	key := string('a' + rune(random.IntN(4)))
	switch random.IntN(12) {
	case 0:
		return []string{[]string{"del", "exists", "type", "ttl", "pttl"}[random.IntN(5)], key}
	case 1:
		return []string{"expire", key, []string{"0", "-1", "3153600000"}[random.IntN(3)]}
	}
	words := append([]string{"cl.throttle", key}, strings.Fields(shapes[random.IntN(len(shapes))])...)
	if random.IntN(2) == 0 {
		words = append(words, []string{"1", "0", "2", "5", "16", "1000", "-1", "-2", "1000000", "q"}[random.IntN(10)])
	}
	if random.IntN(100) == 0 {
		words = words[:2+random.IntN(3)]
	}
	return words
}

// FuzzThrottle: whatever the numbers, two requests for a key are answered as the model does, where it computes without
// overflow and in whole microseconds, and DEL frees the key.
func FuzzThrottle(f *testing.F) {
	f.Add(int64(15), int64(30), int64(60), int64(1), int64(5), int64(3), int64(1), int64(-2), int64(1e9))
	f.Add(int64(-1), int64(1), int64(1), int64(0), int64(1), int64(1), int64(31536000), int64(2), int64(0))
	f.Add(int64(1<<40), int64(1e6), int64(1), int64(1<<40), int64(1), int64(1), int64(1<<31), int64(-1<<40), int64(1))
	f.Fuzz(func(t *testing.T, burst, count, period, quantity, burst2, count2, period2, quantity2, pause int64) {
		b := newBank()
		s := New(b, quiet())
		m := &cellModel{now: b.now.Load(), keys: make(map[string]int64), listed: make(map[string]int)}
		for _, n := range [][4]int64{{burst, count, period, quantity}, {burst2, count2, period2, quantity2}} {
			words := []string{"cl.throttle", "k"}
			for _, v := range n {
				words = append(words, strconv.FormatInt(v, 10))
			}
			got := replies(t, converse(s, array(words...)))[0]
			if got == "-"+outOfRange || got == "-"+zeroRate {
				return
			}
			interval := int64(float64(n[2]) * 1e9 / float64(n[1]))
			if interval < int64(time.Microsecond) || n[0] < -1 || n[3] < -math.MaxInt64/interval/2 {
				return
			}
			if want := m.throttle("k", n); got != want {
				t.Fatalf("%q: %s, want %s", words, got, want)
			}
			b.now.Add(max(0, pause%1e15))
			m.now = b.now.Load()
		}
		if got := replies(t, converse(s, "DEL k\nEXISTS k\n"))[1]; got != "0" {
			t.Fatalf("after DEL: %s", got)
		}
	})
}
