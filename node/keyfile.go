package node

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/node/listen"
	"github.com/edgelimit/edgelimit/node/rules"
)

// Keys are a cluster's secrets; every node has the same.
type Keys struct {
	// Gossip keys, 32 bytes each, gossip.MaxKeys at most: the first encrypts, all decrypt, so that a key can be
	// replaced without a stop.
	Gossip [][]byte
	// Identity keys the hash of identities. It is apart from the gossip keys so that replacing those resets no counter.
	Identity rules.Secret
}

const gossipKeySize = 32

// loopbackKeys are those of nodes without a key file: no encryption, and a public secret. Gossip refuses to leave
// loopback with them.
func loopbackKeys() Keys {
	h := sha256.Sum256([]byte("edgelimit without a key file"))
	return Keys{Identity: rules.Secret(h[:len(rules.Secret{})])}
}

// ReadKeys returns the keys of a node with a key file, or without one if the name is empty.
func ReadKeys(name string) (Keys, error) {
	if name == "" {
		return loopbackKeys(), nil
	}
	return ReadKeyFile(name)
}

// ReadKeyFile reads a key file. Errors never quote its content.
func ReadKeyFile(name string) (Keys, error) {
	b, err := readSecret(name)
	if err != nil {
		return Keys{}, fmt.Errorf("key file: %w", listen.ExplainFile(name, err))
	}
	keys, err := parseKeys(b)
	if err != nil {
		return Keys{}, fmt.Errorf("key file %s: %w", name, err)
	}
	return keys, nil
}

func parseKeys(b []byte) (Keys, error) {
	var keys Keys
	sizes := map[string]int{"gossip": gossipKeySize, "identity": len(keys.Identity)}
	hasIdentity := false
	for i, line := range strings.Split(string(b), "\n") {
		n, line := i+1, strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(value))
		switch {
		case sizes[name] == 0:
			return Keys{}, fmt.Errorf(
				"line %d: want \"gossip: KEY\" or \"identity: KEY\"; edgelimit keygen shows the form", n)
		case err != nil:
			return Keys{}, fmt.Errorf("line %d: the %s key is not base64", n, name)
		case len(key) != sizes[name]:
			return Keys{}, fmt.Errorf("line %d: the %s key has %d bytes, want %d", n, name, len(key), sizes[name])
		case name == "gossip":
			if slices.ContainsFunc(keys.Gossip, func(k []byte) bool { return hmac.Equal(k, key) }) {
				return Keys{}, fmt.Errorf("line %d: this gossip key stands above already", n)
			}
			keys.Gossip = append(keys.Gossip, key)
		case hasIdentity:
			return Keys{}, fmt.Errorf("line %d: there is an identity key above already", n)
		default:
			keys.Identity, hasIdentity = rules.Secret(key), true
		}
	}
	if len(keys.Gossip) > gossip.MaxKeys {
		return Keys{}, fmt.Errorf("%d gossip keys, want at most %d: remove old ones (edgelimit keys remove)",
			len(keys.Gossip), gossip.MaxKeys)
	}
	if len(keys.Gossip) == 0 || !hasIdentity {
		return Keys{}, errors.New("want at least one gossip key and one identity key; edgelimit keygen makes both")
	}
	return keys, nil
}

// Fingerprint returns a number that nodes with the same identity secret share. It reveals nothing of the secret nor of
// any key hashed with it, and is never 0.
func (k *Keys) Fingerprint() uint64 {
	h := hmac.New(sha256.New, k.Identity[:])
	h.Write([]byte("edgelimit identity fingerprint 1"))
	return max(1, binary.LittleEndian.Uint64(h.Sum(nil)))
}

// WriteKeyFile writes a key file with new random keys.
func WriteKeyFile(w io.Writer) error {
	var gossip [gossipKeySize]byte
	var identity rules.Secret
	_, _ = rand.Read(gossip[:]) // never fails
	_, _ = rand.Read(identity[:])
	_, err := fmt.Fprintf(w,
		`# edgelimit key file: the secrets of one cluster, the same on every node. Keep it from others (mode 0600).
#
# gossip: encrypts what nodes send each other. The first encrypts, all decrypt: edgelimit keys replaces them while the
# nodes run.
gossip: %s
# identity: hashes who is counted. A new one starts all counters anew.
identity: %s
`, base64.StdEncoding.EncodeToString(gossip[:]), base64.StdEncoding.EncodeToString(identity[:]))
	return err
}

// CreateKeyFile makes a key file with new random keys that only its owner can read (mode 0600), and the folders it is
// to lie in (0700). A file that is there already is an error, fs.ErrExist, unless force says to replace it: a cluster
// that uses it would fall apart.
func CreateKeyFile(name string, force bool) error {
	if err := createKeyFile(name, force); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w: %s may not write there", err, listen.CurrentUser())
		}
		return fmt.Errorf("key file %s: %w", name, err)
	}
	return nil
}

func createKeyFile(name string, force bool) error {
	dir := filepath.Dir(name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	open := func() (*os.File, error) { return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) }
	if force { // it takes the place of the other as a whole, whoever could read that
		open = func() (*os.File, error) { return os.CreateTemp(dir, ".edgelimit-key-*") } // mode 0600
	}
	f, err := open()
	if err != nil {
		return err
	}
	err = errors.Join(WriteKeyFile(f), f.Close())
	if err == nil && force {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// maxSecretFile is how large a file with a secret may be, in bytes: more is another file, given by mistake.
const maxSecretFile = 64 << 10

// readSecret reads a file that holds a secret. Errors never quote its content. What is no regular file might never end.
func readSecret(name string) ([]byte, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", name)
	case info.Size() > maxSecretFile:
		return nil, fmt.Errorf("%s is too long: %d bytes, want at most %d", name, info.Size(), maxSecretFile)
	}
	return os.ReadFile(name)
}

// ReadPassword reads a file, of 64 KiB at most, that holds a password, and nothing else but an end of the line.
func ReadPassword(name string) (string, error) {
	b, err := readSecret(name)
	if err != nil {
		return "", err
	}
	password := strings.TrimRight(string(b), "\r\n")
	switch {
	case password == "":
		return "", fmt.Errorf("%s is empty: write the password into it", name)
	case strings.ContainsAny(password, "\r\n\x00"):
		return "", fmt.Errorf("%s has more than one line: write the password alone into it", name)
	}
	return password, nil
}

// warnOfReaders logs which files with secrets others than their owners can read.
func (c *Config) warnOfReaders() {
	files := []struct{ setting, name string }{
		{"gossip.key_file", c.Gossip.KeyFile}, {"resp_password_file", c.RESPPasswordFile},
		{"admin_tokens_file", c.AdminTokensFile},
		{"redis.password_file", c.Redis.PasswordFile}, {"rules_redis.password_file", c.RulesRedis.PasswordFile},
	}
	for region, r := range c.Strict.Redis {
		files = append(files, struct{ setting, name string }{strictSetting(region) + ".password_file", r.PasswordFile})
	}
	for _, f := range files {
		if info, err := os.Stat(f.name); err == nil && info.Mode().Perm()&0o077 != 0 {
			c.Logger.Warn("others than its owner can read a file with a secret; chmod 600 it",
				"setting", f.setting, "file", f.name, "mode", info.Mode().Perm().String())
		}
	}
}
