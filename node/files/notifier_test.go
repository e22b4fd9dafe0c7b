package files

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// The log reports once that watching failed, and once that it works again.
func TestNotifierSaysThatItIsBlind(t *testing.T) {
	var log bytes.Buffer
	n := NewNotifier("rules", 7*time.Second, slog.New(slog.NewTextHandler(&log, nil)))
	dir := t.TempDir()
	n.Watch(Around(Around(nil, dir), filepath.Join(dir, "missing", "a.yaml")))
	if log.Len() > 0 {
		t.Errorf("the log is %s", log.String())
	}
	n.Close()
	n.Watch(Around(nil, dir))
	n.Watch(Around(nil, dir))
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN") ||
		!strings.Contains(got, "every=7s") {
		t.Errorf("when it is closed the log is %s", got)
	}
	n.note(nil)
	n.note(nil)
	if got := log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "watched again") {
		t.Errorf("when it can see again the log is %s", got)
	}
	n.note(errors.New("again"))
	if got := log.String(); strings.Count(got, "level=WARN") != 2 {
		t.Errorf("when it cannot any more the log is %s", got)
	}
}

// Directories that are not on the way to the files any more are not watched for ever.
func TestNotifierForgets(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	testkit.Must(t, err)
	for _, d := range []string{"1", "2"} {
		testkit.Must(t, os.Mkdir(filepath.Join(dir, d), 0o700))
		testkit.Must(t, os.WriteFile(filepath.Join(dir, d, "a.yaml"), nil, 0o600))
	}
	n := NewNotifier("rules", time.Hour, slog.New(slog.DiscardHandler))
	defer n.Close()
	for _, d := range []string{"1", "2", "1", "2"} {
		testkit.Must(t, os.Symlink(d, filepath.Join(dir, "next")))
		testkit.Must(t, os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "current")))
		n.Watch(Around(nil, filepath.Join(dir, "current", "a.yaml")))
		got := slices.Sorted(slices.Values(n.fs.WatchList()))
		if want := []string{dir, filepath.Join(dir, d)}; !slices.Equal(got, want) {
			t.Errorf("%q are watched, want %q", got, want)
		}
	}
}
