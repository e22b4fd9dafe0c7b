package files

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Read takes regular files alone, no more bytes than it may, and hangs at none.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	file, pipe, link := filepath.Join(dir, "file"), filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	testkit.Must(t, os.WriteFile(file, []byte("hello"), 0o600))
	testkit.Must(t, syscall.Mkfifo(pipe, 0o600))
	testkit.Must(t, os.Symlink("file", link))
	for _, name := range []string{file, link} {
		if b, err := Read(name, 4); string(b) != "hell" || err != nil {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	for name, says := range map[string]string{
		pipe: "a named pipe, not a regular file", dir: "a directory", "/dev/zero": "a device",
		file + "x": "no such file",
	} {
		if b, err := Read(name, 4); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %q, %v, want %q", name, b, err, says)
		}
	}
}

// A file of a Kubernetes secret is affected by changes of the directory with the links, and of that behind them.
func TestAround(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	testkit.Must(t, err)
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "secret", "..1"), 0o700))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "secret", "..1", "tls.crt"), nil, 0o600))
	testkit.Must(t, os.Symlink("..1", filepath.Join(dir, "secret", "..data")))
	testkit.Must(t, os.Symlink("..data/tls.crt", filepath.Join(dir, "secret", "tls.crt")))
	testkit.Must(t, os.Symlink("secret", filepath.Join(dir, "mount")))
	secret := filepath.Join(dir, "secret")
	for path, want := range map[string][]string{
		filepath.Join(dir, "secret", "tls.crt"):           {secret, filepath.Join(secret, "..1")},
		filepath.Join(dir, "mount", "tls.crt"):            {secret, dir, filepath.Join(secret, "..1")},
		filepath.Join(dir, "secret", "missing"):           {secret},
		filepath.Join(dir, "missing", "tls.crt"):          nil,
		filepath.Join(dir, "secret", "..data", "tls.crt"): {filepath.Join(secret, "..1"), secret},
	} {
		if got := Around(Around(nil, path), path); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
