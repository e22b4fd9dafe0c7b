package gossip

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestMemberlistLog(t *testing.T) {
	book := &logbook{}
	l := bridgeLog(slog.New(book), "lan")
	for _, line := range []string{
		"[DEBUG] memberlist: not of interest",
		"[INFO] memberlist: nor this",
		"[WARN] memberlist: a warning",
		"[ERR] memberlist: an error: [x] y",
		"no level at all",
		"[",
		"[]",
		"",
	} {
		l.Print(line)
	}
	want := []string{"WARN memberlist detail=a warning", "WARN memberlist detail=an error: [x] y"}
	if !slices.Equal(book.lines, want) {
		t.Errorf("logged %q, want %q", book.lines, want)
	}
}

// Whoever can send packets can make memberlist log: only so many lines a second pass, and the others are counted.
func TestMemberlistLogIsBounded(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		book := &logbook{}
		l := bridgeLog(slog.New(book), "lan")
		for i := range 1000 {
			l.Printf("[ERR] memberlist: failed %d", i)
		}
		if len(book.lines) != logLines {
			t.Errorf("%d lines in a second, want %d", len(book.lines), logLines)
		}
		time.Sleep(time.Second)
		l.Print("[ERR] memberlist: later")
		if lines := book.about("left out"); len(lines) != 1 || len(book.about(fmt.Sprint(1000-logLines))) != 1 {
			t.Errorf("the lines that were left out are not counted: %q", book.lines[logLines:])
		}
		if len(book.about("later")) != 1 {
			t.Error("nothing is logged in the next second")
		}
	})
}
