package gossip

import (
	"net/netip"
	"testing"
	"time"
)

// A host is listed after its third message, for a minute after its last one, and no stranger makes the list grow.
func TestOtherKeys(t *testing.T) {
	var k otherKeys
	now := time.Unix(1_800_000_000, 0)
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}) }
	listed := func(want ...int) {
		t.Helper()
		got := k.recent(nil, now)
		for i, w := range want {
			if i >= len(got) || got[i].Addr != addr(w) {
				t.Fatalf("listed are %v, want hosts %v", got, want)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("listed are %v, want hosts %v", got, want)
		}
	}
	for range fewOtherKeys {
		k.note(addr(1), now)
	}
	listed()
	k.note(netip.AddrFrom16(addr(1).As16()), now)
	listed(1)
	now = now.Add(otherKeyFor)
	listed(1)
	now = now.Add(1)
	listed()
	k.note(addr(1), now)
	listed()
	for range fewOtherKeys {
		k.note(addr(1), now)
	}
	listed(1)
	for i := range 10 * maxOtherKeys {
		now = now.Add(time.Millisecond)
		k.note(addr(1), now)
		k.note(addr(2+i), now)
	}
	listed(1)
	if len(k.all) != maxOtherKeys {
		t.Errorf("%d hosts are kept", len(k.all))
	}
}
