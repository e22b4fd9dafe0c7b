package rules

import (
	"encoding/binary"

	"github.com/dchest/siphash"

	"github.com/edgelimit/edgelimit/counters"
)

// Secret keys the hash of identities. All nodes of a cluster share it; another secret means other keys, so that changing it
// starts all counts anew. It is not the gossip key.
type Secret [16]byte

// String hides the secret from logs.
func (Secret) String() string { return "(secret)" }

// stackKey is how many hashed bytes need no allocation: the values of most requests.
const stackKey = 256

// key hashes the values of the entries that met the rule with SipHash-2-4. What is hashed is, from the top of the tree downwards, each
// open value with its length as a uvarint before it, as appendOpen has them. The rule itself is no part of it: a key counts for one meter
// only.
func (r *Rule) key(secret Secret, entries []Entry) counters.Key {
	var stack [stackKey]byte
	return KeyOf(secret, r.appendOpen(stack[:0], entries))
}

// overrideKey is the key of a descriptor under a limit that the request brings: of the domain and of all keys and values.
func overrideKey(secret Secret, domain string, entries []Entry) counters.Key {
	var stack [stackKey]byte
	b := appendSized(stack[:0], domain)
	for i := range entries {
		b = appendSized(appendSized(b, entries[i].Key), entries[i].Value)
	}
	return KeyOf(secret, b)
}

// KeyOf is the key of an identity under a meter that is no rule's.
func KeyOf(secret Secret, identity []byte) counters.Key {
	k0, k1 := binary.LittleEndian.Uint64(secret[:8]), binary.LittleEndian.Uint64(secret[8:])
	return counters.Key(siphash.Hash(k0, k1, identity))
}

// entries are those of a descriptor that meets the rule with identity as the value of its only open key.
func (r *Rule) entries(room *[MaxEntries]Entry, identity string) []Entry {
	n := copy(room[:], r.path)
	if len(r.open) == 1 {
		room[r.open[0]].Value = identity
	}
	return room[:n]
}

// appendSized appends s after its length, so that no two sequences of strings look the same.
func appendSized(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
