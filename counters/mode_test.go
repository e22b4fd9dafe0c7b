package counters_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
)

// said writes decisions as one letter each: allowed, denied, waived.
func said(ds []counters.Decision) string {
	var text []byte
	for _, d := range ds {
		switch {
		case d.Waived && d.Allowed:
			text = append(text, 'w')
		case d.Allowed:
			text = append(text, 'a')
		default:
			text = append(text, 'd')
		}
	}
	return string(text)
}

// room is a layer of a limit of 1 that is full, or not.
type room struct {
	mode counters.Mode
	full bool
	each bool
}

func TestModes(t *testing.T) {
	const e, s, q = counters.Enforce, counters.Shadow, counters.Quota
	for _, tt := range []struct {
		layers  []room
		want    string
		charged string // which layers are charged: x or -
	}{
		{[]room{{e, false, false}, {s, true, false}}, "aw", "x-"},
		{[]room{{s, false, false}, {s, true, false}}, "aw", "x-"},
		{[]room{{e, true, false}, {s, true, false}, {s, false, false}}, "dwa", "---"},
		{[]room{{q, true, false}}, "d", "-"},
		{[]room{{q, true, false}, {q, false, false}}, "wa", "-x"},
		{[]room{{q, true, false}, {q, true, false}, {e, false, false}}, "dda", "---"},
		{[]room{{q, true, false}, {q, false, false}, {e, true, false}}, "wad", "---"},
		{[]room{{q, true, false}, {s, false, false}}, "da", "--"},
		{[]room{{q, true, false}, {q, true, true}, {e, false, true}}, "dda", "--x"},
		{[]room{{e, true, true}, {e, false, true}, {e, false, false}, {s, false, true}}, "daaa", "-x-x"},
		{[]room{{counters.Soft, true, false}, {counters.Soft, false, false}}, "da", "--"},
	} {
		t.Run(fmt.Sprint(tt.layers), func(t *testing.T) {
			table := least(1)
			var charges []counters.Charge
			for i, l := range tt.layers {
				limit := limitNamed(t, fmt.Sprint("r", i), 1)
				charges = append(charges, counters.Charge{Limit: limit, Key: 1, Cost: 1, Mode: l.mode, Each: l.each})
				if l.full {
					table.Take(limit, 1, 1, start)
				}
			}
			peek := slices.Clone(charges)
			for i := range peek {
				peek[i].Cost = 0
			}
			if got := said(table.TakeAll(peek, start, nil)); got != tt.want {
				t.Errorf("a peek: %s, want %s", got, tt.want)
			}
			ds := table.TakeAll(charges, start, nil)
			if got := said(ds); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			charged := ""
			for i, l := range tt.layers {
				view := table.View(charges[i].Limit, 1, start)
				if l.full {
					view--
				}
				charged += string("-x"[view])
				if ds[i].Mode != l.mode || ds[i].Allowed && ds[i].RetryAfter != 0 ||
					!ds[i].Allowed && ds[i].RetryAfter == 0 {
					t.Errorf("layer %d: %+v", i, ds[i])
				}
			}
			if charged != tt.charged {
				t.Errorf("charged are %s, want %s", charged, tt.charged)
			}
		})
	}
}

func TestShadowIsNotHeldBack(t *testing.T) {
	l := newLimit(t, counters.NewMeter("r", counters.LeakyQueue, 10e9), 10)
	table := least(1)
	for range 3 {
		d := table.TakeAll([]counters.Charge{{Limit: l, Key: 1, Cost: 1, Mode: counters.Shadow}}, start, nil)[0]
		if !d.Allowed || d.Delay != 0 {
			t.Errorf("a request that nothing is enforced for: %+v", d)
		}
	}
	if d := table.Take(l, 1, 1, start); d.Delay == 0 {
		t.Errorf("after three of them: %+v, want a delay", d)
	}
}

// Where layers meet in one cell, one that is not charged takes no room from those after it.
func TestWaivedLayersTakeNoRoom(t *testing.T) {
	three, four := limitNamed(t, "r", 3), limitNamed(t, "r", 4)
	table := least(1)
	table.Take(three, 1, 1, start)
	ds := table.TakeAll(
		[]counters.Charge{{Limit: three, Key: 1, Cost: 3, Mode: counters.Shadow}, {Limit: four, Key: 1, Cost: 3}},
		start, nil)
	if got := said(ds); got != "wa" || table.View(four, 1, start) != 4 {
		t.Errorf("%s with a view of %d, want wa and 4", got, table.View(four, 1, start))
	}
}

// Whatever the modes, the request passes if and only if the layers that may deny do not, and what is charged is what
// was admitted.
func TestModesAgainstTheRule(t *testing.T) {
	layer := rapid.Custom(func(t *rapid.T) room {
		return room{
			counters.Mode(rapid.IntRange(0, 3).Draw(t, "mode")), rapid.Bool().Draw(t, "full"),
			rapid.Bool().Draw(t, "each"),
		}
	})
	limits := make([]*counters.Limit, 6)
	for i := range limits {
		limits[i] = limitNamed(t, fmt.Sprint("r", i), 1)
	}
	rapid.Check(t, func(t *rapid.T) {
		layers := rapid.SliceOfN(layer, 1, len(limits)).Draw(t, "layers")
		table := least(1)
		var charges []counters.Charge
		enforced, quotas, full := false, 0, 0
		for i, l := range layers {
			charges = append(charges, counters.Charge{Limit: limits[i], Key: 1, Cost: 1, Mode: l.mode, Each: l.each})
			if l.full {
				table.Take(limits[i], 1, 1, start)
			}
			enforced = enforced || l.full && l.mode <= counters.Soft
			if l.mode == counters.Quota {
				quotas++
				if l.full {
					full++
				}
			}
		}
		passes := !enforced && (quotas == 0 || full < quotas)
		allowed := true
		for i, d := range table.TakeAll(charges, start, nil) {
			allowed = allowed && d.Allowed
			if d.Waived && !layers[i].full {
				t.Fatalf("layer %d has room and is waived", i)
			}
			charged := table.View(limits[i], 1, start) == 1 && !layers[i].full
			if want := !layers[i].full && (passes || layers[i].each); charged != want {
				t.Fatalf("layer %d of %v is charged: %v, want %v", i, layers, charged, want)
			}
		}
		if allowed != passes {
			t.Fatalf("%v passes: %v, want %v", layers, allowed, passes)
		}
	})
}

func TestModeNames(t *testing.T) {
	for m, want := range map[counters.Mode]string{
		counters.Enforce: "enforce", counters.Soft: "soft", counters.Shadow: "shadow", counters.Quota: "quota",
		9: "mode(9)",
	} {
		if got := m.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestWhatDeniesNothingDoesNotGovern(t *testing.T) {
	full := counters.Decision{Allowed: true, Waived: true, Rule: "watched", Mode: counters.Shadow, Limit: 1}
	fresh := counters.Decision{Allowed: true, Rule: "enforced", Limit: 10, Remaining: 9}
	if counters.Governing([]counters.Decision{full, fresh}) != 1 ||
		counters.Governing([]counters.Decision{fresh, full}) != 0 {
		t.Error("what is not enforced speaks for a request that another limit is enforced for")
	}
	quota := counters.Decision{Allowed: true, Waived: true, Rule: "full", Mode: counters.Quota, Limit: 1}
	room := counters.Decision{Allowed: true, Rule: "room", Mode: counters.Quota, Limit: 2, Remaining: 1}
	if counters.Governing([]counters.Decision{quota, room}) != 1 {
		t.Error("a full quota speaks for a request that another one has room for")
	}
	soft := counters.Decision{Allowed: true, Waived: true, Rule: "soft", Mode: counters.Soft, Limit: 1}
	if counters.Governing([]counters.Decision{fresh, soft}) != 1 {
		t.Error("a soft limit that is used up does not speak")
	}
	if counters.Governing([]counters.Decision{full}) != 0 {
		t.Error("nothing speaks for a request with one layer")
	}
}
