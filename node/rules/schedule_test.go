package rules

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestSchedule(t *testing.T) {
	s := mustParse(t, `
domain: d
descriptors:
  - key: a
    rate_limit: {unit: minute, requests_per_unit: 100, mode: soft, soft_percent: 10}
    schedule:
      - {from: "22:00", to: "06:00", tz: Europe/Paris, requests_per_unit: 20}
      - {from: "05:00", to: "07:30", tz: Europe/Paris, requests_per_unit: 50}
  - key: spring
    rate_limit: {unit: minute, requests_per_unit: 100}
    schedule: [{from: "02:30", to: "03:30", tz: Europe/Paris, requests_per_unit: 20}]
  - key: autumn
    rate_limit: {unit: minute, requests_per_unit: 100}
    schedule: [{from: "02:15", to: "02:45", tz: Europe/Paris, requests_per_unit: 0}]
  - key: utc
    rate_limit: {unit: minute, requests_per_unit: 100}
    schedule: [{from: "12:00", to: "24:00", requests_per_unit: 20}]
`)
	for _, tt := range []struct {
		key, at string
		want    uint64
	}{
		// In winter Paris is an hour ahead of UTC. Across midnight:
		{"a", "2026-01-15T20:59:59.999999999Z", 110},
		{"a", "2026-01-15T21:00:00Z", 22},
		{"a", "2026-01-15T22:59:59Z", 22},
		{"a", "2026-01-15T23:00:00Z", 22},
		{"a", "2026-01-16T04:59:59.999999999Z", 22}, // the first that holds
		{"a", "2026-01-16T05:00:00Z", 55},
		{"a", "2026-01-16T06:30:00Z", 110},
		{"a", "2026-07-15T19:59:59Z", 110}, // in summer two hours
		{"a", "2026-07-15T20:00:00Z", 22},
		// On 2026-03-29 clocks go from 02:00 to 03:00, at 01:00 UTC: what is left of the hour is its second half.
		{"spring", "2026-03-29T00:59:59Z", 100},
		{"spring", "2026-03-29T01:00:00Z", 20},
		{"spring", "2026-03-29T01:29:59Z", 20},
		{"spring", "2026-03-29T01:30:00Z", 100},
		{"spring", "2026-03-28T01:30:00Z", 20},
		{"spring", "2026-03-30T00:30:00Z", 20},
		// On 2026-10-25 they go from 03:00 back to 02:00, at 01:00 UTC: the half hour comes twice.
		{"autumn", "2026-10-25T00:14:59Z", 100},
		{"autumn", "2026-10-25T00:15:00Z", 0},
		{"autumn", "2026-10-25T00:45:00Z", 100},
		{"autumn", "2026-10-25T01:14:59Z", 100},
		{"autumn", "2026-10-25T01:15:00Z", 0},
		{"autumn", "2026-10-25T01:45:00Z", 100},
		{"utc", "2026-01-15T11:59:59Z", 100},
		{"utc", "2026-01-15T23:59:59Z", 20},
		{"utc", "2026-01-16T00:00:00Z", 100},
	} {
		at, err := time.Parse(time.RFC3339Nano, tt.at)
		testkit.Must(t, err)
		m := matched(t, s, &Request{Domain: "d", Descriptors: [][]Entry{{{tt.key, "x"}}}}, testSecret)
		ch := m[0].Charge(&Request{}, at.UnixNano())
		if ch.Limit.Max() != tt.want || ch.Limit != m[0].Rule.LimitAt(at.UnixNano()) {
			t.Errorf("%s at %s: %d, want %d", tt.key, tt.at, ch.Limit.Max(), tt.want)
		}
		if ch.Limit.Meter() != m[0].Rule.Limit.Meter() {
			t.Errorf("%s at %s is counted by %+v", tt.key, tt.at, ch.Limit.Meter())
		}
		if !m[0].Rule.Scheduled() {
			t.Errorf("%s is not scheduled", tt.key)
		}
	}
}

func TestLimitAtDoesNotAllocate(t *testing.T) {
	s := mustParse(t, `
domain: d
descriptors:
  - key: a
    rate_limit: {unit: minute, requests_per_unit: 100}
    schedule: [{from: "22:00", to: "06:00", tz: Europe/Paris, requests_per_unit: 20}]
`)
	r := s.Rules()[0]
	now := time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC).UnixNano()
	if n := testing.AllocsPerRun(100, func() { r.LimitAt(now) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
