package node

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/bans"
	"github.com/edgelimit/edgelimit/node/bans/banname"
	"github.com/edgelimit/edgelimit/node/rules"
)

// protection is the addresses that no export of bans may block, as they are not one client: whoever is banned there, in
// the kernel or at a proxy, takes others or this machine along.
type protection struct {
	why   map[netip.Prefix]string
	lists *rules.AddressLists
}

// ofNoClient are addresses that no remote machine has to itself.
var ofNoClient = map[netip.Prefix]string{
	netip.MustParsePrefix("0.0.0.0/8"):          "unspecified addresses",
	netip.MustParsePrefix("127.0.0.0/8"):        "loopback",
	netip.MustParsePrefix("224.0.0.0/4"):        "multicast",
	netip.MustParsePrefix("255.255.255.255/32"): "broadcast",
	netip.MustParsePrefix("::/127"):             "loopback and the unspecified address",
	netip.MustParsePrefix("fe80::/10"):          "link-local addresses, of which one /64 is all neighbours",
	netip.MustParsePrefix("ff00::/8"):           "multicast",
}

// protection returns what may not be blocked now: of no client, trusted proxies, and this machine's own, which change
// while the node runs.
func (n *Node) protection() (protection, error) {
	own, err := n.ownAddrs()
	if err != nil {
		return protection{}, fmt.Errorf("the addresses of this machine, which are never exported, cannot be listed: %w",
			err)
	}
	p := protection{why: maps.Clone(ofNoClient)}
	add := func(prefix netip.Prefix, why string) {
		if _, known := p.why[prefix]; !known {
			p.why[prefix] = why
		}
	}
	for _, a := range own {
		if ip, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(ip.IP); ok {
				addr = addr.Unmap()
				add(netip.PrefixFrom(addr, addr.BitLen()), "an address of this machine")
			}
		}
	}
	proxies := slices.Clone(n.cfg.Requests.TrustedProxies)
	for _, list := range n.cfg.ProxyProtocol {
		proxies = append(proxies, list...)
	}
	for _, text := range proxies {
		if prefix, err := rules.ParsePrefix(text); text != actions.UnixPeers && err == nil {
			add(prefix, "a trusted proxy")
		}
	}
	listed := make(map[netip.Prefix]rules.Listing, len(p.why))
	for prefix := range p.why {
		listed[prefix] = rules.AllowListed
	}
	p.lists = rules.NewAddressLists(listed)
	return p, nil
}

// held returns protected addresses that a prefix holds some of, and why they are.
func (p *protection) held(of netip.Prefix) (held netip.Prefix, why string) {
	for _, prefix := range slices.SortedFunc(maps.Keys(p.why), netip.Prefix.Compare) {
		if of.IsValid() && prefix.Overlaps(of) {
			return prefix, p.why[prefix]
		}
	}
	return held, ""
}

// exports returns what an export has now: the bans that the node itself denies by, under the rules in force.
func (n *Node) exports(x *bans.Export) (bans.Selection, error) {
	protected, err := n.protection()
	if err != nil {
		return nil, err
	}
	return func(b *counters.Bans, name *banname.Name) (bans.Spares, bool) {
		r, ok := n.exported(x, b, name)
		if !ok {
			return nil, false
		}
		return func(p netip.Prefix) bans.Spare {
			switch {
			case r.Lists.Allows(p):
				return bans.AllowListed
			case protected.lists.Allows(p):
				return bans.Protected
			}
			return bans.Blocked
		}, true
	}, nil
}

// exported returns the rule of a meter's bans, and whether an export has them.
func (n *Node) exported(x *bans.Export, b *counters.Bans, name *banname.Name) (r *rules.Rule, ok bool) {
	fullName, _ := bans.Rule(name.Rule)
	r = n.policy.Load().set.Rule(fullName)
	if r == nil || r.Limit == nil || !r.ExportAddress || r.Mode == counters.Shadow || n.shadow.Load() {
		return nil, false
	}
	if len(x.Rules) > 0 && !slices.ContainsFunc(x.Rules, func(name string) bool {
		return name == r.Name || name == r.Given || name == r.FullName
	}) {
		return nil, false
	}
	if !name.Keys.Manual() {
		m := r.Limit.AddressBanMeter()
		return r, m != nil && *m == b.Meter()
	}
	return r, name.Rule == r.Limit.Meter().Rule && r.AddressBits() > 0
}
