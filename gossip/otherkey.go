package gossip

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// OtherKey is a host whose messages to the gossip ports are encrypted with none of this node's keys: a node with
// another key file, or a stranger.
type OtherKey struct {
	Addr     netip.Addr
	Last     time.Time
	Messages int // since a minute passed without any
}

const (
	otherKeyFor  = time.Minute // after its last message a host is no longer listed
	maxOtherKeys = 16          // hosts; the one that was silent for longest makes room
	// fewOtherKeys is up to how many messages are no finding: packets may be forged, or late after a change of keys.
	fewOtherKeys = 2
)

// otherKeys are hosts that have sent messages of another key of late. The zero value is ready for use.
type otherKeys struct {
	mu  sync.Mutex
	all []OtherKey
}

func (k *otherKeys) note(from netip.Addr, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	from = from.Unmap().WithZone("")
	i := slices.IndexFunc(k.all, func(o OtherKey) bool { return o.Addr == from })
	if i < 0 && len(k.all) < maxOtherKeys {
		i, k.all = len(k.all), append(k.all, OtherKey{})
	} else if i < 0 {
		i = slices.Index(k.all, slices.MinFunc(k.all, func(a, b OtherKey) int { return a.Last.Compare(b.Last) }))
	}
	if k.all[i].Addr != from || now.Sub(k.all[i].Last) > otherKeyFor {
		k.all[i] = OtherKey{Addr: from}
	}
	k.all[i].Last = now
	k.all[i].Messages++
}

// recent appends the hosts that go on sending.
func (k *otherKeys) recent(dst []OtherKey, now time.Time) []OtherKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, o := range k.all {
		if o.Messages > fewOtherKeys && now.Sub(o.Last) <= otherKeyFor {
			dst = append(dst, o)
		}
	}
	return dst
}

// OtherKeys returns the hosts that go on sending messages which are encrypted with none of this node's keys, at most 16
// in each of its networks, the one with most messages first. Addresses of packets can be forged.
func (c *Cluster) OtherKeys() (all []OtherKey) {
	now := time.Now()
	for _, p := range c.pools {
		if p.sockets != nil {
			all = p.sockets.otherKeys.recent(all, now)
		}
	}
	slices.SortStableFunc(all, func(a, b OtherKey) int { return cmp.Compare(b.Messages, a.Messages) })
	return all
}
