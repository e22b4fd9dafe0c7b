package node

import (
	"math"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/counters"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "1": 1, "4096": 4096, "1KiB": 1 << 10, "64MiB": 64 << 20, "1GiB": 1 << 30, "268435456": 256 << 20,
		"9223372036854775807": math.MaxInt64, "8589934591GiB": math.MaxInt64 &^ (1<<30 - 1),
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "MiB", "64MB", "64M", "64 MiB", "64mib", "1.5GiB", "-1", "+1", "1e9", "0x10", "1_000", "9223372036854775808", "8589934592GiB",
		strings.Repeat("9", 1000)} {
		if got, err := ParseSize(text); err == nil || !strings.Contains(err.Error(), "64MiB") || len(err.Error()) > 200 {
			t.Errorf("%q is %d, %v; want an error that shows how to write it", text, got, err)
		}
	}
}

func TestSizeString(t *testing.T) {
	for size, want := range map[Size]string{
		0: "0", 1: "1", 1023: "1023", 1 << 10: "1KiB", 1<<20 + 1<<10: "1025KiB", counters.DefaultMemory: "256MiB", 3 << 30: "3GiB", -1 << 20: "-1MiB",
	} {
		if got := size.String(); got != want {
			t.Errorf("%d bytes are %s, want %s", int(size), got, want)
		}
		if back, err := ParseSize(want); size >= 0 && (err != nil || back != size) {
			t.Errorf("%s is read as %d, %v", want, back, err)
		}
	}
}
