package gossip

import (
	"bytes"
	"cmp"
	"errors"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/edgelimit/edgelimit/counters"
)

// Nodes of different regions are in no pool together, but for their regions' gateways. These publish rosters: lists of
// the members of their own region. A roster has a stamp, by which a later one replaces an earlier one of the same
// publisher, and the members of a region are those whom any of its publishers lists: so none can remove a member alone.
//
// Who has rosters compares them with others by digests, and each sends the other what that one lacks. A publisher
// renews the stamp though nothing changes; one that does not is gone, and its roster ends as soon as another one of the
// region is fresh. Where none is, as beyond a partition, rosters last as long as silent members do.
//
// On the wire, a message is a kind in one byte and a msgpack array:
//
//	digest:  flags uint, from bin (metadata of the sender), low uint, high uint, items array of
//	         publisher uint, stamp int, hash uint: all rosters of publishers from low to high that the sender has
//	rosters: array of bin, each of them
//	roster:  publisher uint, stamp int, content bin: members array of bin (metadata, of the publisher first), departed
//	         array of bin: those that left with a goodbye a short while ago
const (
	digestMessage  = 1 // no frame begins with these: a frame is an array
	rostersMessage = 2
)

// Flags of a digest.
const (
	digestReply   = 1 << iota // it answers one, and nobody answers it
	digestCurrent             // the addressee of a reply lacks nothing that its sender has
	digestBlind               // its sender knows that it may lack nodes
)

// Bounds on what peers may have a node keep.
const (
	maxRosterMembers = 1024
	maxRosterRegions = 256
	maxPublishers    = 16      // of a region
	maxListed        = 1 << 15 // members in all rosters together
	maxRosters       = 4 << 20 // bytes of a message
	maxStampAhead    = time.Hour
	maxStampAge      = time.Hour // of a roster that is not known: an older one is a recording
	maxEnded         = 1 << 12

	rosterBeat  = 10 * time.Second // between stamps of a roster that does not change
	rosterFresh = 45 * time.Second // a publisher that has renewed its stamp within it is there
)

// roster is what one publisher lists.
type roster struct {
	publisher         counters.Origin
	stamp             int64 // the publisher's wall clock in nanoseconds, or more
	hash              uint64
	content           []byte
	members, departed []Member
	origins           []counters.Origin // of the members; known once the roster is put
	since, renewed    int64             // local times: of the first stamp, of the latest one
}

func (r *roster) region() string { return r.members[0].Region }

// newRoster returns the roster of a publisher, the first of the members.
func newRoster(members, departed []Member, stamp int64) *roster {
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	for _, list := range [][]Member{members, departed} {
		_ = enc.EncodeArrayLen(len(list))
		for _, m := range list {
			_ = enc.EncodeBytes(m.encode())
		}
	}
	return &roster{publisher: members[0].Origin(), stamp: stamp, hash: hashOf(buf.Bytes()), content: buf.Bytes(),
		members: members, departed: departed}
}

func hashOf(b []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(b)
	return h.Sum64()
}

func (r *roster) encode() []byte {
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	_ = enc.EncodeArrayLen(3)
	_ = enc.EncodeUint(uint64(r.publisher))
	_ = enc.EncodeInt(r.stamp)
	_ = enc.EncodeBytes(r.content)
	return buf.Bytes()
}

// encodeRosters returns the messages that bring rosters, those that fit into packets first.
func encodeRosters(rosters []*roster) (packets [][]byte, stream []byte) {
	message := func(encoded [][]byte) []byte {
		buf := bytes.NewBuffer([]byte{rostersMessage})
		_ = msgpack.NewEncoder(buf).EncodeArrayLen(len(encoded))
		for _, e := range encoded {
			buf.Write(appendBin(nil, e))
		}
		return buf.Bytes()
	}
	var large [][]byte
	size := 0
	for _, r := range rosters {
		e := r.encode()
		if len(e) <= MaxFrame-2*maxHeader {
			packets = append(packets, message([][]byte{e}))
		} else if size += len(e) + maxHeader; size <= maxRosters-maxHeader {
			large = append(large, e)
		}
	}
	if len(large) > 0 {
		stream = message(large)
	}
	return packets, stream
}

// decodeRosters reads a message of rosters from untrusted bytes. Those that cannot be read are left out.
func decodeRosters(b []byte) (rosters []*roster, err error) {
	if len(b) > maxRosters {
		return nil, errTooLarge
	}
	r := borrowReader(b[1:])
	defer r.giveBack()
	var errs []error
	listed := 0
	for n := r.arrayLen(); n > 0 && r.err == nil; n-- {
		one, err := decodeRoster(r.bytes())
		if err != nil {
			errs = append(errs[:min(len(errs), 1)], err)
			continue
		}
		if listed += len(one.members) + len(one.departed); listed > maxListed {
			return rosters, errTooLarge
		}
		rosters = append(rosters, one)
	}
	return rosters, errors.Join(append(errs, r.err)...)
}

var errTooLarge = errors.New("gossip: rosters beyond bounds")

func decodeRoster(b []byte) (*roster, error) {
	r := borrowReader(b)
	defer r.giveBack()
	r.check(r.arrayLen() >= 3, "a roster of too few fields")
	one := &roster{publisher: counters.Origin(r.uint()), stamp: r.int()}
	content := r.bytes()
	if r.err != nil {
		return nil, r.err
	}
	one.content, one.hash = bytes.Clone(content), hashOf(content)
	r.reset(one.content)
	one.members, one.departed = decodeMembers(r), decodeMembers(r)
	r.check(len(one.members) > 0 && one.stamp > 0, "an empty roster")
	if r.err != nil {
		return nil, r.err
	}
	by := one.members[0]
	r.check(by.Origin() == one.publisher && by.Gateway, "a roster whose publisher is no gateway of its region")
	for _, m := range slices.Concat(one.members, one.departed) {
		r.check(m.Region == by.Region && m.WAN.IsValid() && m.WAN.Port() != 0,
			"a member of another region, or without address")
	}
	return one, r.err
}

func decodeMembers(r *reader) (members []Member) {
	n := r.arrayLen()
	r.check(n <= maxRosterMembers, "a list of %d members", n)
	for ; n > 0 && r.err == nil; n-- {
		b := r.bytes()
		if r.err != nil {
			break
		}
		m, err := decodeMember(b)
		r.check(err == nil, "%w", err)
		members = append(members, m)
	}
	return members
}

// digest lists which rosters a node has.
type digest struct {
	flags     uint64
	from      Member
	low, high counters.Origin // of the publishers that it is about
	items     []digestItem    // by publisher
}

type digestItem struct {
	publisher counters.Origin
	stamp     int64
	hash      uint64
}

// maxItems is how many items a digest in a packet has at most.
const maxItems = 36

func (d *digest) encode() []byte {
	buf := bytes.NewBuffer([]byte{digestMessage})
	enc := msgpack.NewEncoder(buf)
	_ = enc.EncodeArrayLen(5)
	_ = enc.EncodeUint(d.flags)
	_ = enc.EncodeBytes(d.from.encode())
	_ = enc.EncodeUint(uint64(d.low))
	_ = enc.EncodeUint(uint64(d.high))
	_ = enc.EncodeArrayLen(3 * len(d.items))
	for _, i := range d.items {
		_ = enc.EncodeUint(uint64(i.publisher))
		_ = enc.EncodeInt(i.stamp)
		_ = enc.EncodeUint(i.hash)
	}
	return buf.Bytes()
}

// decodeDigest reads a digest from untrusted bytes.
func decodeDigest(b []byte) (*digest, error) {
	r := borrowReader(b[1:])
	defer r.giveBack()
	r.check(len(b) <= MaxFrame, "a digest of %d bytes", len(b))
	r.check(r.arrayLen() >= 5, "a digest of too few fields")
	d := &digest{flags: r.uint()}
	from := r.bytes()
	d.low, d.high = counters.Origin(r.uint()), counters.Origin(r.uint())
	n := r.arrayLen() / 3
	r.check(n <= maxItems, "a digest of %d items", n)
	for ; n > 0 && r.err == nil; n-- {
		d.items = append(d.items, digestItem{counters.Origin(r.uint()), r.int(), r.uint()})
	}
	if r.err != nil {
		return nil, r.err
	}
	var err error
	d.from, err = decodeMember(from)
	return d, err
}

// rosters is what a node has of all regions. It is not safe for concurrent use.
type rosters struct {
	byPublisher map[counters.Origin]*roster
	ended       map[counters.Origin]int64 // the last stamps of those that expired, so that no node brings them back
	regions     map[string]bool           // that ever had one: a replica forgets none
	listed      int
}

func newRosters() rosters {
	return rosters{byPublisher: make(map[counters.Origin]*roster), ended: make(map[counters.Origin]int64),
		regions: make(map[string]bool)}
}

// isRecording reports whether the stamp of a roster that is not known is so old that somebody has recorded it.
func isRecording(stamp, now int64) bool { return now-stamp > int64(maxStampAge) }

var errRosterBounds = errors.New("gossip: a roster beyond the bounds of regions, publishers or members")

// put takes in a roster, and reports whether it says something new.
func (s *rosters) put(r *roster, now int64) (news bool, err error) {
	known := s.byPublisher[r.publisher]
	if known != nil && r.stamp <= known.stamp || r.stamp <= s.ended[r.publisher] ||
		known == nil && isRecording(r.stamp, now) {
		return false, nil
	}
	size := len(r.members) + len(r.departed)
	if known != nil {
		size -= len(known.members) + len(known.departed)
	}
	publishers := 0
	for _, o := range s.byPublisher {
		if o != known && o.region() == r.region() {
			publishers++
		}
	}
	if s.listed+size > maxListed || publishers >= maxPublishers || r.stamp-now > int64(maxStampAhead) ||
		!s.regions[r.region()] && len(s.regions) >= maxRosterRegions {
		return false, errRosterBounds
	}
	r.since, r.renewed = now, now
	if known != nil {
		r.since = known.since
	}
	r.origins = make([]counters.Origin, len(r.members))
	for i, m := range r.members {
		r.origins[i] = m.Origin()
	}
	s.listed += size
	s.regions[r.region()] = true
	s.byPublisher[r.publisher] = r
	return known == nil || known.hash != r.hash, nil
}

// renew takes in a later stamp of a roster that did not change.
func (s *rosters) renew(i digestItem, now int64) {
	if r := s.byPublisher[i.publisher]; r != nil && r.hash == i.hash && i.stamp > r.stamp &&
		i.stamp-now <= int64(maxStampAhead) {
		r.stamp, r.renewed = i.stamp, now
	}
}

// expire removes the rosters of publishers that are gone.
func (s *rosters) expire(now int64) {
	fresh := make(map[string]bool)
	for _, r := range s.byPublisher {
		if now-r.renewed <= int64(rosterFresh) {
			fresh[r.region()] = true
		}
	}
	for o, r := range s.byPublisher {
		age := now - r.renewed
		if age > int64(forgetSilent) || age > int64(rosterFresh) && fresh[r.region()] {
			s.listed -= len(r.members) + len(r.departed)
			delete(s.byPublisher, o)
			s.ended[o] = r.stamp
		}
	}
	maps.DeleteFunc(s.ended, func(_ counters.Origin, stamp int64) bool {
		return isRecording(stamp, now) || len(s.ended) > maxEnded
	})
}

// members returns whom the rosters list but for those of one region, and who left. Of a region with too many members
// those remain that were listed first.
func (s *rosters) members(but string) (members, departed map[counters.Origin]Member) {
	members, departed = make(map[counters.Origin]Member, s.listed/maxGateways), make(map[counters.Origin]Member)
	all := slices.SortedFunc(maps.Values(s.byPublisher), func(a, b *roster) int {
		return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.publisher, b.publisher))
	})
	newest := make(map[counters.Origin]int64, s.listed/maxGateways)
	count := make(map[string]int)
	for _, r := range all {
		if r.region() == but {
			continue
		}
		for _, m := range r.departed {
			departed[m.Origin()] = m
		}
		for i, m := range r.members {
			o := r.origins[i]
			before, listed := members[o]
			if listed && before.Region != m.Region {
				continue
			}
			if !listed {
				if count[m.Region] >= maxRosterMembers {
					continue
				}
				count[m.Region]++
			}
			if r.stamp > newest[o] { // as it is now
				members[o], newest[o] = m, r.stamp
			}
		}
	}
	return members, departed
}

// digests returns the digests of all rosters, one for each packet.
func (s *rosters) digests(from Member, flags uint64) (all []*digest) {
	items := make([]digestItem, 0, len(s.byPublisher))
	for o, r := range s.byPublisher {
		items = append(items, digestItem{o, r.stamp, r.hash})
	}
	slices.SortFunc(items, func(a, b digestItem) int { return cmp.Compare(a.publisher, b.publisher) })
	for low := counters.Origin(0); ; {
		n := min(len(items), maxItems)
		d := &digest{flags: flags, from: from, low: low, high: math.MaxUint64, items: items[:n]}
		all = append(all, d)
		if items = items[n:]; len(items) == 0 {
			return all
		}
		d.high = d.items[n-1].publisher
		low = d.high + 1
	}
}

// compare returns what the sender of a digest lacks: rosters, and stamps of those that it has; wants are items of
// rosters that this node lacks, with what it has of them.
func (s *rosters) compare(d *digest, now int64) (lacks []*roster, stamps, wants []digestItem) {
	seen := make(map[counters.Origin]bool)
	for _, i := range d.items {
		seen[i.publisher] = true
		r := s.byPublisher[i.publisher]
		switch {
		case r == nil && (i.stamp <= s.ended[i.publisher] || isRecording(i.stamp, now)):
		case r == nil:
			wants = append(wants, digestItem{publisher: i.publisher})
		case r.stamp > i.stamp && r.hash == i.hash:
			stamps = append(stamps, digestItem{i.publisher, r.stamp, r.hash})
		case r.stamp > i.stamp:
			lacks = append(lacks, r)
		case i.stamp > r.stamp && r.hash != i.hash:
			wants = append(wants, digestItem{i.publisher, r.stamp, r.hash})
		default:
			s.renew(i, now)
		}
	}
	for o, r := range s.byPublisher {
		if d.low <= o && o <= d.high && !seen[o] && d.flags&digestReply == 0 {
			lacks = append(lacks, r)
		}
	}
	slices.SortFunc(lacks, func(a, b *roster) int { return cmp.Compare(a.publisher, b.publisher) })
	return lacks, stamps, wants
}
