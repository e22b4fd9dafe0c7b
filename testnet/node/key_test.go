package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Each node gets the file as it is, a new cluster a new one; what is no key file goes nowhere.
func TestInstallKey(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "cluster.key")
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for range 2 {
		if err := installKey(file, []string{"a", "b"}); err != nil {
			t.Fatal(err)
		}
	}
	first := read("cluster.key")
	if read("a.key") != first || read("b.key") != first {
		t.Error("the nodes have other keys")
	}
	if info, err := os.Stat(filepath.Join(dir, "a.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	for _, names := range [][]string{nil, {"../a"}, {""}, {"a/b"}} {
		if err := installKey(file, names); err == nil {
			t.Errorf("%q: no error", names)
		}
	}
	if err := os.WriteFile(file, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := installKey(file, []string{"a"}); err == nil || read("a.key") != first {
		t.Errorf("it copies what is no key file: %v", err)
	}
}
