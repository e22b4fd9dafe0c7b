package images

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/docker"
)

// workshop is a fake engine and a fake machine: it compiles nothing, and remembers what was in each build context.
type workshop struct {
	told     []docker.Command
	contexts map[string][]string // files by image
	pulled   []string
	ldd      string
	fail     error
}

func (w *workshop) Run(_ context.Context, c docker.Command) ([]byte, error) {
	w.told = append(w.told, c)
	switch c.Name {
	case "ldd":
		return []byte(w.ldd), w.fail
	case "go":
		out := c.Args[slices.Index(c.Args, "-o")+1]
		return nil, errors.Join(w.fail, os.WriteFile(out, []byte("a program"), 0o755))
	}
	return nil, w.fail
}

func (w *workshop) Build(_ context.Context, name, dockerfile, dir string, _ io.Writer) error {
	if _, err := os.Stat(dockerfile); err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			w.contexts[name] = append(w.contexts[name], strings.TrimPrefix(path, dir))
		}
		return err
	})
}

func (w *workshop) Pull(_ context.Context, name string, _ io.Writer) error {
	w.pulled = append(w.pulled, name)
	return nil
}

func (w *workshop) ImageSize(context.Context, string) (int64, error) { return 7, nil }

// newWorkshop has a machine where only the programs given are installed.
func newWorkshop(t *testing.T, installed ...string) (*workshop, *Builder, *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range append(installed, "libc.so", "copyright") {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	w := &workshop{contexts: make(map[string][]string), ldd: "\tlinux-vdso.so.1 (0x00007ff)\n\tlibc.so.6 => " + dir + "/libc.so (0x00007ff)\n"}
	var progress bytes.Buffer
	return w, &Builder{Run: w, Engine: w, Root: "../..", Progress: &progress, licence: dir + "/copyright"}, &progress
}

func TestBuild(t *testing.T) {
	w, b, _ := newWorkshop(t, "redis-server", "redis-cli")
	made, err := b.Build(t.Context())
	if err != nil || !slices.Equal(made, []Image{{Edgelimit, 7}, {Shop, 7}, {Redis, 7}}) {
		t.Fatalf("%v, %v", made, err)
	}
	dir := filepath.Dir(b.licence)
	want := map[string][]string{Edgelimit: {"/edgelimit"}, Shop: {"/shop"},
		Redis: {"/root" + dir + "/copyright", "/root" + dir + "/libc.so", "/root" + dir + "/redis-cli", "/root" + dir + "/redis-server"}}
	for name, files := range want {
		if !slices.Equal(w.contexts[name], files) {
			t.Errorf("%s is made of %q, want %q", name, w.contexts[name], files)
		}
	}
	for _, c := range w.told {
		if c.Name == "go" && (!slices.Contains(c.Env, "CGO_ENABLED=0") || c.Dir != "../..") {
			t.Errorf("not static: %s with %q in %s", c, c.Env, c.Dir)
		} else if c.Name == "apt-get" {
			t.Errorf("it installs what is there: %s", c)
		}
	}
}

func TestBuildPulls(t *testing.T) {
	w, b, _ := newWorkshop(t) // no Redis here
	b.Pull = true
	made, err := b.Build(t.Context())
	if err != nil || len(made) != 3 || made[2].Name != PublicRedis || !slices.Equal(w.pulled, []string{PublicRedis}) {
		t.Errorf("made %v, pulled %v, %v", made, w.pulled, err)
	}
}

func TestBuildInstallsRedisAndSaysSo(t *testing.T) {
	w, b, progress := newWorkshop(t, "apt-get", "redis-cli")
	if _, err := b.Build(t.Context()); !errors.Is(err, exec.ErrNotFound) { // apt-get is a fake
		t.Errorf("error %v", err)
	}
	i := slices.IndexFunc(w.told, func(c docker.Command) bool { return c.Name == "apt-get" })
	if i < 0 || !strings.HasSuffix(w.told[i].String(), "redis-server") || !strings.Contains(progress.String(), "installing it with apt-get") {
		t.Errorf("told %q, said %q", w.told, progress)
	}
}

func TestBuildFailures(t *testing.T) {
	_, b, _ := newWorkshop(t)
	if _, err := b.Build(t.Context()); err == nil || !strings.Contains(err.Error(), "--pull") || !strings.Contains(err.Error(), Redis) {
		t.Errorf("without apt-get: %v", err)
	}
	w, b, _ := newWorkshop(t, "redis-server", "redis-cli")
	w.fail = errors.New("does not compile")
	if made, err := b.Build(t.Context()); len(made) > 0 || !errors.Is(err, w.fail) || !strings.Contains(err.Error(), Edgelimit) {
		t.Errorf("made %v, %v", made, err)
	}
}

func TestLoaded(t *testing.T) {
	got, err := loaded("\tlinux-vdso.so.1 (0x00007ff3da872000)\n\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x0000)\n")
	if want := []string{"/lib/x86_64-linux-gnu/libm.so.6", "/lib64/ld-linux-x86-64.so.2"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := loaded("\tliblzf.so.1 => not found\n"); err == nil || !strings.Contains(err.Error(), "liblzf.so.1") {
		t.Errorf("error %v", err)
	}
	if got, err := loaded("\tnot a dynamic executable\n"); len(got) != 0 || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
