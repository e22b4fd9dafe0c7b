package rules

import (
	"net/netip"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/bans/banname"
	"github.com/edgelimit/edgelimit/node/clientaddr"
)

// AddressBits returns how many bits of an IPv6 address the rule counts by, where the values of its last key are
// addresses that it counts one by one; else 0.
func (r *Rule) AddressBits() int {
	if len(r.Steps) == 0 || !r.Steps[len(r.Steps)-1].Open {
		return 0
	}
	return int(r.Steps[len(r.Steps)-1].IPv6)
}

// ClientPrefix returns the prefix by which the rule counts a client's address (see clientaddr.Of); invalid if its
// last key holds no addresses.
func (r *Rule) ClientPrefix(addr netip.Addr) netip.Prefix {
	if r.AddressBits() == 0 {
		return netip.Prefix{}
	}
	return r.Steps[len(r.Steps)-1].groupOf(addr)
}

// AddressOf returns the address that the last of a descriptor's entries, or the identity of a request by rule, holds;
// invalid if it is none.
func (r *Request) AddressOf(i int) netip.Addr {
	text := r.Identity
	if r.Rule == "" {
		entries := r.Descriptors[i]
		text = entries[len(entries)-1].Value
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return clientaddr.Of(addr)
}

// banKey returns the key by which the rule bans the address in the last of the entries that met it; 0 if it exports no
// addresses, or there is none.
func (r *Rule) banKey(entries []Entry) counters.Key {
	if !r.ExportAddress {
		return 0
	}
	addr, err := netip.ParseAddr(entries[len(entries)-1].Value)
	if err != nil {
		return 0
	}
	key, _ := banname.AddressKey(addr, r.AddressBits())
	return key
}

// Address is the key of the address that the layer's rule would ban; 0 if its bans keep none.
func (m *Match) Address() counters.Key { return m.address }

// Bannable reports whether a manual ban may deny the layer: its rule has a limit, and the client is not on its lists.
func (m *Match) Bannable() bool { return m.Rule != nil && m.Rule.Limit != nil && m.Listed == Unlisted }

// Ban has the layer, which is Bannable, deny everything for a manual ban of which so much is left.
func (m *Match) Ban(left time.Duration) { m.banned = left }

// annotateBan puts the rule's view into the decision of a layer with a manual ban.
func (m *Match) annotateBan(d *counters.Decision) {
	l := m.Rule.Limit
	d.Banned, d.Failed = !d.Allowed, false
	d.Limit, d.Window, d.ResetAfter, d.Remaining = l.Max()-m.Rule.Margin, l.Lasts(), m.banned, 0
	if !d.Allowed {
		d.RetryAfter = m.banned
	}
}
