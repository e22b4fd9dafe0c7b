package sim

import (
	"strings"
	"testing"
	"time"
)

func TestParseStoreFault(t *testing.T) {
	const second = time.Second
	for text, want := range map[string]StoreFault{
		"flush@20s":           {Kind: StoreFlush, From: 20 * second, Until: 20 * second},
		"restart/3@1m":        {Kind: StoreRestart, Region: 3, From: time.Minute, Until: time.Minute},
		"down@30s-40s":        {Kind: StoreDown, From: 30 * second, Until: 40 * second},
		"stale/2@47s-50s":     {Kind: StoreStale, Region: 2, From: 47 * second, Until: 50 * second},
		"mute@0s-250ms":       {Kind: StoreMute, Until: 250 * time.Millisecond},
		"rewind@1.5s-2s":      {Kind: StoreRewind, From: 1500 * time.Millisecond, Until: 2 * second},
		"slow@1s-2s":          {Kind: StoreSlow, From: second, Until: 2 * second},
		"twice/1@0s-1000000h": {Kind: StoreTwice, Region: 1, Until: 1000000 * time.Hour},
	} {
		got, err := ParseStoreFault(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
		if again, err := ParseStoreFault(got.String()); err != nil || again != want {
			t.Errorf("%q becomes %q", text, got)
		}
	}
	for text, want := range map[string]string{
		"flush": "no time", "odd@1s": `"odd" is none of [down`, "flush@1s-2s": "no end",
		"down@1s": "no end of the time", "flush/0@1s": "no number",
		"flush/*@1s": "no number", "flush/x@1s": "no number", "down@x-1s": "beginning", "down@1s-x": "end is",
		"@1s": "is none", "": "no time",
	} {
		if _, err := ParseStoreFault(text); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "want e.g.") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// Whatever is typed is refused with a reason, or is what it says it is.
func FuzzParseStoreFault(f *testing.F) {
	for _, seed := range []string{"flush@20s", "down@30s-40s", "stale/2@47s-50s", "rewind@1s--2s", "restart/99999@1h"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fault, err := ParseStoreFault(text)
		if err != nil {
			return
		}
		if again, err := ParseStoreFault(fault.String()); err != nil || again != fault {
			t.Errorf("%q is %+v, which is %q, which is %+v, %v", text, fault, fault, again, err)
		}
	})
}
