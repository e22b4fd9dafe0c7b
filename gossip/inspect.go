package gossip

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/memberlist"
	"github.com/vmihailenco/msgpack/v5"
)

// What memberlist puts on the wire, as of protocol version 2. A packet is, and so is the first message of a stream,
// but for the checksum:
//
//	[244, length, label] [version, nonce, ciphertext, tag | [12, checksum] type, message]     of a packet
//	[244, length, label] [10, length, version, nonce, ciphertext, tag | type, message]        of a stream
const (
	msgPushPull  = 6
	msgCompound  = 7
	msgUser      = 8
	msgCompress  = 9
	msgEncrypted = 10
	msgChecksum  = 12
	msgLabel     = 244

	cipherVersion  = 1 // AES-GCM without padding; memberlist reads version 0 as well, whose padding it does not check
	nonceSize      = 12
	cipherOverhead = 1 + nonceSize + 16 // bytes
)

const (
	// maxInboundPacket is how many bytes a packet of a peer has at most: what memberlist sends fits an Ethernet packet.
	maxInboundPacket = 2048
	// maxInboundMessage is how many bytes a stream has at most: a snapshot and a list of members.
	maxInboundMessage = maxSnapshot + 4<<20
	maxClaimedNodes   = 1 << 14
	nodeSize          = 128 // bytes that memberlist sets aside for a member that a peer announces
	minNodeBytes      = 32  // that a member takes on the wire, at least
)

var (
	errCompressed = errors.New("the message is compressed, which no node does")
	errNoMessage  = errors.New("this is no message of a peer")
)

// inspector looks at what peers send before memberlist does: memberlist decompresses what nobody has authenticated, a
// thousandfold, and allocates as much as a header announces. The zero value is for streams without label and key.
type inspector struct {
	label string
	ring  atomic.Pointer[[]cipher.AEAD] // nil: nothing is encrypted
	plain []byte                        // of the packet before, whose memory is used again
}

func newInspector(label string, keys [][]byte) (*inspector, error) {
	in := &inspector{label: label}
	if len(keys) == 0 {
		return in, nil
	}
	return in, in.setKeys(keys)
}

// setKeys replaces the keys by which senders are accepted, of which there is at least one.
func (in *inspector) setKeys(keys [][]byte) error {
	var ring []cipher.AEAD
	for _, k := range keys {
		block, err := aes.NewCipher(k)
		if err != nil {
			return err
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return err
		}
		ring = append(ring, aead)
	}
	in.ring.Store(&ring)
	return nil
}

// encrypts reports whether peers encrypt what they send.
func (in *inspector) encrypts() bool { return in.ring.Load() != nil }

// packet returns an error if a packet is not for memberlist, as when it is encrypted with none of the keys. One
// goroutine calls it at a time.
func (in *inspector) packet(b []byte) error {
	if len(b) > maxInboundPacket {
		return errNoMessage
	}
	b, _, err := memberlist.RemoveLabelHeaderFromPacket(b)
	switch {
	case err != nil || len(b) == 0:
		return errNoMessage
	case in.encrypts():
		if len(b) <= cipherOverhead {
			return errNoMessage
		}
		in.plain, err = in.decrypt(in.plain[:0], b, []byte(in.label))
		return err
	case b[0] == msgChecksum && len(b) > 5:
		b = b[5:]
	}
	switch b[0] {
	case msgCompound:
		return compound(b[1:])
	case msgCompress:
		return errCompressed
	}
	return nil
}

// compound looks at several messages in one packet: their number, the length of each in two bytes, and the messages.
func compound(b []byte) error {
	if len(b) == 0 || len(b) < 1+2*int(b[0]) {
		return errNoMessage
	}
	lengths, parts := b[1:1+2*int(b[0])], b[1+2*int(b[0]):]
	for ; len(lengths) > 0; lengths = lengths[2:] {
		n := int(binary.BigEndian.Uint16(lengths))
		if n > len(parts) {
			return nil // memberlist leaves out the rest
		}
		switch {
		case n > 0 && parts[0] == msgCompound:
			return errNoMessage
		case n > 0 && parts[0] == msgCompress:
			return errCompressed
		}
		parts = parts[n:]
	}
	return nil
}

// prefix reads the label of a stream, where one is expected, and the type of its message.
func (in *inspector) prefix(r io.Reader, labelled bool) (kind byte, err error) {
	var b [256]byte
	if _, err := io.ReadFull(r, b[:1]); err != nil || b[0] != msgLabel || !labelled {
		if err == nil && labelled && in.label != "" {
			err = fmt.Errorf("%w: it has no label", errNoMessage)
		}
		return b[0], err
	}
	if _, err := io.ReadFull(r, b[:1]); err != nil {
		return 0, err
	}
	label := b[:b[0]]
	if _, err := io.ReadFull(r, label); err != nil {
		return 0, err
	}
	if string(label) != in.label {
		return 0, fmt.Errorf("%w: its label is %.64q", errNoMessage, label)
	}
	_, err = io.ReadFull(r, b[:1])
	return b[0], err
}

// plaintext looks at the begin of a message that is not encrypted, and returns how much memory memberlist will allocate
// for what it announces.
func (in *inspector) plaintext(kind byte, r io.Reader) (claimed int, err error) {
	switch kind {
	case msgCompress:
		return 0, errCompressed
	case msgPushPull, msgUser:
	default:
		return 0, nil
	}
	dec := msgpack.NewDecoder(bufio.NewReaderSize(r, 64))
	n, err := dec.DecodeMapLen()
	if err != nil || n < 0 || n > 3 {
		return 0, errNoMessage
	}
	for range n {
		key, err := dec.DecodeString()
		if err != nil {
			return 0, errNoMessage
		}
		var v int64
		largest, size := int64(maxInboundMessage), 1
		switch key {
		case "Nodes":
			largest, size = maxClaimedNodes, nodeSize
			fallthrough
		case "UserStateLen", "UserMsgLen":
			v, err = dec.DecodeInt64()
		case "Join":
			_, err = dec.DecodeBool()
		default:
			err = errNoMessage
		}
		if err != nil || v < 0 || v > largest {
			return 0, errNoMessage
		}
		claimed += int(v) * size
	}
	return claimed, nil
}

// encrypted reads an encrypted message up to its end, the bytes through grow, and returns an error unless it was
// encrypted with one of the keys and holds what it announces. The type of the message has been read.
func (in *inspector) encrypted(r io.Reader, grow func(n int) error) error {
	var head [5]byte
	head[0] = msgEncrypted
	if _, err := io.ReadFull(r, head[1:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size <= cipherOverhead || size > maxInboundMessage {
		return fmt.Errorf("%w: it has %d bytes", errNoMessage, size)
	}
	var message bytes.Buffer
	for left := int(size); left > 0; {
		n := min(left, 64<<10)
		if err := grow(n); err != nil {
			return err
		}
		if _, err := io.CopyN(&message, r, int64(n)); err != nil {
			return err
		}
		left -= n
	}
	plain, err := in.decrypt(nil, message.Bytes(), append(head[:], in.label...))
	if err != nil {
		return err
	}
	claimed, err := in.plaintext(plain[0], bytes.NewReader(plain[1:]))
	if err == nil && claimed > len(plain)*(nodeSize/minNodeBytes) {
		err = fmt.Errorf("%w: it announces more than it holds", errNoMessage)
	}
	return err
}

// errOtherKey means that a message is encrypted with none of the keys.
var errOtherKey = errors.New("it is encrypted with none of the node's keys: the sender is a stranger, or its key " +
	"file or this node's is out of date (edgelimit keys status)")

// decrypt appends to dst what a message with associated data says, at least one byte.
func (in *inspector) decrypt(dst, b, associated []byte) ([]byte, error) {
	if b[0] != cipherVersion {
		return dst, fmt.Errorf("%w: its encryption has version %d", errNoMessage, b[0])
	}
	for _, key := range *in.ring.Load() {
		if plain, err := key.Open(dst, b[1:1+nonceSize], b[1+nonceSize:], associated); err == nil {
			return plain, nil
		}
	}
	return dst, errOtherKey
}
