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

// stackKey is how many hashed bytes need no allocation: a full name and the values of most requests.
const stackKey = 256

// key hashes the rule and the values of the entries that met it with SipHash-2-4. What is hashed is, each with its length as
// a uvarint before it: the full name, then the values from the top of the tree downwards.
func (r *Rule) key(secret Secret, entries []Entry) counters.Key {
	var stack [stackKey]byte
	b := append(stack[:0], r.prefix...)
	for i := range entries {
		b = appendSized(b, entries[i].Value)
	}
	k0, k1 := binary.LittleEndian.Uint64(secret[:8]), binary.LittleEndian.Uint64(secret[8:])
	return counters.Key(siphash.Hash(k0, k1, b))
}

// identityKey is the key of a descriptor that meets the rule with identity as the value of its only open key.
func (r *Rule) identityKey(secret Secret, identity string) counters.Key {
	var entries [MaxEntries]Entry
	n := copy(entries[:], r.path)
	if r.open == 1 {
		entries[r.openAt].Value = identity
	}
	return r.key(secret, entries[:n])
}

// appendSized appends s after its length, so that no two sequences of strings look the same.
func appendSized(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
