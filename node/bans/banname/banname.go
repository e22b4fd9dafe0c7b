// Package banname reads and writes the names of meters of bans, and the keys of addresses that are banned.
//
// Most bans have a meter with the name of their rule, and the keys that the rule counts by, which are hashes. Two kinds
// have a name of their own, and say in it what their keys are:
//
//	%ban/a64///edge/remote_address               of a rule that exports: the address itself, IPv6 by /64
//	%ban/k/alice/abuse report 12/edge/api_key    manual, of one key of the rule
//	%ban/4.24/alice/scanner/edge/remote_address  manual, of everybody in an IPv4 prefix of 24 bits; %ban/6.48/ in IPv6
//	     │    │     │       └ the rule's name in its limit's meter: it comes last, as it is
//	     │    │     └ reason
//	     │    └ who began it
//	     └ what the keys are
//
// So such bans are replicated, stored and lifted like all others, by nodes that know neither reason nor rule. In who
// and reason, percent signs, slashes and control characters are written as %XX. A rule's name may end in the mark of
// its scope ([counters.Meter.Home]), and then so does that of its bans.
package banname

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/clientaddr"
)

// Keys is what the keys of a meter of bans are.
type Keys uint8

const (
	RuleKeys     Keys = iota // of a rule's own bans: its keys
	AddressKeys              // of a rule's own bans: addresses, IPv6 by Name.Bits
	ManualKeys               // of manual bans: keys of the rule
	IPv4Prefixes             // of manual bans: IPv4 prefixes of Name.Bits
	IPv6Prefixes             // of manual bans: IPv6 prefixes of Name.Bits
)

// Manual reports whether an operator began the bans, not a denial.
func (k Keys) Manual() bool { return k >= ManualKeys }

// Bounds of a Name, in bytes.
const (
	MaxBy     = 64
	MaxReason = 200
)

// MaxAddressBits is how much of an IPv6 address fits into a key.
const MaxAddressBits = 64

// Name is what the name of a meter of bans says.
type Name struct {
	Rule   string // the rule's name in its limit's meter
	Keys   Keys
	Bits   uint8  // of IPv6 addresses (AddressKeys), or of prefixes
	By     string // who began a manual ban
	Reason string // the text given with it
}

const mark = "%ban/"

// String returns the name.
func (n Name) String() string {
	var keys string
	switch n.Keys {
	case RuleKeys:
		return n.Rule
	case AddressKeys:
		keys = "a" + strconv.Itoa(int(n.Bits))
	case ManualKeys:
		keys = "k"
	case IPv4Prefixes:
		keys = "4." + strconv.Itoa(int(n.Bits))
	default:
		keys = "6." + strconv.Itoa(int(n.Bits))
	}
	return mark + keys + "/" + escape(n.By) + "/" + escape(n.Reason) + "/" + n.Rule
}

// Validate returns what is wrong with a name that an operator gives.
func (n Name) Validate() error {
	switch {
	case n.Rule == "" || strings.HasPrefix(n.Rule, mark):
		return fmt.Errorf("ban: %q is no rule's name", n.Rule)
	case len(n.By) > MaxBy || !utf8.ValidString(n.By):
		return fmt.Errorf("ban: who bans is no text of at most %d bytes", MaxBy)
	case len(n.Reason) > MaxReason || !utf8.ValidString(n.Reason):
		return fmt.Errorf("ban: the reason is no text of at most %d bytes", MaxReason)
	case !n.Keys.Manual() && n.By+n.Reason != "":
		return errors.New("ban: a rule's own bans have no reason but the rule")
	case n.Keys == IPv4Prefixes && n.Bits > 32 || n.Bits > MaxAddressBits:
		return fmt.Errorf("ban: a prefix of %d bits, IPv4 has at most 32 and IPv6 is banned by at most %d", n.Bits,
			MaxAddressBits)
	case len(n.String()) > counters.MaxRuleName:
		return fmt.Errorf("ban: the names of the rule and of who bans leave no room for a reason of %d bytes: "+
			"shorten it", len(n.Reason))
	}
	return nil
}

// Parse returns what the name of a meter of bans says, which may come from a peer. ok is false for one that
// String does not write: its bans mean nothing.
func Parse(name string) (n Name, ok bool) {
	rest, marked := strings.CutPrefix(name, mark)
	if !marked {
		return Name{Rule: name}, name != "" && len(name) <= counters.MaxRuleName
	}
	parts := strings.SplitN(rest, "/", 4)
	if len(parts) != 4 {
		return Name{}, false
	}
	n = Name{Rule: parts[3], By: unescape(parts[1]), Reason: unescape(parts[2])}
	kind, bits := parts[0], ""
	for prefix, keys := range map[string]Keys{"a": AddressKeys, "4.": IPv4Prefixes, "6.": IPv6Prefixes} {
		if number, has := strings.CutPrefix(kind, prefix); has {
			n.Keys, bits = keys, number
		}
	}
	if kind == "k" {
		n.Keys, bits = ManualKeys, "0"
	}
	number, err := strconv.ParseUint(bits, 10, 8)
	n.Bits = uint8(number)
	return n, err == nil && n.Keys != RuleKeys && n.Validate() == nil && n.String() == name
}

// Bans returns the bans with the name that last so long, in whole milliseconds.
func (n Name) Bans(lasts time.Duration) (*counters.Bans, error) {
	if err := n.Validate(); err != nil {
		return nil, err
	}
	return counters.NewBans(counters.Meter{Rule: n.String(), Algorithm: counters.Ban, Window: lasts, Sub: lasts})
}

func escape(s string) string {
	b := make([]byte, 0, len(s))
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == 0x7f || c == '%' || c == '/' {
			b = fmt.Appendf(b, "%%%02X", c)
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

// unescape is the inverse of escape. What that does not write it returns in any form.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// ipv4Keys is the first half of the keys of IPv4 addresses: as the first half of an IPv6 address, which is the key of
// that, it would be multicast, and nobody's.
const ipv4Keys = 0xffffffff << 32

// AddressKey returns the key of a client's address (see [clientaddr.Of]), of IPv6 by its first bits,
// MaxAddressBits at most. ok is false for one that is no client's in a network: with a zone, multicast, or under ::/64.
func AddressKey(addr netip.Addr, bits int) (key counters.Key, ok bool) {
	if addr.Zone() != "" {
		return 0, false
	}
	addr = clientaddr.Of(addr)
	if !addr.IsValid() || addr.IsMulticast() {
		return 0, false
	}
	if addr.Is4() {
		return prefixKey(addr), true
	}
	p, err := addr.Prefix(min(bits, MaxAddressBits))
	if err != nil {
		return 0, false
	}
	key = prefixKey(p.Addr())
	return key, key != 0
}

// PrefixKey returns the key of a prefix, and whose keys these are. ok is false for one that no key stands for: invalid,
// with bits beyond its length, of more than MaxAddressBits, or of IPv6 multicast.
func PrefixKey(p netip.Prefix) (key counters.Key, keys Keys, ok bool) {
	if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() {
		return 0, 0, false
	}
	key, keys = prefixKey(p.Addr()), IPv6Prefixes
	if p.Addr().Is4() {
		return key, IPv4Prefixes, true
	}
	return key, keys, p.Bits() <= MaxAddressBits && key < 0xff<<56
}

func prefixKey(addr netip.Addr) counters.Key {
	if addr.Is4() {
		b := addr.As4()
		return ipv4Keys | counters.Key(binary.BigEndian.Uint32(b[:]))
	}
	b := addr.As16()
	return counters.Key(binary.BigEndian.Uint64(b[:8]))
}

// IsIPv4 reports whether a key of addresses or prefixes is one of IPv4.
func IsIPv4(key counters.Key) bool { return key >= ipv4Keys }

// Prefix returns the prefix of so many bits that a key of addresses or prefixes stands for. It is invalid for a key
// that AddressKey and PrefixKey do not return for as many bits.
func Prefix(key counters.Key, bits int) netip.Prefix {
	if IsIPv4(key) {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(key))
		return valid(netip.PrefixFrom(netip.AddrFrom4(b), bits))
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(key))
	if b[0] == 0xff || bits > MaxAddressBits {
		return netip.Prefix{}
	}
	return valid(netip.PrefixFrom(netip.AddrFrom16(b), bits))
}

func valid(p netip.Prefix) netip.Prefix {
	if p != p.Masked() {
		return netip.Prefix{}
	}
	return p
}

// Prefix returns whom a key of the bans stands for; invalid if the keys are hashes, or it is no key of theirs.
func (n Name) Prefix(key counters.Key) netip.Prefix {
	switch {
	case n.Keys == AddressKeys && IsIPv4(key):
		return Prefix(key, 32)
	case n.Keys == AddressKeys,
		n.Keys == IPv4Prefixes && IsIPv4(key), n.Keys == IPv6Prefixes && !IsIPv4(key):
		return Prefix(key, int(n.Bits))
	}
	return netip.Prefix{}
}
