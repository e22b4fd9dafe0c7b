package gossip

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/hashicorp/memberlist"
)

// isRosters reports whether a message is about rosters; all others are frames.
func isRosters(b []byte) bool { return len(b) > 0 && (b[0] == digestMessage || b[0] == rostersMessage) }

// addressee is whom a message about rosters goes to.
type addressee struct {
	pool *pool
	node memberlist.Node
}

// compareRosters sends digests to some gateways.
func (c *Cluster) compareRosters(far *pool) {
	if !c.isSparse() {
		return
	}
	var to []addressee
	if far.joins.Load() {
		to = c.someGateways(far, fanOut)
	} else if every := pullEvery; far.isBlind() || time.Since(c.pulledAt) >= every {
		c.pulledAt = time.Now()
		to = c.ownGateways()
		to = to[:min(len(to), 1)]
	}
	if len(to) == 0 {
		return
	}
	c.rostersMu.Lock()
	digests := c.rosters.digests(c.Self(), 0)
	c.rostersMu.Unlock()
	for _, a := range to {
		for _, d := range digests {
			c.sendDigest(a, d)
		}
	}
}

func (c *Cluster) sendDigest(a addressee, d *digest) {
	if err := a.pool.ml().SendBestEffort(&a.node, d.encode()); err != nil {
		c.log.Debug("gossip: digest not sent", "pool", a.pool.name, "addr", a.node.Address(), "error", err)
	}
}

// someGateways returns up to n members in the WAN pool that know rosters, in random order.
func (c *Cluster) someGateways(far *pool, n int) (to []addressee) {
	members, _ := far.others()
	rand.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	for _, m := range members {
		if addr, err := netip.ParseAddrPort(m.addr); err == nil && len(to) < n && far.isMember(m.Member) {
			to = append(to, addressee{far, nodeAt(addr)})
		}
	}
	return to
}

// ownGateways returns the gateways of this region, over the LAN, in random order.
func (c *Cluster) ownGateways() []addressee {
	return c.regionNodes(func(m Member) bool { return m.Gateway })
}

func (c *Cluster) regionNodes(which func(Member) bool) (to []addressee) {
	c.mu.Lock()
	for _, r := range c.routes {
		if r.pool.name == lan && which(r.member) {
			to = append(to, addressee{r.pool, r.node})
		}
	}
	c.mu.Unlock()
	rand.Shuffle(len(to), func(i, j int) { to[i], to[j] = to[j], to[i] })
	return to
}

// push announces a roster that has changed: its publisher to all gateways, another one to some of them; and each to the
// nodes of its region that are no gateways.
func (c *Cluster) push(r *roster, own bool) {
	far := c.pool(wan)
	if !far.joins.Load() {
		return
	}
	d := &digest{from: c.Self(), low: r.publisher, high: r.publisher,
		items: []digestItem{{r.publisher, r.stamp, r.hash}}}
	n := fanOut
	if own {
		n = maxRosters
	}
	to := c.someGateways(far, n)
	if r.region() != c.self.Region {
		to = append(to, c.regionNodes(func(m Member) bool { return !m.Gateway })...)
	}
	for _, a := range to {
		c.sendDigest(a, d)
	}
}

// askSeed sends a digest to a seed that is no gateway, and reports whether it answered.
func (c *Cluster) askSeed(ctx context.Context, far *pool, addr string) bool {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return false
	}
	before := c.replies.Load()
	c.rostersMu.Lock()
	digests := c.rosters.digests(c.Self(), 0)
	c.rostersMu.Unlock()
	for _, d := range digests {
		c.sendDigest(addressee{far, nodeAt(to)}, d)
	}
	for begun := time.Now(); time.Since(begun) < lookupTimeout; {
		if !sleep(ctx, 10*time.Millisecond) {
			return false
		}
		if c.replies.Load() != before {
			return true
		}
	}
	return false
}

// receiveRosters takes in a message about rosters.
func (c *Cluster) receiveRosters(pool string, b []byte) {
	var err error
	if b[0] == digestMessage {
		var d *digest
		if d, err = decodeDigest(b); err == nil {
			c.receiveDigest(pool, d)
		}
	} else {
		var all []*roster
		all, err = decodeRosters(b)
		if refused := c.takeRosters(all); err == nil {
			err = refused
		}
	}
	if err != nil && c.malformed.admit(c.log) {
		c.log.Warn("gossip: dropped a list of members", "pool", pool, "bytes", len(b), "error", err)
	}
}

// receiveDigest answers a digest: by what its sender lacks, and by what this node does.
func (c *Cluster) receiveDigest(pool string, d *digest) {
	to, ok := c.returnAddress(pool, d.from)
	far := c.pool(wan)
	if !ok || far == nil {
		return
	}
	c.rostersMu.Lock()
	if d.flags&digestReply == 0 {
		c.publish()
	}
	lacks, stamps, wants := c.rosters.compare(d, c.cfg.Now())
	c.rostersMu.Unlock()
	if d.flags&digestReply != 0 {
		if pool == wan {
			c.replies.Add(1)
		} else if d.flags&digestCurrent != 0 && len(wants) == 0 && !far.joins.Load() && d.from.Gateway {
			far.inform(d.flags&digestBlind != 0)
		}
	} else {
		reply := &digest{flags: digestReply, from: c.Self(), low: d.low, high: d.high, items: append(wants, stamps...)}
		if len(lacks) == 0 {
			reply.flags |= digestCurrent
		}
		if far.isBlind() {
			reply.flags |= digestBlind
		}
		c.sendDigest(to, reply)
	}
	c.sendRosters(to, lacks, c.isMember(d.from.Origin()))
}

// returnAddress returns where the sender of a digest is reached.
func (c *Cluster) returnAddress(pool string, from Member) (addressee, bool) {
	if pool == wan {
		return addressee{c.pool(wan), nodeAt(from.WAN)}, from.WAN.IsValid() && from.WAN.Port() != 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.routes[from.Origin()]
	if r == nil || r.pool.name != pool {
		return addressee{}, false
	}
	return addressee{r.pool, r.node}, true
}

// sendRosters sends rosters, the large ones over a stream in the background. The next digest asks for what is not sent.
// Who is no member, and may be a recording, leaves others most of the streams.
func (c *Cluster) sendRosters(to addressee, all []*roster, member bool) {
	packets, stream := encodeRosters(all)
	for _, b := range packets {
		if err := to.pool.ml().SendBestEffort(&to.node, b); err != nil {
			c.log.Debug("gossip: roster not sent", "pool", to.pool.name, "addr", to.node.Address(), "error", err)
		}
	}
	if stream == nil {
		return
	}
	places := []chan struct{}{c.sending}
	if !member {
		places = append(places, c.lending)
	}
	for i, p := range places {
		select {
		case p <- struct{}{}:
		default:
			for _, taken := range places[:i] {
				<-taken
			}
			return
		}
	}
	go func() {
		defer func() {
			for _, p := range places {
				<-p
			}
		}()
		if err := to.pool.ml().SendReliable(&to.node, stream); err != nil {
			c.log.Debug("gossip: rosters not sent", "pool", to.pool.name, "addr", to.node.Address(), "error", err)
		}
	}()
}

// takeRosters takes in rosters, and passes on what is new.
func (c *Cluster) takeRosters(all []*roster) (refused error) {
	now := c.cfg.Now()
	c.rostersMu.Lock()
	defer c.rostersMu.Unlock()
	var news []*roster
	for _, r := range all {
		if r.publisher == c.self.Origin() {
			c.outstamp(r)
			continue
		}
		isNews, err := c.rosters.put(r, now)
		if err != nil {
			refused = err
		} else if isNews {
			news = append(news, r)
		}
	}
	if len(news) == 0 || c.pool(wan) == nil {
		return refused
	}
	c.settle()
	for _, r := range news {
		c.push(r, false)
	}
	return refused
}

// outstamp has this node's own roster replace one that somebody published in its name.
func (c *Cluster) outstamp(r *roster) {
	own := c.rosters.byPublisher[r.publisher]
	if own == nil || r.stamp <= own.stamp || r.stamp-c.cfg.Now() > int64(maxStampAhead) {
		return
	}
	renewed := *own
	renewed.stamp = r.stamp + 1
	if _, err := c.rosters.put(&renewed, c.cfg.Now()); err == nil {
		c.push(&renewed, true)
	}
}
