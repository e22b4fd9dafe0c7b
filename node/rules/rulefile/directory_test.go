package rulefile

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// dirOf returns a new directory with files by name; those whose text is "-> target" are links.
func dirOf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		testkit.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			testkit.Must(t, os.Symlink(target, path))
			continue
		}
		testkit.Must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

// oneRule is a file of a domain with one rule.
func oneRule(domain string) string {
	return "domain: " + domain + "\ndescriptors:\n- {key: a, rate_limit: {unit: second, requests_per_unit: 1}}\n"
}

// A directory as envoyproxy/ratelimit was seen to read it in its /rlconfig, with and without RUNTIME_IGNOREDOTFILES.
func TestRatelimitDirectory(t *testing.T) {
	files := map[string]string{
		"a.yaml": oneRule("plain"), "noext": oneRule("noext"), "x.txt": oneRule("txt"), "sub/s.yaml": oneRule("sub"),
		"sub/deep/er/d.conf": oneRule("deep"), ".dot.yaml": oneRule("dot"), ".hid/h.yaml": oneRule("hid"),
		"linkdir": "-> sub", ".#lock": "-> nowhere", "loop": "-> .", "self": "-> self",
		"..2026/cm.yaml": oneRule("cm"), "..data": "-> ..2026",
		"linkfile": "-> " + filepath.Join(dirOf(t, map[string]string{"r.yaml": oneRule("real")}), "r.yaml"),
	}
	dir := dirOf(t, files)
	for _, test := range []struct {
		ignore bool
		want   []string
		warned []string
	}{
		{false, []string{"cm", "deep", "dot", "hid", "noext", "plain", "real", "sub", "txt"},
			[]string{".#lock", "..data", "linkdir", "loop", "self"}},
		{true, []string{"deep", "noext", "plain", "real", "sub", "txt"}, []string{"linkdir", "loop", "self"}},
	} {
		s, err := Options{Compatibility: Ratelimit, IgnoreDotFiles: test.ignore}.Load(dir)
		testkit.Must(t, err)
		if got := s.Domains(); !slices.Equal(got, test.want) {
			t.Errorf("ignoring dotfiles %t: domains %q, want %q", test.ignore, got, test.want)
		}
		var warned []string
		for _, w := range s.Warnings() {
			e, ok := w.(*Error)
			if !ok || !strings.Contains(e.Reason, "not read") {
				t.Fatalf("%v", w)
			}
			warned = append(warned, filepath.Base(e.File))
		}
		if slices.Sort(warned); !slices.Equal(warned, slices.Sorted(slices.Values(test.warned))) {
			t.Errorf("ignoring dotfiles %t: warnings of %q, want %q", test.ignore, warned, test.warned)
		}
	}
}

// A mounted ConfigMap is read twice unless its versions are ignored, as there.
func TestRatelimitConfigMap(t *testing.T) {
	dir := dirOf(t, map[string]string{
		"..2026/x.yaml": oneRule("x"), "..data": "-> ..2026", "x.yaml": "-> ..data/x.yaml",
	})
	if _, err := compatible.Load(dir); err == nil || !strings.Contains(err.Error(), "domain \"x\" was already given") {
		t.Errorf("%v", err)
	}
	s, err := Options{Compatibility: Ratelimit, IgnoreDotFiles: true}.Load(dir)
	if err != nil || len(s.Rules()) != 1 || len(s.Warnings()) != 0 {
		t.Errorf("%v", err)
	}
}

// What cannot be read in a directory does not fail the load; a file that is named does.
func TestRatelimitUnreadable(t *testing.T) {
	dir := dirOf(t, map[string]string{"a": oneRule("a"), "a.b": oneRule("last"), "sub/x": oneRule("x")})
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "c"), 0o700))
	testkit.Must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	within(t, "a FIFO", func() {
		s, err := compatible.Load(dir)
		if err != nil || len(s.Rules()) != 3 || len(s.Warnings()) != 1 {
			t.Errorf("%v: %v", err, s)
		}
	})
	if _, err := compatible.Load(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := compatible.Load(filepath.Join(dir, "pipe")); err == nil {
		t.Error("a FIFO that is named is taken")
	}
	s, err := compatible.Load(filepath.Join(dir, "c"))
	if err != nil || len(s.Rules()) != 0 || len(s.Warnings()) != 1 {
		t.Errorf("an empty directory: %v", err)
	}
}

// A file that is called like one of a subdirectory, with a dot for the slash, goes over it.
func TestRatelimitNamesakes(t *testing.T) {
	dir := dirOf(t, map[string]string{"a/b": oneRule("first"), "a.b": oneRule("last")})
	s, err := compatible.Load(dir)
	if err != nil || !slices.Equal(s.Domains(), []string{"last"}) || len(s.Warnings()) != 1 {
		t.Fatalf("%v: %q", err, s.Domains())
	}
}

func TestRatelimitDirectoryBounds(t *testing.T) {
	deep := strings.Repeat("d/", maxNested)
	_, err := compatible.Load(dirOf(t, map[string]string{deep + "x": oneRule("x")}))
	if err == nil || !strings.Contains(err.Error(), "more than 32 deep") {
		t.Errorf("a deep directory: %v", err)
	}
	if _, err := compatible.Load(dirOf(t, map[string]string{deep[2:] + "x": oneRule("x")})); err != nil {
		t.Error(err)
	}
	dir := dirOf(t, map[string]string{"a": "", "b": "", "sub/c": ""}) // with sub, and the directory itself, 5
	for before, full := range map[int]bool{maxFiles - 5: false, maxFiles - 4: true} {
		l := listing{files: make([]string, before)}
		err := compatible.walk(dir, &l, 1)
		if (err != nil) != full || full && !strings.Contains(err.Error(), "more than 10000 files") {
			t.Errorf("after %d files: %v", before, err)
		}
	}
}

// A change in a subdirectory, and a subdirectory that comes later, are noticed.
func TestRatelimitWatch(t *testing.T) {
	dir := dirOf(t, map[string]string{"sub/a": oneRule("first")})
	w := compatible.Watch([]string{dir}, time.Hour, slog.New(slog.DiscardHandler))
	if _, err := w.Load(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sets := make(chan *rules.Set, 10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx, func(s *rules.Set, err error) {
			if err == nil {
				sets <- s
			}
		})
	}()
	await := func(domain string) {
		t.Helper()
		for {
			select {
			case s := <-sets:
				if s.HasDomain(domain) {
					return
				}
			case <-ctx.Done():
				t.Fatalf("domain %s was not loaded", domain)
			}
		}
	}
	// Until the watcher runs it may miss a change: the first read after its start finds it.
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "sub/a"), []byte(oneRule("second")), 0o600))
	await("second")
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "new/er"), 0o700))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "new/er/b"), []byte(oneRule("third")), 0o600))
	await("third")
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "new/er/b"), []byte(oneRule("fourth")), 0o600))
	await("fourth")
	cancel()
	<-done
}
