package gossip

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/memberlist"
)

// MaxKeys is how many gossip keys a node has at most: the one that it sends by, and those that it accepts as well while
// they are replaced.
const MaxKeys = 3

// keySize is the length of a gossip key in bytes.
const keySize = 32

// KeyFingerprint returns a number by which a gossip key is named. It reveals nothing of the key, and is never 0.
func KeyFingerprint(key []byte) uint64 {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("edgelimit gossip key fingerprint 1"))
	return max(1, binary.BigEndian.Uint64(h.Sum(nil)))
}

func fingerprintsOf(keys [][]byte) *[MaxKeys]uint64 {
	var all [MaxKeys]uint64
	for i, k := range keys {
		all[i] = KeyFingerprint(k)
	}
	return &all
}

// validateKeys says what is wrong with the keys of a node that has some.
func validateKeys(keys [][]byte) error {
	if len(keys) == 0 || len(keys) > MaxKeys {
		return fmt.Errorf("%d gossip keys, want 1 to %d: remove old ones (edgelimit keys remove)", len(keys), MaxKeys)
	}
	for i, k := range keys {
		if len(k) != keySize {
			return fmt.Errorf("key %d has %d bytes, it needs %d (edgelimit keygen makes one)", i+1, len(k), keySize)
		}
	}
	return nil
}

// SetKeys replaces the gossip keys, in all pools, and sends their fingerprints to the other nodes: the first encrypts,
// all decrypt. Nodes that do not have the first one cannot read this node any more. A cluster that began with keys
// keeps some, and one without stays without: the error says so, or which key is invalid, and nothing has changed then.
func (c *Cluster) SetKeys(keys [][]byte) error {
	if err := validateKeys(keys); err != nil {
		return err
	}
	if len(c.cfg.Keys) == 0 {
		return errors.New("gossip began without keys: start the node again to encrypt it")
	}
	c.keysMu.Lock()
	defer c.keysMu.Unlock()
	for _, p := range c.pools {
		if p.sockets != nil {
			if err := p.sockets.inspector.setKeys(keys); err != nil {
				return err
			}
		}
		if err := setRing(p.ring, keys); err != nil {
			return err
		}
	}
	if now := fingerprintsOf(keys); *c.keys.Swap(now) != *now {
		c.announceSoon()
	}
	return nil
}

// setRing replaces the keys of a ring. Keyring.RemoveKey moves the keys behind the removed one within an array that
// memberlist may be reading: so keys go from the end, and those that stay come back.
func setRing(ring *memberlist.Keyring, keys [][]byte) error {
	for _, k := range keys {
		if err := ring.AddKey(k); err != nil {
			return err
		}
	}
	if err := ring.UseKey(keys[0]); err != nil {
		return err
	}
	stays := func(k []byte) bool {
		return slices.ContainsFunc(keys, func(o []byte) bool { return slices.Equal(k, o) })
	}
	had := ring.GetKeys()
	first := slices.IndexFunc(had, func(k []byte) bool { return !stays(k) })
	if first < 0 {
		return nil
	}
	for _, k := range slices.Backward(had[first:]) {
		if err := ring.RemoveKey(k); err != nil {
			return err
		}
	}
	for _, k := range slices.DeleteFunc(slices.Clone(had[first:]), func(k []byte) bool { return !stays(k) }) {
		if err := ring.AddKey(k); err != nil {
			return err
		}
	}
	return nil
}
