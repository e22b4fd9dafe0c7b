package rulefile

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edgelimit/node/files"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestMain(m *testing.M) { testkit.MainWithoutLeaks(m) }

// outcome is what a Watcher made of its files: the names of the domains, or an error.
type outcome struct {
	domains string
	err     error
}

// follow has a Watcher look at files until the test ends, after it has loaded them once. What it makes of them is in
// the channel.
func follow(t *testing.T, w *Watcher, run func(context.Context, func(*rules.Set, error))) <-chan outcome {
	t.Helper()
	if _, err := w.Load(); err != nil {
		t.Fatal(err)
	}
	outcomes := make(chan outcome, 100)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		run(ctx, func(set *rules.Set, err error) {
			o := outcome{err: err}
			if set != nil {
				o.domains = strings.Join(set.Domains(), " ")
			}
			outcomes <- o
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return outcomes
}

// put writes a complete file.
func put(t *testing.T, path, text string) {
	t.Helper()
	testkit.Must(t, os.WriteFile(path, []byte(text), 0o600))
}

// link makes a link at path to target, over one that is there, as Kubernetes and deployment tools do.
func link(t *testing.T, target, path string) {
	t.Helper()
	testkit.Must(t, os.Symlink(target, path+".new"))
	testkit.Must(t, os.Rename(path+".new", path))
}

// change is something done to files, and what the Watcher is to make of it: domains, or an error that names what is
// wrong.
type change struct {
	what string
	do   func(t *testing.T, dir string)
	want string
	err  string
}

// In dir are a.yaml, which is watched, and after prepare whatever else a story needs.
var stories = []struct {
	name    string
	paths   []string // beneath dir
	prepare func(t *testing.T, dir string)
	steps   []change
}{
	{"a file", []string{"a.yaml"}, func(*testing.T, string) {}, []change{
		{
			what: "written in place", do: func(t *testing.T, dir string) { put(t, dir+"/a.yaml", domain("b")) },
			want: "b",
		},
		{what: "another one renamed over it", do: func(t *testing.T, dir string) {
			put(t, dir+"/.a.swp", domain("c"))
			testkit.Must(t, os.Rename(dir+"/.a.swp", dir+"/a.yaml"))
		}, want: "c"},
		{
			what: "invalid",
			do:   func(t *testing.T, dir string) { put(t, dir+"/a.yaml", domain("d")+"descriptor: 1\n") },
			err:  "a.yaml:3:1: unknown key",
		},
		{
			what: "invalid otherwise", do: func(t *testing.T, dir string) { put(t, dir+"/a.yaml", "") },
			err: "a.yaml:1:1: there is no domain",
		},
		{what: "mended", do: func(t *testing.T, dir string) { put(t, dir+"/a.yaml", domain("d")) }, want: "d"},
		{what: "gone",
			do: func(t *testing.T, dir string) { testkit.Must(t, os.Remove(dir+"/a.yaml")) }, err: "no such file"},
		{what: "there as before", do: func(t *testing.T, dir string) { put(t, dir+"/a.yaml", domain("d")) }, want: "d"},
		{what: "moved away, as some editors do, and written", do: func(t *testing.T, dir string) {
			testkit.Must(t, os.Rename(dir+"/a.yaml", dir+"/a.yaml~"))
			put(t, dir+"/a.yaml", domain("e"))
		}, want: "e"},
	}},
	{"a directory", []string{"rules"}, func(t *testing.T, dir string) {
		testkit.Must(t, os.Mkdir(dir+"/rules", 0o700))
		put(t, dir+"/rules/a.yaml", domain("a"))
	}, []change{
		{
			what: "a file comes", do: func(t *testing.T, dir string) { put(t, dir+"/rules/b.yaml", domain("b")) },
			want: "a b",
		},
		{
			what: "a file changes", do: func(t *testing.T, dir string) { put(t, dir+"/rules/a.yaml", domain("c")) },
			want: "b c",
		},
		{what: "a file is renamed", do: func(t *testing.T, dir string) {
			testkit.Must(t, os.Rename(dir+"/rules/a.yaml", dir+"/rules/z.json"))
			put(t, dir+"/rules/z.json", `[{"rule_id": "flat", "limit": 5, "window_seconds": 60}]`)
		}, want: "b"},
		{
			what: "two files contradict each other",
			do:   func(t *testing.T, dir string) { put(t, dir+"/rules/c.yaml", domain("b")) }, err: "c.yaml:1:9",
		},
		{what: "files go", do: func(t *testing.T, dir string) {
			testkit.Must(t, os.Remove(dir+"/rules/b.yaml"))
			testkit.Must(t, os.Remove(dir+"/rules/z.json"))
		}, want: "b"},
		{
			what: "it is empty", do: func(t *testing.T, dir string) { testkit.Must(t, os.Remove(dir+"/rules/c.yaml")) },
			err: "holds no",
		},
		{
			what: "it is gone", do: func(t *testing.T, dir string) { testkit.Must(t, os.RemoveAll(dir+"/rules")) },
			err: "no such file",
		},
		{what: "another one takes its place", do: func(t *testing.T, dir string) {
			testkit.Must(t, os.Mkdir(dir+"/new", 0o700))
			put(t, dir+"/new/a.yaml", domain("d"))
			testkit.Must(t, os.Rename(dir+"/new", dir+"/rules"))
		}, want: "d"},
		{
			what: "a file in that one changes",
			do:   func(t *testing.T, dir string) { put(t, dir+"/rules/a.yaml", domain("e")) }, want: "e",
		},
	}},
	{"a ConfigMap", []string{"mount/a.yaml"}, func(t *testing.T, dir string) {
		testkit.Must(t, os.MkdirAll(dir+"/mount/..1", 0o700))
		put(t, dir+"/mount/..1/a.yaml", domain("a"))
		link(t, "..1", dir+"/mount/..data")
		link(t, "..data/a.yaml", dir+"/mount/a.yaml")
	}, []change{
		{what: "the link to its data is turned", do: func(t *testing.T, dir string) {
			testkit.Must(t, os.Mkdir(dir+"/mount/..2", 0o700))
			put(t, dir+"/mount/..2/a.yaml", domain("b"))
			link(t, "..2", dir+"/mount/..data")
			testkit.Must(t, os.RemoveAll(dir+"/mount/..1"))
		}, want: "b"},
		{what: "and turned again", do: func(t *testing.T, dir string) {
			testkit.Must(t, os.Mkdir(dir+"/mount/..3", 0o700))
			put(t, dir+"/mount/..3/a.yaml", domain("c"))
			link(t, "..3", dir+"/mount/..data")
			testkit.Must(t, os.RemoveAll(dir+"/mount/..2"))
		}, want: "c"},
	}},
	{"a link to a release", []string{"current/rules/a.yaml"}, func(t *testing.T, dir string) {
		testkit.Must(t, os.MkdirAll(dir+"/releases/1/rules", 0o700))
		put(t, dir+"/releases/1/rules/a.yaml", domain("a"))
		link(t, "releases/1", dir+"/current")
	}, []change{
		{what: "the link is turned", do: func(t *testing.T, dir string) {
			testkit.Must(t, os.MkdirAll(dir+"/releases/2/rules", 0o700))
			put(t, dir+"/releases/2/rules/a.yaml", domain("b"))
			link(t, "releases/2", dir+"/current")
		}, want: "b"},
		{
			what: "the file behind it changes",
			do:   func(t *testing.T, dir string) { put(t, dir+"/releases/2/rules/a.yaml", domain("c")) }, want: "c",
		},
		{what: "the link is turned again", do: func(t *testing.T, dir string) {
			testkit.Must(t, os.MkdirAll(dir+"/releases/3/rules", 0o700))
			put(t, dir+"/releases/3/rules/a.yaml", domain("d"))
			link(t, "releases/3", dir+"/current")
		}, want: "d"},
	}},
}

// tell runs a story: wait returns the next outcome.
func tell(t *testing.T, dir string, steps []change, next func() outcome, exact bool) {
	t.Helper()
	for _, s := range steps {
		s.do(t, dir)
		for {
			o := next()
			if o.domains == s.want && (s.err == "") == (o.err == nil) &&
				(o.err == nil || strings.Contains(o.err.Error(), s.err)) {
				break
			}
			if exact {
				t.Fatalf("%s: domains %q and error %v, want %q, %q", s.what, o.domains, o.err, s.want, s.err)
			}
		}
	}
}

// Without events of the file system, polling finds all changes, and reports each once.
func TestWatchByPolling(t *testing.T) {
	for _, story := range stories {
		t.Run(story.name, func(t *testing.T) {
			dir := dirOf(t, map[string]string{"a.yaml": domain("a")})
			story.prepare(t, dir)
			testkit.VirtualTime(t, func(t *testing.T) {
				w := Options{}.Watch(beneath(dir, story.paths), 10*time.Second, slog.New(slog.DiscardHandler))
				outcomes := follow(t, w, blindly(w))
				synctest.Wait() // for its first look, which is not to see half of a file
				tell(t, dir, story.steps, func() outcome {
					time.Sleep(25 * time.Second)
					synctest.Wait()
					if len(outcomes) != 1 {
						t.Fatalf("%d outcomes of one change", len(outcomes))
					}
					return <-outcomes
				}, true)
				time.Sleep(time.Hour)
				synctest.Wait()
				if len(outcomes) != 0 {
					t.Errorf("when nothing changes: %+v", <-outcomes)
				}
			})
		})
	}
}

// The same with events of the file system. Other outcomes may come before the final one.
func TestWatchByEvents(t *testing.T) {
	for _, story := range stories {
		t.Run(story.name, func(t *testing.T) {
			t.Parallel()
			dir := dirOf(t, map[string]string{"a.yaml": domain("a")})
			story.prepare(t, dir)
			w := Options{}.Watch(beneath(dir, story.paths), time.Hour, slog.New(slog.DiscardHandler))
			outcomes := follow(t, w, w.Run)
			w.Reload() // answered by a look, from which on all is watched
			<-outcomes
			tell(t, dir, story.steps, func() outcome {
				select {
				case o := <-outcomes:
					return o
				case <-time.After(20 * time.Second):
					t.Fatal("no outcome of a change")
					return outcome{}
				}
			}, false)
		})
	}
}

func beneath(dir string, names []string) []string {
	var paths []string
	for _, name := range names {
		paths = append(paths, filepath.Join(dir, name))
	}
	return paths
}

// blindly is Run where the file system cannot be asked.
func blindly(w *Watcher) func(context.Context, func(*rules.Set, error)) {
	return func(ctx context.Context, loaded func(*rules.Set, error)) {
		w.follow(ctx, files.Silent(), loaded)
	}
}

// Many changes in a row are one: the files are read when nothing has happened for a moment, or when that goes on for
// too long.
func TestWatchSettles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	put(t, file, domain("a"))
	testkit.VirtualTime(t, func(t *testing.T) {
		w := Options{}.Watch([]string{file}, time.Hour, slog.New(slog.DiscardHandler))
		n := files.Silent()
		outcomes := follow(t, w, func(ctx context.Context, loaded func(*rules.Set, error)) { w.follow(ctx, n, loaded) })
		time.Sleep(time.Second)
		change := func(times int) (loads int) {
			for i := range times {
				put(t, file, domain(strings.Repeat("b", i+1)))
				n.Hint()
				time.Sleep(settling / 2)
			}
			time.Sleep(settling)
			synctest.Wait()
			for last := (outcome{}); ; loads++ {
				if len(outcomes) == 0 {
					if last.domains != strings.Repeat("b", times) {
						t.Errorf("in the end the domain is %q", last.domains)
					}
					return loads
				}
				last = <-outcomes
			}
		}
		if loads := change(10); loads != 1 {
			t.Errorf("10 changes at once are loaded %d times", loads)
		}
		if loads, most := change(100), int(100*settling/2/settlesFor)+1; loads < 2 || loads > most {
			t.Errorf("changes that go on for 5 s are loaded %d times, want 2 to %d", loads, most)
		}
		n.Hint()
		time.Sleep(time.Minute)
		if len(outcomes) != 0 {
			t.Errorf("a hint without a change: %+v", <-outcomes)
		}
	})
}

// What changes between Load and Run is not lost, and Reload reads what is the same.
func TestWatchReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	put(t, file, domain("a"))
	testkit.VirtualTime(t, func(t *testing.T) {
		w := Options{}.Watch([]string{file}, time.Hour, slog.New(slog.DiscardHandler))
		outcomes := follow(t, w, func(ctx context.Context, loaded func(*rules.Set, error)) {
			put(t, file, domain("b"))
			blindly(w)(ctx, loaded)
		})
		synctest.Wait()
		if len(outcomes) != 1 || (<-outcomes).domains != "b" {
			t.Fatal("what changed before Run was lost")
		}
		for range 3 {
			time.Sleep(reloadEvery)
			w.Reload()
			synctest.Wait()
			if len(outcomes) != 1 || (<-outcomes).domains != "b" {
				t.Fatal("Reload did not read the files, or more than once")
			}
		}
		put(t, file, "")
		time.Sleep(reloadEvery)
		w.Reload()
		synctest.Wait()
		if o := <-outcomes; o.err == nil {
			t.Errorf("Reload of an invalid file: %+v", o)
		}
	})
}

func TestWatchReloadBeforeRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	put(t, file, domain("a"))
	testkit.VirtualTime(t, func(t *testing.T) {
		w := Options{}.Watch([]string{file}, time.Hour, slog.New(slog.DiscardHandler))
		w.Reload()
		w.Reload() // does not block
		outcomes := follow(t, w, blindly(w))
		time.Sleep(time.Second)
		synctest.Wait()
		if len(outcomes) != 1 {
			t.Errorf("%d loads, want 1", len(outcomes))
		}
	})
}

func TestProblems(t *testing.T) {
	_, err := Parse("f", []byte("domain: d\na: 1\nb: 2\n"))
	if got := Problems(err); len(got) != 2 || !strings.HasPrefix(got[1].Error(), "f:3:1: ") {
		t.Errorf("%q", got)
	}
	if got := Problems(fs.ErrNotExist); len(got) != 1 || got[0] != fs.ErrNotExist {
		t.Errorf("of an error by itself: %q", got)
	}
}
