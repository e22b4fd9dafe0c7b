package gossip

import (
	"bytes"
	"log/slog"
	"math"
	"net/netip"
	"strings"
	"testing"

	"github.com/hashicorp/memberlist"
	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

func TestMemberRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Member{
			NodeID:      rapid.StringN(1, -1, MaxNodeID).Draw(t, "id"),
			Region:      rapid.StringN(1, -1, MaxRegion).Draw(t, "region"),
			Incarnation: rapid.Uint64().Draw(t, "incarnation"), MinVersion: rapid.Uint8().Draw(t, "min"),
			MaxVersion: rapid.Uint8().Draw(t, "max"), Rules: rapid.Uint64().Draw(t, "rules"),
			Identity: rapid.Uint64().Draw(t, "identity"),
		}
		for i := range rapid.IntRange(0, MaxKeys).Draw(t, "keys") {
			want.Keys[i] = rapid.Uint64Min(1).Draw(t, "key")
		}
		if rapid.Bool().Draw(t, "wan") {
			ip := netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "ip")))
			want.WAN = netip.AddrPortFrom(ip, rapid.Uint16().Draw(t, "port"))
			want.Gateway = rapid.Bool().Draw(t, "gateway")
		}
		b := want.encode()
		if len(b) > memberlist.MetaMaxSize {
			t.Fatalf("%d bytes of metadata, memberlist takes %d", len(b), memberlist.MetaMaxSize)
		}
		if got, err := decodeMember(b); err != nil || got != want {
			t.Fatalf("%+v became %+v, %v", want, got, err)
		}
		for n := range b {
			if m, err := decodeMember(b[:n]); err == nil {
				t.Fatalf("the first %d bytes of %d are taken for %+v", n, len(b), m)
			}
		}
	})
}

func TestLongestMemberFits(t *testing.T) {
	m := Member{strings.Repeat("n", MaxNodeID), strings.Repeat("r", MaxRegion), math.MaxUint64, 255, 255,
		math.MaxUint64, math.MaxUint64, [MaxKeys]uint64{1, 2, 3},
		netip.AddrPortFrom(netip.IPv6Unspecified(), math.MaxUint16), true}
	if n := len(m.encode()); n > memberlist.MetaMaxSize*5/9 {
		t.Errorf("%d bytes of metadata leave little of memberlist's %d for later fields", n, memberlist.MetaMaxSize)
	}
}

func TestMembersOfLaterVersions(t *testing.T) {
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	_ = enc.EncodeArrayLen(metaFields + 3)
	for _, v := range []any{"n1", "eu", uint64(9), uint64(2), uint64(3), uint64(4), uint64(5)} {
		_ = enc.Encode(v)
	}
	_ = enc.EncodeBytes([]byte("keykeyk1keykeyk2keykeyk3keykeyk4keykeyk5")) // of five keys
	_ = enc.EncodeBytes([]byte{10, 1, 2, 3, 0x1f, 0x0a})
	_ = enc.EncodeUint(memberGateway | 2)
	appended(enc)
	want := Member{NodeID: "n1", Region: "eu", Incarnation: 9, MinVersion: 2, MaxVersion: 3, Rules: 4, Identity: 5,
		WAN: netip.MustParseAddrPort("10.1.2.3:7946"), Gateway: true}
	for i := range want.Keys {
		want.Keys[i] = 0x6b65796b65796b31 + uint64(i)
	}
	if got, err := decodeMember(buf.Bytes()); err != nil || got != want {
		t.Errorf("decoded %+v, %v, want %+v", got, err, want)
	}
}

func TestMembersThatAreRefused(t *testing.T) {
	for name, m := range map[string]Member{
		"no id":           {Region: "eu"},
		"no region":       {NodeID: "n1"},
		"id too long":     {NodeID: strings.Repeat("n", MaxNodeID+1), Region: "eu"},
		"region too long": {NodeID: "n1", Region: strings.Repeat("r", MaxRegion+1)},
	} {
		if _, err := decodeMember(m.encode()); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for _, b := range [][]byte{nil, {}, {0x95}, {0xc0}, {0x94, 0xa1, 'a', 0xa1, 'b', 1, 1},
		{0x95, 0xa1, 'a', 0xa1, 'b', 1, 1, 1}, {0x9a, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}} {
		if m, err := decodeMember(b); err == nil {
			t.Errorf("% x is taken for %+v", b, m)
		}
	}
}

// Every boot of every node is an origin of its own, the same on every machine.
func TestOrigins(t *testing.T) {
	seen := make(map[uint64]string)
	for _, id := range []string{"a", "b", "ab", "a\x00", "a\x00\x00"} {
		for incarnation := range uint64(1000) {
			o := uint64(NewOrigin(id, incarnation))
			if o == 0 || seen[o] != "" {
				t.Fatalf("%q, boot %d: origin %x, which is also that of %q", id, incarnation, o, seen[o])
			}
			seen[o] = id
		}
	}
	if got := NewOrigin("edge-1", 42); got != (Member{NodeID: "edge-1", Region: "x", Incarnation: 42}).Origin() ||
		got != 0x2518bd72a8f56a85 {
		t.Errorf("origin %#x has changed", uint64(got))
	}
}

// A node that refuses what it sends of itself is no member of its own pool: it does not start, because memberlist would
// panic when it leaves.
func TestRefusesItself(t *testing.T) {
	cfg := Config{Interval: DefaultInterval, Logger: slog.New(slog.DiscardHandler)}
	c := &Cluster{cfg: cfg, self: Member{NodeID: "a"}, log: cfg.Logger} // without a region
	c.keys.Store(new([MaxKeys]uint64))
	p, err := openPool(c, lan, &PoolConfig{Bind: "127.0.0.1:0"})
	if err == nil {
		_ = p.ml().Leave(leaveTimeout)
		t.Fatal("it started")
	}
	if !strings.Contains(err.Error(), "refused its own metadata") {
		t.Error(err)
	}
}
