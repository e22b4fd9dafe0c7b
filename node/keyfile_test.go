package node

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// The fingerprint of a secret is the same on all nodes, and not the hash of an identity.
func TestIdentityFingerprint(t *testing.T) {
	a, b := Keys{Identity: rules.Secret{1}}, Keys{Identity: rules.Secret{2}}
	fingerprint := a.Fingerprint()
	if fingerprint == b.Fingerprint() || fingerprint == 0 {
		t.Error("secrets are not told apart")
	}
	if uint64(rules.KeyOf(a.Identity, []byte("edgelimit identity fingerprint 1"))) == fingerprint {
		t.Error("it is the key of an identity")
	}
}

func TestKeyFileRoundTrip(t *testing.T) {
	file := keyFile(t)
	keys, err := ReadKeyFile(file)
	testkit.Must(t, err)
	if len(keys.Gossip) != 1 || len(keys.Gossip[0]) != 32 || bytes.Equal(keys.Gossip[0], make([]byte, 32)) {
		t.Errorf("gossip keys %d", len(keys.Gossip))
	}
	if keys.Identity == [16]byte{} || keys.Identity == loopbackKeys().Identity {
		t.Error("the identity secret is not random")
	}
	text, err := os.ReadFile(file)
	testkit.Must(t, err)
	if again, err := parseKeys(text); err != nil || again.Identity != keys.Identity ||
		!bytes.Equal(again.Gossip[0], keys.Gossip[0]) {
		t.Errorf("read again it gives other keys, %v", err)
	}
	other, err := ReadKeyFile(keyFile(t))
	if err != nil || other.Identity == keys.Identity || bytes.Equal(other.Gossip[0], keys.Gossip[0]) {
		t.Errorf("two key files are alike, %v", err)
	}
}

// failing takes so many bytes and then no more.
type failing struct{ room int }

func (w *failing) Write(p []byte) (int, error) {
	if w.room -= len(p); w.room < 0 {
		return 0, errors.New("disk full")
	}
	return len(p), nil
}

func TestWriteKeyFileReportsTheWriter(t *testing.T) {
	if err := WriteKeyFile(&failing{10}); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("error %v", err)
	}
}

// key is n bytes in base64.
func key(n int, fill byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, n))
}

func TestKeyFileForms(t *testing.T) {
	g1, g2, id := key(32, 1), key(32, 2), key(16, 3)
	for _, test := range []struct {
		name, text string
		gossip     []byte // the first byte of each gossip key
		err        string
	}{
		{"plain", "gossip: " + g1 + "\nidentity: " + id + "\n", []byte{1}, ""},
		{"other order, no last end of line", "identity: " + id + "\ngossip: " + g1, []byte{1}, ""},
		{"spaces, comments, blank lines, CRLF", "\r\n  # c\r\n\tgossip:" + g1 + "  \r\n\r\nidentity:   " + id + "\r\n",
			[]byte{1}, ""},
		{"several gossip keys keep their order", "gossip: " + g2 + "\ngossip: " + g1 + "\nidentity: " + id,
			[]byte{2, 1}, ""},
		{"empty", "", nil, "at least one gossip key and one identity key"},
		{"only comments", "# gossip: " + g1, nil, "at least one gossip key"},
		{"no identity", "gossip: " + g1, nil, "one identity key"},
		{"no gossip", "identity: " + id, nil, "at least one gossip key"},
		{"two identities", "gossip: " + g1 + "\nidentity: " + id + "\n\nidentity: " + id, nil,
			"line 4: there is an identity key above already"},
		{"short gossip key", "gossip: " + key(31, 1) + "\nidentity: " + id, nil,
			"line 1: the gossip key has 31 bytes, want 32"},
		{"long gossip key", "# c\ngossip: " + key(33, 1) + "\nidentity: " + id, nil,
			"line 2: the gossip key has 33 bytes, want 32"},
		{"empty gossip key", "gossip:\nidentity: " + id, nil, "line 1: the gossip key has 0 bytes, want 32"},
		{"short identity key", "gossip: " + g1 + "\nidentity: " + key(15, 1), nil,
			"line 2: the identity key has 15 bytes, want 16"},
		{"not base64", "gossip: " + g1 + "!\nidentity: " + id, nil, "line 1: the gossip key is not base64"},
		{"comment behind a key", "gossip: " + g1 + " # old\nidentity: " + id, nil,
			"line 1: the gossip key is not base64"},
		{"hex", "gossip: " + g1 + "\nidentity: " + hex.EncodeToString(make([]byte, 16)), nil,
			"line 2: the identity key has 24 bytes"},
		{"unknown name", "gossip: " + g1 + "\nidentify: " + id, nil, `line 2: want "gossip: KEY" or "identity: KEY"`},
		{"no colon", "gossip " + g1, nil, "line 1: want"},
		{"a bare key", g1, nil, "line 1: want"},
		{"an endless line", "gossip: " + strings.Repeat(g1, 4000), nil, "too long"},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := write(t, "k", test.text)
			keys, err := ReadKeyFile(file)
			if test.err == "" {
				if err != nil || len(keys.Gossip) != len(test.gossip) || keys.Identity[15] != 3 {
					t.Fatalf("%d gossip keys, identity %x, %v", len(keys.Gossip), keys.Identity[:], err)
				}
				for i, k := range keys.Gossip {
					if len(k) != 32 || k[0] != test.gossip[i] {
						t.Errorf("gossip key %d begins with %d, want %d", i, k[0], test.gossip[i])
					}
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.err) || !strings.Contains(err.Error(), file) {
				t.Fatalf("error %v, want one that says %q and names the file", err, test.err)
			}
			if keys.Gossip != nil || keys.Identity != [16]byte{} {
				t.Error("keys come with the error")
			}
			mustNotQuote(t, err, test.text)
		})
	}
}

// mustNotQuote fails if eight characters in a row of any value in the file are in the error.
func mustNotQuote(t *testing.T, err error, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		_, value, found := strings.Cut(line, " ")
		if value = strings.TrimSpace(value); !found {
			value = strings.TrimSpace(line)
		}
		for i := 0; i+8 <= min(len(value), 100); i++ {
			if strings.Contains(err.Error(), value[i:i+8]) &&
				!strings.Contains("gossip: identity: identify: ", value[i:i+8]) {
				t.Fatalf("the error quotes %q of the file", value[i:i+8])
			}
		}
	}
}

func TestKeyFileMissing(t *testing.T) {
	if _, err := ReadKeyFile("no/such/key"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

// Nodes of different releases without a key file have to hash identities alike, and restarts must not start counters
// anew.
func TestLoopbackSecretIsFixed(t *testing.T) {
	keys := loopbackKeys()
	if got := hex.EncodeToString(keys.Identity[:]); got != "87409a865e53f97d356b8b46a1a9135f" {
		t.Errorf("the identity secret without a key file is %s", got)
	}
	if len(keys.Gossip) != 0 {
		t.Error("without a key file gossip is encrypted with a key that everybody can read")
	}
}

// A secret that is printed by accident does not show.
func TestKeysDoNotPrintTheIdentitySecret(t *testing.T) {
	if text := loopbackKeys().Identity.String(); strings.ContainsAny(text, "0123456789") {
		t.Errorf("printed: %s", text)
	}
}

// Files with passwords are held to what key files are: regular, of some size, one line; and others are not to read
// them.
func TestPasswordFiles(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	testkit.Must(t, syscall.Mkfifo(pipe, 0o600))
	for name, want := range map[string]string{
		pipe: "not a regular file", dir: "not a regular file", write(t, "none", ""): "empty",
		write(t, "end", "\r\n"):                                "empty",
		write(t, "two", "one\ntwo\n"):                          "more than one line",
		write(t, "long", strings.Repeat("x", maxSecretFile+1)): "too long",
		filepath.Join(dir, "missing"):                          "no such file",
	} {
		if password, err := ReadPassword(name); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("%s: %q, %v, want an error that says %q", name, password, err, want)
		}
		if name != pipe && name != dir {
			continue
		}
		if _, err := ReadKeyFile(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s as a key file: %v", name, err)
		}
	}
	for _, text := range []string{"open sesame", "open sesame\n", "open sesame\r\n"} {
		if got, err := ReadPassword(write(t, "p", text)); got != "open sesame" || err != nil {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

// Whoever leaves a secret open to others is told which, by every setting that names one.
func TestOthersCanReadSecrets(t *testing.T) {
	open, closed := write(t, "open", "open sesame"), write(t, "closed", "open sesame")
	testkit.Must(t, errors.Join(os.Chmod(open, 0o640), os.Chmod(closed, 0o600)))
	for setting, set := range map[string]func(*Config, string){
		"gossip.key_file":     func(c *Config, name string) { c.Gossip.KeyFile = name },
		"resp_password_file":  func(c *Config, name string) { c.RESPPasswordFile = name },
		"redis.password_file": func(c *Config, name string) { c.Redis.PasswordFile = name },
	} {
		for _, name := range []string{open, closed} {
			var book testkit.Log
			cfg := Config{Logger: book.Logger()}
			set(&cfg, name)
			cfg.warnOfReaders()
			if warned := book.HasLine("WARN", "chmod 600", setting, name, "-rw-r-----"); warned != (name == open) {
				t.Errorf("%s is %s: the log is %q", setting, name, book.String())
			}
		}
	}
}

// mode is the permissions of a file or folder.
func mode(t *testing.T, name string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(name)
	testkit.Must(t, err)
	return info.Mode().Perm()
}

// A key file is for its owner alone, and so are the folders that are made for it.
func TestCreateKeyFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "new", "er", "cluster.key")
	testkit.Must(t, CreateKeyFile(file, false))
	if _, err := ReadKeyFile(file); err != nil {
		t.Error(err)
	}
	if m := mode(t, file); m != 0o600 {
		t.Errorf("the file has mode %v", m)
	}
	for _, made := range []string{filepath.Join(dir, "new"), filepath.Join(dir, "new", "er")} {
		if m := mode(t, made); m != 0o700 {
			t.Errorf("%s has mode %v", made, m)
		}
	}
	if left, _ := os.ReadDir(filepath.Dir(file)); len(left) != 1 {
		t.Errorf("left are %v", left)
	}
}

// Keys that are there are never lost but by force; then they go at once as a whole, also where others could read the
// file.
func TestCreateKeyFileNeverOverwrites(t *testing.T) {
	file := keyFile(t)
	testkit.Must(t, os.Chmod(file, 0o644))
	before, _ := os.ReadFile(file)
	if err := CreateKeyFile(file, false); !errors.Is(err, fs.ErrExist) {
		t.Errorf("error %v", err)
	}
	if after, _ := os.ReadFile(file); !bytes.Equal(before, after) {
		t.Error("the file was changed")
	}
	testkit.Must(t, CreateKeyFile(file, true))
	if after, _ := os.ReadFile(file); bytes.Equal(before, after) || mode(t, file) != 0o600 {
		t.Errorf("by force: mode %v", mode(t, file))
	}
	if left, _ := os.ReadDir(filepath.Dir(file)); len(left) != 1 {
		t.Errorf("left are %v", left)
	}
}
