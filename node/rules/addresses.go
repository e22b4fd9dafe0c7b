package rules

import (
	"errors"
	"net/netip"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Listing says whether a rule's lists name the address that meets it.
type Listing uint8

// What a rule's lists may say of an address.
const (
	Unlisted    Listing = iota // it is limited as everybody
	AllowListed                // it is never limited, nor counted
	DenyListed                 // it is always denied
)

// addresses are a rule's allow and deny lists. The longest prefix that holds an address decides. It never changes once it is read.
type addresses struct {
	lengths [2][]int // of the prefixes, for IPv4 and IPv6, the longest first
	listed  map[netip.Prefix]Listing
}

// find looks an address up. What is no address is not listed.
func (a *addresses) find(value string) Listing {
	addr, err := netip.ParseAddr(value)
	if err != nil {
		return Unlisted
	}
	addr = addr.Unmap().WithZone("")
	for _, bits := range a.lengths[family(addr)] {
		prefix, _ := addr.Prefix(bits) // no address is shorter than the prefixes of its family
		if l, ok := a.listed[prefix]; ok {
			return l
		}
	}
	return Unlisted
}

func family(addr netip.Addr) int {
	if addr.Is4() {
		return 0
	}
	return 1
}

func (a *addresses) add(prefix netip.Prefix, l Listing) {
	a.listed[prefix] = l
	lengths := &a.lengths[family(prefix.Addr())]
	if i, known := slices.BinarySearchFunc(*lengths, prefix.Bits(), func(have, want int) int { return want - have }); !known {
		*lengths = slices.Insert(*lengths, i, prefix.Bits())
	}
}

// addresses reads the allow and deny lists of a descriptor; nil where there are none.
func (p *parser) addresses(f map[string]*yaml.Node) *addresses {
	a := &addresses{listed: make(map[netip.Prefix]Listing)}
	lines := make(map[netip.Prefix]int)
	for _, key := range listKeys {
		listing := AllowListed
		if key == "deny" {
			listing = DenyListed
		}
		for n, text := range p.texts(f[key], key) {
			prefix, err := ParsePrefix(text)
			if err != nil {
				p.add(n, "%.80q in %s is neither an address nor a prefix of addresses: write 192.0.2.1, 192.0.2.0/24 or 2001:db8::/32", text, key)
				continue
			}
			if lines[prefix] > 0 {
				p.add(n, "%s was already given in line %d", prefix, lines[prefix])
				continue
			}
			lines[prefix] = n.Line
			a.add(prefix, listing)
		}
	}
	if len(a.listed) == 0 {
		return nil
	}
	return a
}

// ParsePrefix reads an address or a prefix. Bits beyond the prefix are not looked at.
func ParsePrefix(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	if prefix.Addr().Is4In6() {
		bits := prefix.Bits() - 96
		if bits < 0 {
			return netip.Prefix{}, errors.New("it holds more than the IPv4 addresses")
		}
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), bits)
	}
	return prefix.Masked(), nil
}
