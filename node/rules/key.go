package rules

import (
	"cmp"
	"encoding/binary"
	"net/netip"

	"github.com/dchest/siphash"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/clientaddr"
)

// Secret keys the hash of identities. All nodes of a cluster share it; another secret starts all counts anew. It is not
// the gossip key.
type Secret [16]byte

// String hides the secret from logs.
func (Secret) String() string { return "(secret)" }

// stackKey is the number of hashed bytes that need no allocation: enough for usual values.
const stackKey = 256

// key hashes the open values of the entries that met the rule with SipHash-2-4, from the top of the tree downwards,
// each after its length as a uvarint (see appendOpen). The rule is no part of it: a key is used with one meter only.
func (r *Rule) key(secret Secret, entries []Entry) counters.Key {
	if r.Compatible {
		return r.joinedKey(secret, entries)
	}
	var stack [stackKey]byte
	return KeyOf(secret, r.appendOpen(stack[:0], entries))
}

// overrideKey is the key of a descriptor under a limit of the request: a hash of the domain and of all keys and values.
func overrideKey(secret Secret, domain string, entries []Entry) counters.Key {
	var stack [stackKey]byte
	b := appendSized(stack[:0], domain)
	for i := range entries {
		b = appendSized(appendSized(b, entries[i].Key), entries[i].Value)
	}
	return KeyOf(secret, b)
}

// KeyOf returns the key of an identity under a meter that belongs to no rule.
func KeyOf(secret Secret, identity []byte) counters.Key {
	k0, k1 := binary.LittleEndian.Uint64(secret[:8]), binary.LittleEndian.Uint64(secret[8:])
	return counters.Key(siphash.Hash(k0, k1, identity))
}

// entries returns those of a descriptor that meets the rule, with identity as the value of its only open key.
func (r *Rule) entries(room *[MaxEntries]Entry, identity string) []Entry {
	all := append(room[:0], r.Entries...) // a compatible domain may have more
	if len(r.open) == 1 {
		all[r.open[0]].Value = identity
	}
	return all
}

// appendSized appends s after its length, so that different sequences of strings differ.
func appendSized(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendOpen appends the open values of the entries that met the rule; the other values are the same for all requests.
// An IPv6 address under a key of addresses is cut to its prefix.
func (r *Rule) appendOpen(b []byte, entries []Entry) []byte {
	for _, i := range r.open {
		value := entries[i].Value
		if s := &r.Steps[i]; s.IPv6 > 0 && (s.IPv4 > 0 || mayBeIPv6(value)) {
			b = appendGroup(b, value, s)
		} else {
			b = appendSized(b, value)
		}
	}
	return b
}

// appendGroup appends a value that may be an address: an IPv4 address or prefix as text, an IPv6 prefix as 16 bytes and
// the number of bits.
func appendGroup(b []byte, value string, s *Step) []byte {
	var room [len("255.255.255.255/32")]byte
	switch prefix := s.group(value); {
	case !prefix.IsValid():
		return appendSized(b, value)
	case prefix.Addr().Is4() && prefix.IsSingleIP():
		return appendSized(b, string(prefix.Addr().AppendTo(room[:0])))
	case prefix.Addr().Is4():
		return appendSized(b, string(prefix.AppendTo(room[:0])))
	default:
		bytes := prefix.Addr().As16()
		return append(append(append(b, byte(len(bytes)+1)), bytes[:]...), byte(prefix.Bits()))
	}
}

// mayBeIPv6 reports whether one of the first characters is a colon: in an address it follows at most four others.
func mayBeIPv6(value string) bool {
	for i := range min(len(value), 5) {
		if value[i] == ':' {
			return true
		}
	}
	return false
}

// group returns the prefix by which the step counts an address; invalid if value is none.
func (s *Step) group(value string) netip.Prefix {
	addr, err := netip.ParseAddr(value)
	if err != nil || addr.Zone() != "" {
		return netip.Prefix{}
	}
	return s.groupOf(clientaddr.Of(addr))
}

// groupOf is group of a client's address (see clientaddr.Of).
func (s *Step) groupOf(addr netip.Addr) netip.Prefix {
	bits := s.IPv6
	if addr.Is4() {
		bits = cmp.Or(s.IPv4, 32)
	}
	prefix, _ := addr.Prefix(int(bits)) // no more than the address has
	return prefix
}

// groupText returns the counted form of a value as text.
func (s *Step) groupText(value string) string {
	prefix := netip.Prefix{}
	if s.IPv6 > 0 {
		prefix = s.group(value)
	}
	switch {
	case !prefix.IsValid():
		return value
	case prefix.Addr().Is4() && prefix.IsSingleIP():
		return prefix.Addr().String()
	}
	return prefix.String()
}
