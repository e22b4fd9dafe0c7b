package gossip

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// regionList returns so many members of a region, the first of them a gateway.
func regionList(region string, n int) (members []Member) {
	for i := range n {
		members = append(members, Member{NodeID: fmt.Sprint("n", i), Region: region,
			Incarnation: nameHash("test", region), MinVersion: protocolVersion,
			MaxVersion: protocolVersion, Rules: 3, Gateway: i == 0,
			WAN: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 7947)})
	}
	return members
}

// Rosters and digests are read as they were written, in packets and in a stream.
func TestRostersRoundTrip(t *testing.T) {
	var all []*roster
	for i := range 5 {
		region := fmt.Sprint("region-", i)
		all = append(all, newRoster(regionList(region, 1+i*10), regionList(region, i), frameTime+int64(i)))
	}
	packets, stream := encodeRosters(all)
	var got []*roster
	for _, b := range append(packets, stream) {
		if len(b) > MaxFrame && !bytes.Equal(b, stream) {
			t.Errorf("a packet of %d bytes", len(b))
		}
		some, err := decodeRosters(b)
		if err != nil || !isRosters(b) {
			t.Fatal(err)
		}
		got = append(got, some...)
	}
	if len(got) != len(all) {
		t.Fatalf("%d rosters, want %d", len(got), len(all))
	}
	for i, r := range got {
		if want := all[i]; r.publisher != want.publisher || r.stamp != want.stamp || r.hash != want.hash ||
			!slices.Equal(r.members, want.members) || !slices.Equal(r.departed, want.departed) {
			t.Errorf("%+v became %+v", want, r)
		}
	}
	want := &digest{flags: digestReply, from: all[0].members[0], low: 1, high: 99,
		items: []digestItem{{5, frameTime, 6}}}
	d, err := decodeDigest(want.encode())
	if err != nil || d.flags != want.flags || d.from != want.from || d.low != 1 || d.high != 99 ||
		!slices.Equal(d.items, want.items) {
		t.Errorf("%+v became %+v, %v", want, d, err)
	}
}

// meet has two nodes compare their rosters, until neither has anything to send.
func meet(t *testing.T, a, b *rosters, now int64) {
	t.Helper()
	answer := func(from, to *rosters, d *digest) (reply *digest) {
		packet := d.encode()
		if len(packet) > MaxFrame {
			t.Fatalf("a digest of %d bytes", len(packet))
		}
		d, err := decodeDigest(packet)
		if err != nil {
			t.Fatal(err)
		}
		lacks, stamps, wants := to.compare(d, now)
		for _, r := range lacks {
			one, err := decodeRoster(r.encode())
			if err != nil {
				t.Fatal(err)
			}
			_, _ = from.put(one, now)
		}
		return &digest{flags: digestReply, from: d.from, low: d.low, high: d.high, items: append(wants, stamps...)}
	}
	for _, d := range a.digests(regionList("here", 1)[0], 0) {
		answer(b, a, answer(a, b, d))
	}
}

// Who has met has all rosters of both, each as it is latest, though they take several packets.
func TestRostersMeet(t *testing.T) {
	now := frameTime
	a, b := newRosters(), newRosters()
	for i := range 100 {
		members := regionList(fmt.Sprint("region-", i), 2)
		before, after := newRoster(members, nil, now), newRoster(members[:1], nil, now+1)
		switch {
		case i%3 == 0:
			_, _ = a.put(before, now)
			_, _ = b.put(after, now)
		case i%3 == 1:
			_, _ = a.put(after, now)
			_, _ = b.put(before, now)
		case i%2 == 0:
			_, _ = a.put(after, now)
		default:
			_, _ = b.put(after, now)
		}
	}
	meet(t, &a, &b, now)
	for _, s := range []*rosters{&a, &b} {
		if len(s.byPublisher) != 100 {
			t.Fatalf("one has %d of 100 rosters", len(s.byPublisher))
		}
		for _, r := range s.byPublisher {
			if len(r.members) != 1 {
				t.Errorf("%s has an earlier roster", r.region())
			}
		}
	}
	if members, _ := a.members("region-5"); len(members) != 99 {
		t.Errorf("%d members of other regions, want 99", len(members))
	}
}

// A roster whose publisher is gone ends when another one of the region is fresh, and nobody brings it back. A region
// all of whose publishers are silent stays for a quarter of an hour.
func TestRostersExpire(t *testing.T) {
	now := frameTime
	a, b := newRosters(), newRosters()
	west := regionList("west", 3)
	west[1].Gateway = true
	other := []Member{west[1], west[2]}
	gone, stays := newRoster(west, nil, now), newRoster(other, []Member{west[0]}, now)
	alone := newRoster(regionList("east", 1), nil, now)
	for _, r := range []*roster{gone, stays, alone} {
		for _, s := range []*rosters{&a, &b} {
			one := *r
			if news, err := s.put(&one, now); !news || err != nil {
				t.Fatal(news, err)
			}
		}
	}
	now += int64(rosterFresh) + 1
	a.renew(digestItem{stays.publisher, now, stays.hash}, now)
	a.expire(now)
	if members, departed := a.members(""); len(members) != 3 || members[west[0].Origin()].NodeID != "" ||
		departed[west[0].Origin()] != west[0] {
		t.Errorf("members %v, departed %v", members, departed)
	}
	meet(t, &a, &b, now)
	meet(t, &b, &a, now)
	if a.byPublisher[gone.publisher] != nil {
		t.Error("a roster that had ended is back")
	}
	a.expire(frameTime + int64(forgetSilent))
	if a.byPublisher[alone.publisher] == nil {
		t.Error("a region is gone before a quarter of an hour of silence")
	}
	a.expire(now + int64(forgetSilent) + 1)
	if len(a.byPublisher) != 0 || a.listed != 0 {
		t.Errorf("%d rosters of %d members for ever", len(a.byPublisher), a.listed)
	}
	for i := range 3 * maxEnded {
		a.ended[counters.Origin(i)] = now
	}
	if a.expire(now); len(a.ended) > maxEnded {
		t.Errorf("%d ended rosters are remembered", len(a.ended))
	}
}

// A roster that has ended never comes back by a recording of it; its publisher may come back.
func TestRecordedRostersStayEnded(t *testing.T) {
	knew, now := newRosters(), frameTime
	west := regionList("west", 3)
	recorded := func() *roster { return newRoster(west, nil, frameTime) }
	if _, err := knew.put(recorded(), now); err != nil {
		t.Fatal(err)
	}
	for now < frameTime+int64(3*time.Hour) {
		now += int64(time.Minute)
		knew.expire(now)
		if now <= frameTime+int64(forgetSilent) {
			continue
		}
		news, err := knew.put(recorded(), now)
		d := &digest{items: []digestItem{{west[0].Origin(), frameTime, 1}}}
		if _, _, wants := knew.compare(d, now); news || err != nil || len(wants) > 0 {
			t.Fatalf("after %v it is back: %v, asked for: %v, %v", time.Duration(now-frameTime), news, wants, err)
		}
		starts := newRosters()
		if news, _ := starts.put(recorded(), now); news && now-frameTime > int64(maxStampAge) {
			t.Fatalf("after %v a node that starts takes it", time.Duration(now-frameTime))
		}
	}
	if len(knew.ended) > 0 {
		t.Error("it is remembered for ever")
	}
	if news, err := knew.put(newRoster(west, nil, now), now); !news || err != nil {
		t.Errorf("the next one of its publisher: %v, %v", news, err)
	}
}

// What a peer that has the key can claim: no region that is not its own, no members without an address, only so many
// regions, publishers and members; and it displaces nobody.
func TestRosterLies(t *testing.T) {
	west := regionList("west", 3)
	for name, lie := range map[string][]Member{
		"of two regions":        append(slices.Clone(west), regionList("east", 1)...),
		"by no gateway":         west[1:],
		"without address":       append(slices.Clone(west), Member{NodeID: "x", Region: "west"}),
		"of nobody":             {},
		"of too many":           regionList("west", maxRosterMembers+1),
		"of a nameless member":  append(slices.Clone(west), Member{Region: "west", WAN: west[0].WAN}),
		"of a nameless region":  regionList("", 1),
		"in the name of others": nil,
	} {
		var r *roster
		switch {
		case name == "in the name of others":
			r = newRoster(west, nil, frameTime)
			r.publisher++
		case len(lie) == 0:
			r = newRoster(west, nil, frameTime)
			r.content = []byte{0x90, 0x90}
		default:
			r = newRoster(lie, nil, frameTime)
		}
		if got, err := decodeRoster(r.encode()); err == nil {
			t.Errorf("a roster %s is taken for one: %+v", name, got)
		}
	}

	s := newRosters()
	if _, err := s.put(newRoster(west, nil, frameTime), frameTime); err != nil {
		t.Fatal(err)
	}
	ahead := newRoster(regionList("ahead", 1), nil, frameTime+int64(2*maxStampAhead))
	if _, err := s.put(ahead, frameTime); err == nil {
		t.Error("a roster of tomorrow is taken in")
	}
	stolen := regionList("lie", 1)
	for _, m := range west {
		m.Region = "lie" // which makes no other origin
		stolen = append(stolen, m)
	}
	if _, err := s.put(newRoster(stolen, nil, frameTime+1), frameTime+1); err != nil {
		t.Fatal(err)
	}
	for i := range 4 * maxRosterRegions {
		_, _ = s.put(newRoster(regionList(fmt.Sprint("lie-", i), 200), nil, frameTime+1), frameTime+1)
	}
	for i := range 4 * maxPublishers {
		members := regionList("west", 600)
		for j := range members {
			members[j].Incarnation = uint64(100 + i)
		}
		_, _ = s.put(newRoster(members, nil, frameTime+1), frameTime+1)
	}
	regions, publishers := make(map[string]bool), 0
	for _, r := range s.byPublisher {
		regions[r.region()] = true
		if r.region() == "west" {
			publishers++
		}
	}
	if len(regions) > maxRosterRegions || publishers > maxPublishers || s.listed > maxListed {
		t.Errorf("%d regions, %d publishers, %d members", len(regions), publishers, s.listed)
	}
	members, _ := s.members("")
	count := 0
	for _, m := range members {
		if m.Region == "west" {
			count++
		}
	}
	if count > maxRosterMembers {
		t.Errorf("a region has %d members", count)
	}
	for _, m := range west {
		if members[m.Origin()] != m {
			t.Errorf("%s is displaced", m.NodeID)
		}
	}
}

// A repeated, late or reordered roster changes nothing.
func TestRostersAreIdempotent(t *testing.T) {
	s := newRosters()
	first := newRoster(regionList("west", 3), nil, frameTime)
	second := newRoster(regionList("west", 2), nil, frameTime+1)
	for i, want := range []bool{true, false, true, false, false} {
		r := []*roster{first, first, second, first, second}[i]
		one := *r
		if news, err := s.put(&one, frameTime+int64(time.Second)); news != want || err != nil {
			t.Errorf("%d: news %v, %v, want %v", i, news, err, want)
		}
	}
	if members, _ := s.members(""); len(members) != 2 || s.listed != 2 {
		t.Errorf("%d members, %d listed, want 2", len(members), s.listed)
	}
}

func FuzzRosters(f *testing.F) {
	packets, stream := encodeRosters([]*roster{newRoster(regionList("west", 3), regionList("west", 1), frameTime),
		newRoster(regionList("east", 40), nil, frameTime)})
	f.Add(packets[0])
	f.Add(stream)
	f.Add((&digest{from: regionList("west", 1)[0], high: 9, items: []digestItem{{1, 2, 3}}}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 {
			return
		}
		s := newRosters()
		if d, err := decodeDigest(b); err == nil {
			if _, err := decodeDigest(d.encode()); err != nil && len(d.encode()) <= MaxFrame {
				t.Errorf("a digest that was read cannot be read again: %v", err)
			}
			s.compare(d, frameTime)
		}
		all, _ := decodeRosters(b)
		for _, r := range all {
			again, err := decodeRoster(r.encode())
			if err != nil || !slices.Equal(again.members, r.members) || again.hash != r.hash {
				t.Fatalf("%+v became %+v, %v", r, again, err)
			}
			_, _ = s.put(r, frameTime)
		}
		s.expire(frameTime)
		if members, _ := s.members(""); len(members) > s.listed {
			t.Errorf("%d members of %d listed", len(members), s.listed)
		}
	})
}
