package node

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/edgelimit/edgelimit/node/rules"
)

// Keys are a cluster's secrets; every node has the same.
type Keys struct {
	// Gossip keys, 32 bytes each: the first encrypts, all decrypt, so that a key can be replaced without a stop.
	Gossip [][]byte
	// Identity keys the hash of identities. It is apart from the gossip keys so that replacing those resets no counter.
	Identity rules.Secret
}

const gossipKeySize = 32

// loopbackKeys are what nodes without a key file use: no encryption, and a secret that everybody can read here. Gossip refuses to
// leave loopback with them.
func loopbackKeys() Keys {
	h := sha256.Sum256([]byte("edgelimit without a key file"))
	return Keys{Identity: rules.Secret(h[:len(rules.Secret{})])}
}

// WriteKeyFile writes a key file with new random keys.
func WriteKeyFile(w io.Writer) error {
	var gossip [gossipKeySize]byte
	var identity rules.Secret
	_, _ = rand.Read(gossip[:]) // never fails
	_, _ = rand.Read(identity[:])
	_, err := fmt.Fprintf(w, `# edgelimit key file: the secrets of one cluster, the same on every node. Keep it from others (mode 0600).
#
# gossip: encrypts what nodes tell each other. To replace it without a stop: add the new line below the old one on every node and
# restart them in turn, then move it above the old one, then remove the old one.
gossip: %s
# identity: hashes who is counted. A new one starts all counters anew.
identity: %s
`, base64.StdEncoding.EncodeToString(gossip[:]), base64.StdEncoding.EncodeToString(identity[:]))
	return err
}

// ReadKeyFile reads a key file. Errors never quote its content.
func ReadKeyFile(name string) (Keys, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return Keys{}, fmt.Errorf("key file: %w", err)
	}
	keys, err := parseKeys(b)
	if err != nil {
		return Keys{}, fmt.Errorf("key file %s: %w", name, err)
	}
	return keys, nil
}

func parseKeys(b []byte) (Keys, error) {
	var keys Keys
	hasIdentity := false
	lines := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(value))
		switch {
		case name != "gossip" && name != "identity":
			return Keys{}, fmt.Errorf("line %d: want \"gossip: KEY\" or \"identity: KEY\"; edgelimit keygen shows the form", n)
		case err != nil:
			return Keys{}, fmt.Errorf("line %d: the %s key is not base64", n, name)
		case name == "gossip" && len(key) != gossipKeySize:
			return Keys{}, fmt.Errorf("line %d: the gossip key has %d bytes, want %d", n, len(key), gossipKeySize)
		case name == "gossip":
			keys.Gossip = append(keys.Gossip, key)
		case len(key) != len(keys.Identity):
			return Keys{}, fmt.Errorf("line %d: the identity key has %d bytes, want %d", n, len(key), len(keys.Identity))
		case hasIdentity:
			return Keys{}, fmt.Errorf("line %d: there is an identity key above already", n)
		default:
			keys.Identity, hasIdentity = rules.Secret(key), true
		}
	}
	if err := lines.Err(); err != nil {
		return Keys{}, err
	}
	if len(keys.Gossip) == 0 || !hasIdentity {
		return Keys{}, errors.New("want at least one gossip key and one identity key; edgelimit keygen makes both")
	}
	return keys, nil
}
