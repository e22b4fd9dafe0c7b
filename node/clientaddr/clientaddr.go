// Package clientaddr tells which client is at an address.
package clientaddr

import "net/netip"

var (
	nat64  = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052
	compat = netip.MustParsePrefix("::/96")        // RFC 4291, 2.5.5.1
	sixTo4 = netip.MustParsePrefix("2002::/16")    // RFC 3056
	teredo = netip.MustParsePrefix("2001::/32")    // RFC 4380
)

// Of returns the address by which the client at an address is counted, listed and banned: the public IPv4
// address that an IPv6 address carries by a standard transition mechanism (mapped, NAT64's well-known prefix,
// IPv4-compatible, 6to4, Teredo), otherwise the address itself. Zones are dropped. Without it, one prefix of IPv6
// stands for every client of IPv4, or one host of IPv4 has 65,536 networks of IPv6.
//
// It is for counting, never for trust: an IPv6 address that carries a private or local one keeps to itself.
func Of(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if !addr.Is6() {
		return addr
	}
	b := addr.As16()
	var v4 [4]byte
	switch {
	case nat64.Contains(addr), compat.Contains(addr):
		v4 = [4]byte(b[12:])
	case sixTo4.Contains(addr):
		v4 = [4]byte(b[2:6])
	case teredo.Contains(addr): // the bits of the client's address are inverted
		v4 = [4]byte{^b[12], ^b[13], ^b[14], ^b[15]}
	}
	if carried := netip.AddrFrom4(v4); v4[0] != 0 && carried.IsGlobalUnicast() && !carried.IsPrivate() {
		return carried
	}
	return addr
}
