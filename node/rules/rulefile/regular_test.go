package rulefile

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// within runs f and fails the test if it takes longer than any reading of a small directory does.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s hangs", what)
	}
}

// What is named like a rule file and is no regular file is refused without waiting for it.
func TestLoadOnlyRegularFiles(t *testing.T) {
	for _, test := range []struct {
		what string
		make func(path string) error
		want string
	}{
		{"a FIFO", func(p string) error { return syscall.Mkfifo(p, 0o600) },
			"b.yaml: a named pipe, not a regular file"},
		{"a link to a FIFO", func(p string) error {
			if err := syscall.Mkfifo(p+".pipe", 0o600); err != nil {
				return err
			}
			return os.Symlink(p+".pipe", p)
		}, "b.yaml: a named pipe, not a regular file"},
		{"a device", func(p string) error { return os.Symlink("/dev/zero", p) },
			"b.yaml: a device, not a regular file"},
		{"a socket", func(p string) error {
			l, err := net.Listen("unix", p)
			if err == nil {
				l.(*net.UnixListener).SetUnlinkOnClose(false)
				err = l.Close()
			}
			return err
		}, "b.yaml: a socket, not a regular file"},
		{"a link to the directory", func(p string) error { return os.Symlink(".", p) },
			"b.yaml: a directory, not a regular file"},
		{"a link to itself", func(p string) error { return os.Symlink(p, p) }, "too many levels of symbolic links"},
	} {
		t.Run(test.what, func(t *testing.T) {
			dir := dirOf(t, map[string]string{"a.yaml": domain("a")})
			testkit.Must(t, test.make(filepath.Join(dir, "b.yaml")))
			within(t, "Load", func() {
				if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v, want %q", err, test.want)
				}
			})
		})
	}
}

// A FIFO that comes to a watched directory is reported; when it is gone, the files are read as before, and the end is
// not held up.
func TestWatchBesideAFIFO(t *testing.T) {
	dir := dirOf(t, map[string]string{"a.yaml": domain("a")})
	fifo := filepath.Join(dir, "x.yaml")
	w := Options{}.Watch([]string{dir}, time.Hour, slog.New(slog.DiscardHandler))
	if _, err := w.Load(); err != nil {
		t.Fatal(err)
	}
	outcomes := make(chan outcome, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx, func(set *rules.Set, err error) { outcomes <- outcome{err: err} })
	}()
	next := func() outcome {
		t.Helper()
		w.Reload()
		select {
		case o := <-outcomes:
			return o
		case <-time.After(20 * time.Second):
			t.Fatal("Reload hangs")
			return outcome{}
		}
	}
	testkit.Must(t, syscall.Mkfifo(fifo, 0o600))
	if o := next(); o.err == nil || !strings.Contains(o.err.Error(), "x.yaml") {
		t.Errorf("beside a FIFO: %v", o.err)
	}
	testkit.Must(t, os.Remove(fifo))
	for o := next(); o.err != nil; o = next() {
		if !strings.Contains(o.err.Error(), "x.yaml") {
			t.Fatal(o.err)
		}
	}
	within(t, "the end", func() {
		cancel()
		<-ended
	})
}

// A thousand reloads in a row are few: one at a time, and one every 100 ms. The log says how many were one.
func TestReloadsAreMerged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	put(t, file, domain("a"))
	testkit.VirtualTime(t, func(t *testing.T) {
		var log bytes.Buffer
		w := Options{}.Watch([]string{file}, time.Hour, slog.New(slog.NewTextHandler(&log, nil)))
		outcomes := follow(t, w, blindly(w))
		for range 1000 {
			w.Reload()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(outcomes); n < 5 || n > 11 {
			t.Errorf("a thousand reloads within a second are %d", n)
		}
		merged := 0
		for line := range strings.Lines(log.String()) {
			_, n, _ := strings.Cut(strings.TrimSpace(line), "merged=")
			count, _ := strconv.Atoi(n)
			merged += count
		}
		if lone := 1000 - merged; lone < 0 || lone > 2 {
			t.Errorf("the log speaks of %d of 1000 reloads:\n%s", merged, log.String())
		}
	})
}
