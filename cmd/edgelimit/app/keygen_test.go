package app

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestKeygenPrints(t *testing.T) {
	first, second := edgelimit(t, "keygen"), edgelimit(t, "keygen")
	first.says(t, 0, "gossip: ", "identity: ")
	if first.out == second.out {
		t.Error("two key files are alike")
	}
	file := filepath.Join(t.TempDir(), "printed")
	testkit.Must(t, os.WriteFile(file, []byte(first.out), 0o600))
	if _, err := node.ReadKeyFile(file); err != nil {
		t.Errorf("what it prints is no key file: %v", err)
	}
}

func TestKeygenWrites(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cluster.key")
	r := edgelimit(t, "keygen", "--out", file)
	if r.says(t, 0, "Wrote "+file, "copy it to every node", "edgelimit serve --key-file "+file); strings.Contains(r.out,
		"gossip:") {
		t.Errorf("with --out it prints %q", r.out)
	}
	keys, err := node.ReadKeyFile(file)
	if err != nil || len(keys.Gossip) != 1 {
		t.Errorf("it wrote no key file: %v", err)
	}
	info, err := os.Stat(file)
	testkit.Must(t, err)
	if mode := info.Mode(); mode != 0o600 {
		t.Errorf("the file's mode is %v, others can read it", mode)
	}
}

// The keys of a running cluster are not to be lost by a slip.
func TestKeygenNeverOverwrites(t *testing.T) {
	dir := t.TempDir()
	file, target, link := filepath.Join(dir, "cluster.key"), filepath.Join(dir, "elsewhere"), filepath.Join(dir, "link")
	edgelimit(t, "keygen", "--out", file).says(t, 0)
	before, err := os.ReadFile(file)
	testkit.Must(t, err)
	again := edgelimit(t, "keygen", "--out", file)
	again.says(t, 2, file, "exists already", "--force")
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file was changed, %v", err)
	}
	testkit.Must(t, os.Symlink(target, link))
	edgelimit(t, "keygen", "--out", link).says(t, 2, "exists already")
	if _, err := os.Stat(target); err == nil {
		t.Error("it wrote through a link")
	}
	edgelimit(t, "keygen", "--out", file+"/below").says(t, 2, "key file "+file+"/below", "not a directory")
	edgelimit(t, "keygen", "--out", filepath.Join(dir, "new", "folder", "cluster.key")).says(t, 0)
	edgelimit(t, "keygen", "--out", file, "--force").says(t, 0)
	if after, err := os.ReadFile(file); err != nil || bytes.Equal(before, after) {
		t.Errorf("--force did not replace the file, %v", err)
	}
	if strings.Contains(again.out+again.err, "gossip:") {
		t.Error("it printed keys when it could not write them")
	}
}

// A one-shot container makes the key file when the cluster is started, and again leaves it as it is.
func TestKeygenKeeps(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cluster.key")
	edgelimit(t, "keygen", "--keep", "--out", file).says(t, 0, "Wrote "+file)
	before, err := os.ReadFile(file)
	testkit.Must(t, err)
	edgelimit(t, "keygen", "--keep", "--out", file).says(t, 0, "Kept "+file)
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file was changed, %v", err)
	}
	testkit.Must(t, os.WriteFile(file, []byte("torn"), 0o600))
	edgelimit(t, "keygen", "--keep", "--out", file).says(t, 2, "key file "+file)
	edgelimit(t, "keygen", "--keep").says(t, 2, "--keep", "--out")
	edgelimit(t, "keygen", "--keep", "--force", "--out", file).says(t, 2, "--keep", "--force")
}
