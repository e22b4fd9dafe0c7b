package rules

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

const overrideRules = `
domain: test
descriptors:
  - {key: a, rate_limit: {name: window, window: 1m, requests_per_unit: 100}}
  - {key: b, rate_limit: {name: bucket, algorithm: token_bucket, window: 1m, requests_per_unit: 100}}
  - {key: c, rate_limit: {name: soft, window: 1m, requests_per_unit: 100, mode: soft, soft_percent: 10}}
  - {key: d, rate_limit: {name: banning, window: 1m, requests_per_unit: 100, ban: 1h}}
  - {key: e, rate_limit: {name: queue, algorithm: leaky_bucket, queue: true, window: 1m, requests_per_unit: 100}}
  - {key: f, rate_limit: {name: unlimited, unlimited: true}}
  - {key: remote_address, deny: [192.0.2.66], allow: [192.0.2.77],
     rate_limit: {name: listed, window: 1m, requests_per_unit: 100}}
  - {key: g, rate_limit: {name: regional, scope: region, window: 1m, requests_per_unit: 100}}
  - {key: h, rate_limit: {name: log, algorithm: sliding_log, window: 1m, requests_per_unit: 100}}
  - {key: i, rate_limit: {name: scheduled, window: 1m, requests_per_unit: 100},
     schedule: [{from: "00:00", to: "12:00", requests_per_unit: 10}]}
`

// overridden returns the rules with an override of identity x of the named rule.
func withOverride(t *testing.T, rule string, o Override) (*Set, []error) {
	t.Helper()
	s := mustParse(t, overrideRules)
	r, _ := s.Lookup(rule, "")
	met := matched(t, s, &Request{Rule: rule, Identity: identityFor(rule)}, Secret{1})
	o.Rule, o.Key = r.FullName, met[0].Key
	return s, s.Override([]Override{o})
}

func identityFor(rule string) string {
	if rule == "listed" {
		return "192.0.2.1"
	}
	return "x"
}

// chargeOf returns what an identity is charged at a time, and the match.
func chargeOf(t *testing.T, s *Set, rule, identity string, at time.Time) (counters.Charge, Match) {
	t.Helper()
	req := Request{Rule: rule, Identity: identity}
	met := matched(t, s, &req, Secret{1})
	return met[0].Charge(&req, at.UnixNano()), met[0]
}

var noon = time.Date(2026, 1, 1, 11, 0, 0, 0, time.UTC)

// An override changes the limit of its key until its end, and no other key's; the meter, and so the counts, stay where
// the window does.
func TestOverride(t *testing.T) {
	for _, tt := range []struct {
		rule   string
		max    uint64
		window time.Duration
		want   uint64 // the limit, margin included
		keeps  bool
	}{
		{"window", 500, time.Minute, 500, true},
		{"window", 0, time.Minute, 0, true},
		{"window", 500, time.Hour, 500, false},
		{"bucket", 500, time.Minute, 500, false},
		{"soft", 500, time.Minute, 550, true},
		{"banning", 500, time.Minute, 500, true},
		{"listed", 500, time.Minute, 500, true},
		{"regional", 500, time.Minute, 500, true},
		{"regional", 500, time.Hour, 500, false},
		{"log", 500, time.Minute, 500, true},
		{"scheduled", 500, time.Minute, 500, true},
	} {
		ends := noon.Add(time.Hour)
		s, refused := withOverride(t, tt.rule, Override{Max: tt.max, Window: tt.window, Until: ends})
		if len(refused) > 0 {
			t.Errorf("%+v: %v", tt, refused)
			continue
		}
		s = s.In("here")
		before, _ := chargeOf(t, mustParse(t, overrideRules).In("here"), tt.rule, identityFor(tt.rule), noon)
		other, _ := chargeOf(t, s, tt.rule, "192.0.2.9", noon)
		if other.Limit.Max() != before.Limit.Max() || other.Limit.Meter() != before.Limit.Meter() {
			t.Errorf("%+v: another key has %d, want %d", tt, other.Limit.Max(), before.Limit.Max())
		}
		got, _ := chargeOf(t, s, tt.rule, identityFor(tt.rule), ends.Add(-1))
		if got.Limit.Max() != tt.want || (got.Limit.Meter() == before.Limit.Meter()) != tt.keeps ||
			got.Limit.Scope() != before.Limit.Scope() || got.Limit.Meter().Window != tt.window {
			t.Errorf("%+v: %d on %v", tt, got.Limit.Max(), got.Limit.Meter())
		}
		if tt.keeps && (other.Limit.Largest() != got.Limit.Largest() || got.Limit.Largest() < tt.want) {
			t.Errorf("%+v: the largest limits of a meter are %d and %d", tt, other.Limit.Largest(), got.Limit.Largest())
		}
		if (got.Limit.BanMeter() == nil) != (before.Limit.BanMeter() == nil) {
			t.Errorf("%+v: the ban is lost", tt)
		}
		if after, _ := chargeOf(t, s, tt.rule, identityFor(tt.rule), ends); after.Limit != nil &&
			after.Limit.Meter() != before.Limit.Meter() || tt.rule != "scheduled" &&
			after.Limit.Max() != before.Limit.Max() {
			t.Errorf("%+v: it goes on after its end: %d", tt, after.Limit.Max())
		}
	}
}

// A margin is as large a part of an override as of its rule, and the decision shows the override's number.
func TestOverrideShowsItsLimit(t *testing.T) {
	s, _ := withOverride(t, "soft", Override{Max: 500, Window: time.Minute})
	ch, m := chargeOf(t, s, "soft", "x", noon)
	d := counters.Decision{Allowed: true, Limit: ch.Limit.Max(), Remaining: 20}
	if m.Annotate(&Request{}, &ch, &d); d.Limit != 500 || d.Remaining != 0 || !d.Waived || d.Rule != "soft" {
		t.Errorf("it shows %+v", d)
	}
}

// Address lists go over an override.
func TestOverrideOfListedClients(t *testing.T) {
	s := mustParse(t, overrideRules)
	var all []Override
	for _, identity := range []string{"192.0.2.66", "192.0.2.77"} {
		_, m := chargeOf(t, s, "listed", identity, noon)
		all = append(all, Override{Rule: "test/remote_address", Key: m.Key, Max: 7, Window: time.Minute})
	}
	if refused := s.Override(all); len(refused) > 0 {
		t.Fatal(refused)
	}
	if ch, _ := chargeOf(t, s, "listed", "192.0.2.66", noon); ch.Limit == nil || ch.Limit.Max() != 0 {
		t.Errorf("who is on the deny list has %v", ch.Limit)
	}
	if ch, _ := chargeOf(t, s, "listed", "192.0.2.77", noon); ch.Limit != nil {
		t.Errorf("who is on the allow list has %v", ch.Limit)
	}
}

// What cannot be overridden is refused, with a reason, and leaves the rule as it is.
func TestOverrideRefuses(t *testing.T) {
	for _, tt := range []struct {
		rule   string
		max    uint64
		window time.Duration
		says   string
	}{
		{"queue", 500, time.Minute, "wait in a queue"},
		{"unlimited", 500, time.Minute, "unlimited"},
		{"banning", 500, time.Hour, "give a limit per 1 min"},
		{"window", counters.MaxLimit + 1, time.Minute, "above"},
		{"window", 1, 0, "outside"},
		{"window", 1, -1, "outside"},
		{"window", 1, 1000 * time.Hour * 24, "outside"},
		{"log", counters.MaxLog + 1, time.Minute, "sliding log"},
	} {
		s, refused := withOverride(t, tt.rule, Override{Max: tt.max, Window: tt.window})
		if len(refused) != 1 || !strings.Contains(refused[0].Error(), tt.says) {
			t.Errorf("%+v: %v", tt, refused)
		}
		if s.Fingerprint() != mustParse(t, overrideRules).Fingerprint() {
			t.Errorf("%+v: the rule has changed", tt)
		}
	}
	if refused := mustParse(t, overrideRules).Override([]Override{{Rule: "gone", Window: 1}}); len(refused) != 1 {
		t.Errorf("an override of a rule that is gone: %v", refused)
	}
}

// Hostile overrides take no more meters than allowed; those with the same limit share one.
func TestOverrideMetersAreBounded(t *testing.T) {
	s := mustParse(t, overrideRules)
	var all []Override
	for i := range 3 * maxOwnMeters {
		all = append(all, Override{Rule: "test/b", Key: counters.Key(i), Max: uint64(i / 2), Window: time.Minute})
	}
	refused := s.Override(all)
	if r := s.Rule("test/b"); len(r.OwnMeters()) != maxOwnMeters || r.Overrides() != 2*maxOwnMeters ||
		len(refused) != maxOwnMeters {
		t.Errorf("%d meters, %d overrides, %d refused", len(r.OwnMeters()), r.Overrides(), len(refused))
	}
}

// Nodes with the same overrides have the same fingerprint, whatever their order; Diff shows the rule that changed.
func TestOverridesAreCompared(t *testing.T) {
	sets := make([]*Set, 4)
	a, b := Override{Rule: "test/a", Key: 1, Max: 1, Window: time.Minute}, Override{Rule: "test/a", Key: 2, Max: 2,
		Window: time.Minute}
	for i, all := range [][]Override{{a, b}, {b, a}, {a}, nil} {
		sets[i] = mustParse(t, overrideRules)
		if refused := sets[i].Override(all); len(refused) > 0 {
			t.Fatal(refused)
		}
	}
	if sets[0].Fingerprint() != sets[1].Fingerprint() || sets[0].Fingerprint() == sets[2].Fingerprint() ||
		sets[2].Fingerprint() == sets[3].Fingerprint() {
		t.Error("fingerprints do not tell overrides apart")
	}
	changes := Diff(sets[3], sets[0])
	if len(changes) != 1 || changes[0].Rule != "window" || changes[0].Counts != "kept" ||
		!strings.Contains(changes[0].New, "2 with a limit of their own") {
		t.Errorf("%+v", changes)
	}
	layers, err := sets[0].Explain(&Request{Rule: "window", Identity: "x"}, Secret{}, noon)
	if err != nil || layers[0].Limit != nil {
		t.Errorf("a key without an override is explained by %v, %v", layers[0].Limit, err)
	}
	with, _ := withOverride(t, "window", Override{Max: 500, Window: time.Minute, Until: noon.Add(1)})
	layers, err = with.Explain(&Request{Rule: "window", Identity: "x"}, Secret{1}, noon)
	if err != nil || fmt.Sprint(layers[0].Limit.Max(), layers[0].Until.Equal(noon.Add(1))) != "500 true" {
		t.Errorf("%+v, %v", layers, err)
	}
}

func TestOverridesDoNotAllocate(t *testing.T) {
	s, _ := withOverride(t, "window", Override{Max: 500, Window: time.Minute})
	req, now := &Request{Rule: "window", Identity: "x"}, noon.UnixNano()
	var room [4]Match
	var ch counters.Charge
	if n := testing.AllocsPerRun(100, func() {
		met, err := s.Match(req, Secret{1}, room[:0])
		testkit.Must(t, err)
		ch = met[0].Charge(req, now)
	}); n != 0 || ch.Limit.Max() != 500 {
		t.Errorf("%v allocations, a limit of %d", n, ch.Limit.Max())
	}
}

func TestOverrideOfStrictRules(t *testing.T) {
	s := mustParse(t, overrideRules)
	r, _ := s.Lookup("window", "")
	tooMany := errors.New("more than the store can count")
	r.CheckStrict = func(l *counters.Limit) error {
		if l.Max() > 1000 {
			return tooMany
		}
		return nil
	}
	if _, err := r.CheckOverride(1000, time.Minute); err != nil {
		t.Errorf("an override that the store can count: %v", err)
	}
	if _, err := r.CheckOverride(1001, time.Minute); !errors.Is(err, tooMany) {
		t.Errorf("an override that the store cannot count: %v, want that it is refused", err)
	}
	refused := s.Override([]Override{{Rule: r.FullName, Key: 1, Max: 1001, Window: time.Minute}})
	if len(refused) != 1 || !errors.Is(refused[0], tooMany) || r.Overrides() != 0 {
		t.Errorf("refused %v, %d overrides in force, want one refused and none in force", refused, r.Overrides())
	}
}
