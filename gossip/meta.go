package gossip

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/edgelimit/edgelimit/counters"
)

// NewOrigin folds a node's id and the incarnation of its boot into its origin.
func NewOrigin(nodeID string, incarnation uint64) counters.Origin {
	h := sha256.Sum256(binary.LittleEndian.AppendUint64([]byte(nodeID+"\x00"), incarnation))
	return counters.Origin(max(1, binary.LittleEndian.Uint64(h[:])))
}

// Member is what a node tells of itself through the membership.
type Member struct {
	NodeID      string
	Region      string
	Incarnation uint64 // of its boot
	MinVersion  uint8  // the frame versions that it reads
	MaxVersion  uint8
	// Rules and Identity are fingerprints of the rules that the node enforces and of the secret by which it hashes
	// identities: two nodes with other ones do not count the same. 0: unknown, as of nodes of versions that do not send
	// them.
	Rules, Identity uint64
}

// Origin is the member's origin.
func (m Member) Origin() counters.Origin { return NewOrigin(m.NodeID, m.Incarnation) }

// name is what all boots of a node have in common.
func (m Member) name() string { return m.Region + "/" + m.NodeID }

// Limits on what a member may call itself, so that the metadata fits memberlist's 512 bytes.
const (
	MaxNodeID = 128
	MaxRegion = counters.MaxRegion
)

// metaFields is how many fields the metadata of this version has; later ones append. Nodes of the first version send
// firstMetaFields.
const (
	firstMetaFields = 5
	metaFields      = 7
)

func (m Member) encode() []byte {
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	_ = enc.EncodeArrayLen(metaFields)
	_ = enc.EncodeString(m.NodeID)
	_ = enc.EncodeString(m.Region)
	_ = enc.EncodeUint(m.Incarnation)
	_ = enc.EncodeUint(uint64(m.MinVersion))
	_ = enc.EncodeUint(uint64(m.MaxVersion))
	_ = enc.EncodeUint(m.Rules)
	_ = enc.EncodeUint(m.Identity)
	return buf.Bytes()
}

func decodeMember(b []byte) (Member, error) {
	r := borrowReader(b)
	defer r.giveBack()
	n := r.arrayLen()
	r.check(n >= firstMetaFields, "metadata of %d fields", n)
	m := Member{NodeID: string(r.bytes()), Region: string(r.bytes()), Incarnation: r.uint(),
		MinVersion: uint8(min(r.uint(), 255)), MaxVersion: uint8(min(r.uint(), 255))}
	if n >= metaFields {
		m.Rules, m.Identity = r.uint(), r.uint()
	}
	r.check(m.NodeID != "" && len(m.NodeID) <= MaxNodeID && m.Region != "" && len(m.Region) <= MaxRegion,
		"metadata of node %.32q in region %.32q", m.NodeID, m.Region)
	if r.err != nil {
		return Member{}, r.err
	}
	return m, nil
}
