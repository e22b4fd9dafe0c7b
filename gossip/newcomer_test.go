package gossip

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// A node that starts learns of a peer what it was before: the peer was not silent for that.
func TestAPeerIsNotSilentForLongerThanItIsKnown(t *testing.T) {
	now := int64(1_800_000_000 * time.Second)
	r := NewReplica(1, 100*time.Millisecond, counters.NewTable(counters.Config{Origin: 1, Memory: counters.MinMemory}))
	r.Join(2, now)
	h := r.inbound[2]
	h.watermark, h.watermarkAt = now-int64(6*time.Second), now
	for _, test := range []struct{ known, age time.Duration }{
		{0, 0}, {time.Second, time.Second}, {4 * time.Second, 10 * time.Second},
	} {
		if got := r.Peers(now + int64(test.known))[0]; got.Known != test.known || got.Age != test.age {
			t.Errorf("known for %v, it is %v old, want %v", got.Known, got.Age, test.age)
		}
	}
}
