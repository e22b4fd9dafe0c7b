package rules

import (
	"net/netip"
)

// DefaultIPv6Prefix is how many bits of an IPv6 address tell one client from another: a client has the rest to itself, and could be
// 2^64 clients.
const DefaultIPv6Prefix = 64

// addressKeys are the keys whose open values are addresses unless a descriptor says otherwise (ipv6_prefix). The first two are those of
// Envoy, the last is that of the flat form.
var addressKeys = []string{
	"remote_address", "masked_remote_address", "client_ip", "client_address", "ip", "ip_address", "remote_addr", "remote_ip", "source_ip",
	identityKey,
}

// appendOpen appends what is hashed of the entries that met the rule: the open values, as the others, and those that share a count, are
// the same for all. Of an IPv6 address under a key of addresses it is the prefix.
func (r *Rule) appendOpen(b []byte, entries []Entry) []byte {
	for _, i := range r.open {
		value := entries[i].Value
		if bits := r.steps[i].ipv6; bits > 0 && mayBeIPv6(value) {
			b = appendGroup(b, value, bits)
		} else {
			b = appendSized(b, value)
		}
	}
	return b
}

// appendGroup appends what stands for a value that may be an IPv6 address: its prefix, as 16 bytes and the number of bits.
func appendGroup(b []byte, value string, bits uint8) []byte {
	switch addr, prefix := group(value, bits); {
	case prefix.IsValid():
		bytes := prefix.Addr().As16()
		return append(append(append(b, byte(len(bytes)+1)), bytes[:]...), byte(prefix.Bits()))
	case addr.IsValid():
		var room [len("255.255.255.255")]byte
		return appendSized(b, string(addr.AppendTo(room[:0])))
	}
	return appendSized(b, value)
}

// mayBeIPv6 reports whether one of the first characters is a colon: it comes after four others at the latest.
func mayBeIPv6(value string) bool {
	for i := range min(len(value), 5) {
		if value[i] == ':' {
			return true
		}
	}
	return false
}

// group returns what stands for an IPv6 address: its prefix, or if it is an IPv4 address in disguise that address. Both are invalid when
// value is no such address.
func group(value string, bits uint8) (addr netip.Addr, prefix netip.Prefix) {
	parsed, err := netip.ParseAddr(value)
	if err != nil || parsed.Zone() != "" || parsed.Is4() {
		return netip.Addr{}, netip.Prefix{}
	}
	if parsed.Is4In6() {
		return parsed.Unmap(), netip.Prefix{}
	}
	prefix, _ = parsed.Prefix(int(bits)) // no more than 128
	return netip.Addr{}, prefix
}

// groupText is group in words: the value itself where it stands for nobody but itself.
func groupText(value string, bits uint8) string {
	switch addr, prefix := group(value, bits); {
	case bits == 0:
	case prefix.IsValid():
		return prefix.String()
	case addr.IsValid():
		return addr.String()
	}
	return value
}
