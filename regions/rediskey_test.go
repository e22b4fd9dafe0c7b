package regions

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
)

// The example is that of DESIGN.md. A change of it is a new version of the layout: servers hold keys of the old one.
func TestRedisLayout(t *testing.T) {
	id := hashID{
		counters.NewMeter("edge/remote_address", counters.SlidingWindow, time.Hour), 0xbcd05f2a9e1774c6, 4986845,
	}
	const name = "el1:{2f3}:bcd05f2a9e1774c6:4986845:1:1h0m0s/10:edge/remote_address"
	if got := string(appendRedisKey(nil, &id)); got != name {
		t.Errorf("the key is %s, want %s", got, name)
	}
	if got, err := parseRedisKey(name); err != nil || got != id {
		t.Errorf("read back as %+v, %v", got, err)
	}
	if got := fieldOf(0x1234567890abcdef, 3, written); got != "EjRWeJCrze8.3" {
		t.Errorf("the field is %s", got)
	}
	if got := fieldOf(0x1234567890abcdef, 3, restored); got != "EjRWeJCrze8~3" {
		t.Errorf("the field of what was restored is %s", got)
	}
}

func TestRedisKeysAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, 60).Draw(t, "sub-windows")
		sub := rapid.Int64Range(int64(time.Millisecond), int64(counters.MaxWindow)/n).Draw(t, "sub")
		id := hashID{
			counters.Meter{
				Rule:      string(rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "rule")),
				Algorithm: counters.SlidingWindow, Window: time.Duration(n * sub), Sub: time.Duration(sub),
			},
			counters.Key(rapid.Uint64().Draw(t, "key")), rapid.Int64().Draw(t, "index"),
		}
		name := string(appendRedisKey(nil, &id))
		if got, err := parseRedisKey(name); err != nil || got != id {
			t.Fatalf("%q is read back as %+v, %v", name, got, err)
		}
		origin, birth := counters.Origin(rapid.Uint64().Draw(t, "origin")), rapid.Uint32().Draw(t, "birth")
		for _, kind := range []fieldKind{written, restored} {
			field := fieldOf(origin, birth, kind)
			if o, b, ok := parseField(field); !ok || o != origin || b != birth {
				t.Fatalf("%q is read back as %x, %d, %v", field, o, b, ok)
			}
		}
		// Never before the slot can count no more, and soon after.
		now := rapid.Int64Range(int64(counters.MaxWindow), math.MaxInt64/4).Draw(t, "now")
		id.index = rapid.Int64Range(id.meter.Index(now)-n, id.meter.Index(now)+1).Draw(t, "live index")
		ttl := time.Duration(timeToLive(&id, now)) * time.Millisecond
		counts := time.Duration((id.index+1)*int64(id.meter.Sub) + int64(id.meter.Window) - now)
		if ttl < counts+clockSkew || ttl > counts+10*time.Second {
			t.Fatalf("it is kept for %v, and counts for %v", ttl, counts)
		}
	})
}

func FuzzParseRedisKey(f *testing.F) {
	f.Add("el1:{2f3}:bcd05f2a9e1774c6:4986845:1:1h0m0s/10:edge/remote_address", "EjRWeJCrze8.3")
	f.Add("el1:{000}:0000000000000000:-1:1:1ms/1:a:b:{c}", "EjRWeJCrze8~4294967295")
	f.Add("el1:{000}:0000000000000000:0:1:1ms/0:r", "")
	f.Fuzz(func(t *testing.T, name, field string) {
		if id, err := parseRedisKey(name); err == nil {
			if id.meter.Validate() != nil || string(appendRedisKey(nil, &id)) != name {
				t.Errorf("%q is read as %+v", name, id)
			}
		}
		if origin, birth, ok := parseField(field); ok {
			if o, b, again := parseField(fieldOf(origin, birth, written)); !again || o != origin || b != birth {
				t.Errorf("%q is read as %x, %d", field, origin, birth)
			}
		}
	})
}
