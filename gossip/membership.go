package gossip

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/edgelimit/edgelimit/counters"
)

// membership is how the other nodes are reached, and which of their boots is the latest. The cluster's lock guards it.
//
// A node that starts again is another member to memberlist, which takes a while to notice that the earlier boot is
// over. Here a later boot replaces the earlier one as soon as it has answered, also in the bound.
type membership struct {
	routes map[counters.Origin]*route // of members, see recency
	latest map[string]Member          // the latest boot of each node, by name
	listed map[counters.Origin]*route // those that rosters of other regions list
	// gateways of other regions that this gateway's WAN pool has given up, though their region's rosters list them
	givenUp map[counters.Origin]bool
}

// route is how a member is reached.
type route struct {
	member Member
	pool   *pool
	node   memberlist.Node
	addr   string // the node's host:port
	since  int64  // when it came, or became a member
	listed bool   // a roster lists it: it is not in the pool, whose socket reaches it
}

func newMembership(self Member) membership {
	return membership{
		routes:  make(map[counters.Origin]*route),
		latest:  map[string]Member{self.name(): self},
		listed:  make(map[counters.Origin]*route),
		givenUp: make(map[counters.Origin]bool),
	}
}

// lastWords is how long frames of a boot that is over may still be under way.
const lastWords = 5 * time.Second

// arrived takes in a node that memberlist reports as alive.
func (c *Cluster) arrived(r *route) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.givenUp, r.member.Origin())
	c.report(r)
}

// gone removes a node that memberlist reports as dead or left: it does not say which. One that its region's gateways
// list, and that has only ceased to be one of them, stays.
func (c *Cluster) gone(m Member, p *pool) {
	o := m.Origin()
	c.mu.Lock()
	if l := c.listed[o]; l != nil && (c.routes[o] != nil || c.candidates[o] != nil) {
		if !l.member.Gateway || !p.joins.Load() { // or this node has
			c.report(l)
			c.mu.Unlock()
			return
		}
		c.givenUp[o] = true
		delete(c.listed, o)
	}
	removed, graceful := c.remove(o, false)
	c.mu.Unlock()
	if removed {
		c.logGone(m, p, graceful)
	}
}

func (c *Cluster) logGone(m Member, p *pool, graceful bool) {
	c.log.Info("gossip: member gone", "pool", p.name, "peer", m.NodeID, "peer_region", m.Region, "graceful", graceful)
}

// remove removes a member or a candidate, and reports whether it was a member, and whether it left. The lock is held.
func (c *Cluster) remove(o counters.Origin, left bool) (removed, graceful bool) {
	delete(c.candidates, o)
	if c.routes[o] == nil {
		return false, false
	}
	c.depart(o, left) // it may have sent a goodbye
	graceful = c.replica.Left(o)
	c.forgetBoots()
	return true, graceful
}

// join adds the member to the replica. The lock is held.
func (c *Cluster) join(r *route, now int64) {
	c.routes[r.member.Origin()] = r
	c.replica.Join(r.member.Origin(), now)
	c.replica.Describe(r.member.Origin(), r.member.describe())
}

// depart removes a member from the replica. The lock is held.
func (c *Cluster) depart(o counters.Origin, graceful bool) {
	delete(c.routes, o)
	c.replica.Leave(o, graceful)
}

// replaced reports whether a later boot of the same node is known.
func (c *Cluster) replaced(m Member) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest[m.name()].Incarnation > m.Incarnation
}

// silent returns the addresses of members of the pool that have sent nothing for a while, though they should, in random
// order.
func (c *Cluster) silent(p *pool) (addrs []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.replica.linked() {
		r := c.routes[o]
		if r == nil || r.pool != p || r.listed {
			continue
		}
		if c.cfg.Now()-max(r.since, c.replica.lastSeen(o)) > int64(MostSilence(c.cfg.Interval)) {
			addrs = append(addrs, r.addr)
		}
	}
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	return addrs
}

func (c *Cluster) warnOfTwin(r *route) {
	c.log.Error("gossip: several nodes have the same id; give each an id of its own (--node-id, EDGELIMIT_NODE_ID; "+
		"default: the host's name)", "node_id", r.member.NodeID, "peer_region", r.member.Region, "addr", r.addr)
}

// forgetBoots removes nodes that are gone for good: node ids may never come back. The lock is held.
func (c *Cluster) forgetBoots() {
	maps.DeleteFunc(c.latest, func(_ string, m Member) bool {
		return m.Origin() != c.self.Origin() && c.routes[m.Origin()] == nil && c.replica.inbound[m.Origin()] == nil
	})
}

// NewOrigin hashes a node's id and the incarnation of its boot to its origin.
func NewOrigin(nodeID string, incarnation uint64) counters.Origin {
	h := sha256.Sum256(binary.LittleEndian.AppendUint64([]byte(nodeID+"\x00"), incarnation))
	return counters.Origin(max(1, binary.LittleEndian.Uint64(h[:])))
}

// Member is what a node sends of itself through the membership.
type Member struct {
	NodeID      string
	Region      string
	Incarnation uint64 // of its boot
	MinVersion  uint8  // the protocol versions that it speaks
	MaxVersion  uint8
	// Rules and Identity are fingerprints of the rules that the node enforces and of the secret by which it hashes
	// identities: nodes in which they differ do not count the same. 0: unknown.
	Rules, Identity uint64
	// Keys are the fingerprints of the gossip keys that the node accepts, see KeyFingerprint: by the first it sends. 0
	// fills up; all 0: the node has no keys.
	Keys [MaxKeys]uint64
	// WAN is the address of the node's socket between regions; not valid: unknown, or it has none. Gateway is whether
	// the node is in the WAN pool itself, for its region.
	WAN     netip.AddrPort
	Gateway bool
}

// Origin is the member's origin.
func (m Member) Origin() counters.Origin { return NewOrigin(m.NodeID, m.Incarnation) }

// speaks reports whether the member and this node understand each other.
func (m Member) speaks() bool {
	return m.MinVersion <= protocolVersion && protocolVersion <= m.MaxVersion
}

// isSameBoot reports whether both have one origin.
func (m Member) isSameBoot(o Member) bool {
	return m.NodeID == o.NodeID && m.Incarnation == o.Incarnation
}

// describe is what a replica has to know of the member.
func (m Member) describe() Node { return Node{Region: m.Region, Name: m.NodeID} }

// name is what all boots of a node have in common.
func (m Member) name() string { return m.Region + "/" + m.NodeID }

// poolName is memberlist's name for it. Each boot has a name of its own: memberlist would refuse the name of a node
// that was killed to the next boot at another address until it is sure.
func (m Member) poolName() string { return fmt.Sprintf("%s.%s#%x", m.NodeID, m.Region, m.Incarnation) }

// Limits on what a member may call itself, so that the metadata fits memberlist's 512 bytes.
const (
	MaxNodeID = 128
	MaxRegion = counters.MaxRegion
)

// protocolVersion is the version of messages between nodes.
const protocolVersion = 2

// metaFields is how many fields the metadata of this version has; later ones append.
const metaFields = 10

// memberGateway is the flag of a gateway.
const memberGateway = 1

func (m Member) encode() []byte {
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	_ = enc.EncodeArrayLen(metaFields)
	_ = enc.EncodeString(m.NodeID)
	_ = enc.EncodeString(m.Region)
	_ = enc.EncodeUint(m.Incarnation)
	_ = enc.EncodeUint(uint64(m.MinVersion))
	_ = enc.EncodeUint(uint64(m.MaxVersion))
	_ = enc.EncodeUint(m.Rules)
	_ = enc.EncodeUint(m.Identity)
	keys := []byte{} // nil has another encoding
	for _, k := range m.Keys {
		if k != 0 {
			keys = binary.BigEndian.AppendUint64(keys, k)
		}
	}
	_ = enc.EncodeBytes(keys)
	wan := []byte{}
	if m.WAN.IsValid() {
		wan = binary.BigEndian.AppendUint16(m.WAN.Addr().WithZone("").AsSlice(), m.WAN.Port())
	}
	_ = enc.EncodeBytes(wan)
	var flags uint64
	if m.Gateway {
		flags |= memberGateway
	}
	_ = enc.EncodeUint(flags)
	return buf.Bytes()
}

func decodeMember(b []byte) (Member, error) {
	r := borrowReader(b)
	defer r.giveBack()
	n := r.arrayLen()
	r.check(n >= metaFields, "metadata of %d fields", n)
	m := Member{NodeID: string(r.bytes()), Region: string(r.bytes()), Incarnation: r.uint(),
		MinVersion: uint8(min(r.uint(), 255)), MaxVersion: uint8(min(r.uint(), 255)),
		Rules: r.uint(), Identity: r.uint()}
	keys := r.bytes()
	r.check(len(keys)%8 == 0, "metadata with %d bytes of key fingerprints", len(keys))
	for i := range min(len(keys)/8, MaxKeys) { // a later version may have more
		m.Keys[i] = binary.BigEndian.Uint64(keys[8*i:])
	}
	m.WAN = decodeAddr(r)
	m.Gateway = r.uint()&memberGateway != 0
	r.check(m.NodeID != "" && len(m.NodeID) <= MaxNodeID && m.Region != "" && len(m.Region) <= MaxRegion,
		"metadata of node %.32q in region %.32q", m.NodeID, m.Region)
	if r.err != nil {
		return Member{}, r.err
	}
	return m, nil
}

// decodeAddr reads the bytes of an IP address and a port; of no bytes it makes no address.
func decodeAddr(r *reader) netip.AddrPort {
	b := r.bytes()
	if len(b) == 0 {
		return netip.AddrPort{}
	}
	ip, ok := netip.AddrFromSlice(b[:max(0, len(b)-2)])
	r.check(ok, "an address of %d bytes", len(b))
	if r.err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip.Unmap(), binary.BigEndian.Uint16(b[len(b)-2:]))
}
