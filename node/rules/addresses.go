package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/edgelimit/edgelimit/node/clientaddr"
)

// Listing is the entry of a rule's address lists that holds an address.
type Listing uint8

// The listings.
const (
	Unlisted    Listing = iota // limited by the rule
	AllowListed                // never limited, nor counted
	DenyListed                 // always denied
)

// AddressLists are a rule's allow and deny lists. The longest prefix that holds an address decides. They are immutable.
type AddressLists struct {
	lengths [2][]int // of the prefixes, for IPv4 and IPv6, the longest first
	listed  map[netip.Prefix]Listing
	allowed []netip.Prefix // sorted by address
}

// find returns the listing of a client's address (see clientaddr.Of), or of the address as it is written;
// Unlisted for any other text.
func (a *AddressLists) find(value string) Listing {
	addr, err := netip.ParseAddr(value)
	if err != nil {
		return Unlisted
	}
	addr = addr.Unmap().WithZone("")
	client := clientaddr.Of(addr)
	if l := a.findAddr(client); l != Unlisted || client == addr {
		return l
	}
	return a.findAddr(addr)
}

func (a *AddressLists) findAddr(addr netip.Addr) Listing {
	for _, bits := range a.lengths[family(addr)] {
		prefix, _ := addr.Prefix(bits) // no address is shorter than the prefixes of its family
		if l, ok := a.listed[prefix]; ok {
			return l
		}
	}
	return Unlisted
}

// Allows reports whether an allowed prefix holds some of a prefix's addresses. a may be nil.
func (a *AddressLists) Allows(p netip.Prefix) bool {
	if a == nil || !p.IsValid() {
		return false
	}
	for _, bits := range a.lengths[family(p.Addr())] {
		if wide, err := p.Addr().Prefix(bits); err == nil && bits <= p.Bits() && a.listed[wide] == AllowListed {
			return true
		}
	}
	i, _ := slices.BinarySearchFunc(a.allowed, p.Addr(), func(l netip.Prefix, addr netip.Addr) int {
		return l.Addr().Compare(addr)
	})
	return i < len(a.allowed) && p.Contains(a.allowed[i].Addr())
}

func family(addr netip.Addr) int {
	if addr.Is4() {
		return 0
	}
	return 1
}

// NewAddressLists returns the lists of what is listed, which it keeps; nil for nothing.
func NewAddressLists(listed map[netip.Prefix]Listing) *AddressLists {
	if len(listed) == 0 {
		return nil
	}
	a := &AddressLists{listed: listed}
	for prefix, listing := range listed {
		if listing == AllowListed {
			a.allowed = append(a.allowed, prefix)
		}
		if lengths := &a.lengths[family(prefix.Addr())]; !slices.Contains(*lengths, prefix.Bits()) {
			*lengths = append(*lengths, prefix.Bits())
		}
	}
	slices.SortFunc(a.allowed, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	for i := range a.lengths {
		slices.SortFunc(a.lengths[i], func(a, b int) int { return b - a })
	}
	return a
}

// ParsePrefix parses an address or a prefix. A prefix with bits beyond its length, where a shorter or longer one or an
// address may be intended, is returned without them, with an error that names both.
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
	if prefix != prefix.Masked() {
		return prefix.Masked(), fmt.Errorf("%s has bits beyond its length: write %s, or %s", text, prefix.Masked(),
			prefix.Addr())
	}
	return prefix, nil
}
