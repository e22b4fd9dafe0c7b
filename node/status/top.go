package status

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

const (
	topKeys = 64              // of a generation
	topSpan = 5 * time.Minute // of a generation
	// MaxIdentity is how many bytes of an identity are kept.
	MaxIdentity = 63
)

// Top counts whom a rule denies most, by the space-saving algorithm (Metwally et al., 2005) in two generations of 64
// keys and five minutes: a new key takes the place of the one with the smallest count, and that count as its error. So
// each key that had more than a 64th of all denials is there, however many others there are. The zero value is ready;
// it takes its memory, 3 KiB, with the first denial. It is safe for concurrent use.
type Top struct {
	mu    sync.Mutex
	began int64 // of the generation at hand, in Unix nanoseconds
	spans *[2][]topEntry
	names *[2][topKeys]topName
}

type topEntry struct{ key, count, over uint64 }

// topName has a fixed size, so that nothing is allocated for an identity.
type topName struct {
	size uint8
	text [MaxIdentity]byte
}

// Count counts a denial at a time in Unix nanoseconds, and keeps the first MaxIdentity bytes of identity if it has any.
func (t *Top) Count(key uint64, identity string, now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.spans == nil {
		t.spans = &[2][]topEntry{make([]topEntry, 0, topKeys), make([]topEntry, 0, topKeys)}
	}
	if identity != "" && t.names == nil {
		t.names = new([2][topKeys]topName)
	}
	t.turn(now)
	span := t.spans[0]
	least := 0
	for i := range span {
		if span[i].key == key {
			span[i].count++
			return
		}
		if span[i].count < span[least].count {
			least = i
		}
	}
	e := topEntry{key: key, count: 1}
	if len(span) < topKeys {
		t.spans[0] = append(span, e)
		least = len(span)
	} else {
		e.over = span[least].count
		e.count += e.over
		span[least] = e
	}
	if t.names != nil {
		n := &t.names[0][least]
		n.size = uint8(copy(n.text[:], identity))
	}
}

// turn begins a new generation when the one at hand is over. Who took the time just before a generation began, or a
// clock that steps back by less than one, does not end it. The lock is held.
func (t *Top) turn(now int64) {
	switch age := time.Duration(now - t.began); {
	case age > -topSpan && age < topSpan:
		return
	case age >= 0 && age < 2*topSpan:
		t.spans[0], t.spans[1] = t.spans[1][:0], t.spans[0]
		if t.names != nil {
			t.names[0], t.names[1] = t.names[1], t.names[0]
		}
	default:
		t.spans[0], t.spans[1] = t.spans[0][:0], t.spans[1][:0]
	}
	t.began = now
}

// Denied is whom a rule denied often.
type Denied struct {
	Rule string `json:"rule"` // its public name
	// Key is the keyed hash that the rule counts by, as 16 hexadecimal digits.
	Key string `json:"key"`
	// Identity is who it is, where the rule has expose: identity; the first 63 bytes.
	Identity string `json:"identity,omitempty"`
	// Denials of the last five to ten minutes by this node: at most so many, and at least Denials - Error.
	Denials uint64 `json:"denials"`
	Error   uint64 `json:"error"`
}

// Entry is one of the keys of a Top.
type Entry struct {
	Key            uint64
	Identity       string
	Denials, Error uint64
}

// Most returns the n keys that were denied most in the last five to ten minutes.
func (t *Top) Most(n int, now int64) []Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.spans == nil {
		return nil
	}
	t.turn(now)
	sums := make(map[uint64]Entry)
	for g, span := range t.spans {
		for i, e := range span {
			s := sums[e.key]
			s.Key, s.Denials, s.Error = e.key, s.Denials+e.count, s.Error+e.over
			if t.names != nil && s.Identity == "" {
				name := &t.names[g][i]
				s.Identity = string(name.text[:name.size])
			}
			sums[e.key] = s
		}
	}
	all := make([]Entry, 0, len(sums))
	for _, e := range sums {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.Denials, a.Denials), cmp.Compare(a.Key, b.Key))
	})
	return all[:min(max(n, 0), len(all))]
}
