package gossip

import (
	"errors"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// A snapshot may have maxSnapshot bytes, and merging it takes the time of many frames. An honest peer sends no second
// one within snapshotRetry. So each member has an allowance for large frames, and all who are no members have one
// together: a sender that floods a replica delays its own snapshots, and nobody else's frames.

// largeFrame is how many bytes a frame has that takes from the allowance.
const largeFrame = 64 << 10

// allowance is a token bucket of bytes. The zero value is full.
type allowance struct {
	spent float64
	at    int64
}

// take takes so many bytes, if they are left of the most that there may be.
func (a *allowance) take(bytes, largest int, now int64) bool {
	back := float64(maxSnapshot) * max(0, time.Duration(now-a.at).Seconds()) / snapshotRetry.Seconds()
	a.spent, a.at = max(0, a.spent-back), now
	if a.spent+float64(bytes) > float64(largest) {
		return false
	}
	a.spent += float64(bytes)
	return true
}

// Snapshots at once: one that was asked for in vain and one of each way, push and pull; of those who are no members
// yet, of some seeds.
const (
	memberBurst   = 4 * maxSnapshot
	strangerBurst = 8 * maxSnapshot
)

// errFlood is the error of a snapshot whose sender sends more of them than an honest peer does.
var errFlood = errors.New("gossip: more snapshots than an honest peer sends")

// admit refuses a large frame whose sender has used up its allowance. It reads only who sends it.
func (r *Replica) admit(b []byte, now int64) error {
	if len(b) < largeFrame {
		return nil
	}
	from, _ := senderOf(b)
	a, largest := &r.strangers, strangerBurst
	if h := r.inbound[from]; h != nil && r.peers[from] != nil {
		a, largest = &h.snapshots, memberBurst
	}
	if a.take(len(b), largest, now) {
		return nil
	}
	r.stats.SnapshotsRefused++
	return errFlood
}

// senderOf reads who sent a frame, and when by its clock; 0 where that cannot be read.
func senderOf(b []byte) (o counters.Origin, sent int64) {
	r := borrowReader(b)
	defer r.giveBack()
	_, _, _ = r.arrayLen(), r.uint(), r.uint()
	o = counters.Origin(r.uint())
	if _, sent = r.uint(), r.int(); r.err != nil {
		return 0, 0
	}
	return o, sent
}
