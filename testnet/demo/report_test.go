package demo

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/judge"
)

// fine is a report with figures that held, of a run with a partition.
func fine() Report {
	return Report{
		Requests:         judge.Requests{Offered: 2000, Admitted: 1020, Denied: 980, OracleAdmitted: 1000},
		OverAdmissionPct: 9, ExcessPct: 3, BoundPct: 8, PartitionRegion: "eu-west", PartitionSeconds: 8,
		PartitionOverAdmissionPct: 97, PartitionBoundPct: 200, PartitionCeilingPct: 100, HealMillis: 300,
		AgreeMillis: 100,
	}
}

func TestJudge(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Report)
		wrong  string // what is said; empty: ok
	}{
		{"fine", func(*Report) {}, ""},
		{"no partition", func(r *Report) { r.PartitionRegion, r.PartitionSeconds, r.HealMillis = "", 0, 0 }, ""},
		{"healed at once", func(r *Report) { r.HealMillis, r.AgreeMillis = 0, 0 }, ""},
		{"as much as the bound", func(r *Report) { r.ExcessPct = 8 }, ""},
		{"more than the bound", func(r *Report) { r.ExcessPct = 8.01 }, "the bound was 8.0 %"},
		{"one moment above the bound", func(r *Report) { r.Violations = 1 }, "in 1 samples"},
		{"as much as a partition can admit",
			func(r *Report) { r.PartitionOverAdmissionPct, r.PartitionCeilingPct = 108, 108 }, ""},
		{"more than a partition can admit",
			func(r *Report) { r.PartitionOverAdmissionPct, r.PartitionCeilingPct = 108.5, 108 },
			"its ceiling was 108.0 %"},
		{"somebody who keeps to the limit was rejected", func(r *Report) { r.FalseRejections = 2 },
			"2 requests of clients that keep to 95 %"},
		{"the compliant client came all at once", func(r *Report) { r.overOffered = true },
			"did not keep to the limit: this machine is too slow"},
		{"too slow a machine", func(r *Report) { r.planned = 2 * float64(r.Offered) }, "too slow"},
		{"never healed", func(r *Report) { r.HealMillis = -1 }, "did not heal"},
		{"never agreed", func(r *Report) { r.AgreeMillis = -1 }, "did not come to agree"},
		{"nothing to judge", func(r *Report) { r.Requests = judge.Requests{} }, "nothing was offered"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := fine()
			r.OK = test.wrong != "" // judge has to change it
			test.change(&r)
			r.judge()
			if test.wrong == "" {
				if !r.OK || r.Wrong == nil || len(r.Wrong) != 0 {
					t.Errorf("judged %v: %q", r.OK, r.Wrong)
				}
				return
			}
			if r.OK || len(r.Wrong) != 1 || !strings.Contains(r.Wrong[0], test.wrong) {
				t.Errorf("judged %v: %q, want only one that says %q", r.OK, r.Wrong, test.wrong)
			}
		})
	}
}

func TestJudgeSaysEverything(t *testing.T) {
	r := Report{Violations: 3, ExcessPct: 50, BoundPct: 5, PartitionSeconds: 1, PartitionOverAdmissionPct: 300,
		PartitionCeilingPct: 100,
		HealMillis:          -1, AgreeMillis: -1}
	if r.judge(); len(r.Wrong) != 6 {
		t.Errorf("%d things wrong of 6: %q", len(r.Wrong), r.Wrong)
	}
	if r.judge(); len(r.Wrong) != 6 {
		t.Error("judged again, it finds other things")
	}
}

// What machines read: names that stay, numbers, and lists that are never null.
func TestReportJSON(t *testing.T) {
	r := fine()
	r.Limited = newTracker(tenIn10s(t), 1).limited()
	r.judge()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"regions", "nodes", "limit", "offered", "admitted", "oracle_admitted",
		"over_admission_pct", "excess_pct", "bound_pct",
		"heal_ms", "agree_ms", "bound_violations", "denied", "clients",
		"false_rejections", "compliant_clients", "compliant_offered"} {
		if _, ok := got[key].(float64); !ok {
			t.Errorf("%s is %v, want a number", key, got[key])
		}
	}
	if got["ok"] != true {
		t.Errorf("ok is %v", got["ok"])
	}
	for _, key := range []string{"limited", "wrong"} {
		if list, ok := got[key].([]any); !ok || len(list) != 0 {
			t.Errorf("%s is %v, want an empty list", key, got[key])
		}
	}
}

func TestMillis(t *testing.T) {
	for d, want := range map[time.Duration]float64{
		0: 0, 1234 * time.Microsecond: 1.2, time.Second: 1000, 49 * time.Microsecond: 0,
	} {
		if got := millis(d); got != want {
			t.Errorf("%v is %v ms, want %v", d, got, want)
		}
	}
}

// sampled is a run whose samples are given, one every quarter of a second from the first on.
func sampled(interval time.Duration, samples ...Sample) (*run, *Report) {
	for i := range samples {
		samples[i].Elapsed = time.Duration(i+1) * sampleEvery
	}
	r := &run{opt: Options{Interval: interval}, samples: samples}
	out := new(Report)
	r.readSamples(out)
	return r, out
}

func TestReadSamplesByPhase(t *testing.T) {
	_, got := sampled(100*time.Millisecond,
		Sample{Phase: Filling, Over: 0.01, Bound: 0.02}, Sample{Phase: Steady, Over: 0.03, Bound: 0.08},
		Sample{Phase: Partitioned, Over: 0.9, Bound: 1.2}, Sample{Phase: Settling, Over: 0.5, Bound: 1.5},
		Sample{Phase: Steady, Over: 0.02, Bound: 0.05}, Sample{Phase: Ending, Bound: 0.01})
	want := Report{ExcessPct: 3, BoundPct: 8, PartitionOverAdmissionPct: 90, PartitionBoundPct: 150}
	if got.ExcessPct != want.ExcessPct || got.BoundPct != want.BoundPct ||
		got.PartitionOverAdmissionPct != want.PartitionOverAdmissionPct ||
		got.PartitionBoundPct != want.PartitionBoundPct || got.Violations != 0 {
		t.Errorf("got %+v", *got)
	}
}

// What was over the limit has to be in the bound within two seconds, or 8T: with T = 100 ms, eight samples later it is
// in time.
func TestViolations(t *testing.T) {
	burst := func(bounds ...float64) []Sample {
		out := make([]Sample, len(bounds))
		for i, b := range bounds {
			out[i] = Sample{Phase: Steady, Bound: b, Elapsed: time.Duration(i) * sampleEvery}
		}
		out[0].Over = 0.1
		return out
	}
	for _, test := range []struct {
		name     string
		interval time.Duration
		bounds   []float64
		want     int
	}{
		{"in the bound already", 100 * time.Millisecond, []float64{0.1, 0}, 0},
		{"in the next", 100 * time.Millisecond, []float64{0, 0.1}, 0},
		{"in the last that counts", 100 * time.Millisecond, []float64{8: 0.1}, 0},
		{"too late", 100 * time.Millisecond, []float64{9: 0.5}, 1},
		{"in time for a longer interval", 300 * time.Millisecond, []float64{9: 0.5}, 0},
		{"never", 100 * time.Millisecond, []float64{0, 0, 0}, 1},
		{"by a hair", 100 * time.Millisecond, []float64{0.0999, 0.0999, 9: 1}, 1},
		{"too early is none", 100 * time.Millisecond, []float64{0}, 1},
	} {
		if _, got := sampled(test.interval, burst(test.bounds...)...); got.Violations != test.want {
			t.Errorf("%s: %d violations, want %d", test.name, got.Violations, test.want)
		}
	}
	if _, got := sampled(100*time.Millisecond, Sample{Phase: Partitioned, Over: 1},
		Sample{Phase: Settling, Over: 1}); got.Violations != 2 {
		t.Errorf("in the partition, %d violations of 2", got.Violations)
	}
}

// Staleness is that of the healthy cluster, without the time in which idle nodes speak but every second.
func TestStalenessPercentiles(t *testing.T) {
	samples := make([]Sample, 208)
	for i := range samples {
		// 1 to 200 ms after the first 2 s
		samples[i] = Sample{Phase: Steady, Stale: time.Duration(i-7) * time.Millisecond}
		if i < 8 {
			samples[i].Stale = time.Hour
		}
	}
	samples = append(samples, Sample{Phase: Partitioned, Stale: time.Hour}, Sample{Phase: Settling, Stale: time.Hour})
	_, got := sampled(100*time.Millisecond, samples...)
	if got.StalenessP50Millis != 101 || got.StalenessP99Millis != 199 {
		t.Errorf("half of the time %v, at worst but 1 %% %v; want 101 and 199", got.StalenessP50Millis,
			got.StalenessP99Millis)
	}
	if _, got := sampled(100 * time.Millisecond); got.StalenessP99Millis != 0 {
		t.Errorf("without samples %v", got.StalenessP99Millis)
	}
}

// played is a run of 36 s as it stands when it is over, with what the tracker counted.
func played(t *testing.T) *run {
	o := DefaultOptions()
	o.Limit, o.Window = 10, 10*time.Second
	return &run{opt: o, tracker: newTracker(tenIn10s(t), 6), start: at(0)}
}

func TestReportWithoutPartition(t *testing.T) {
	r := played(t)
	r.opt.Partition = 0
	add(r.tracker, 0, "x", 1000, 12, true)
	add(r.tracker, 5, "y", 2000, 3, false)
	got := r.report(40)
	if got.OverAdmissionPct != 20 || got.NetPct != -7.69 || got.Clients != 2 || got.PartitionCeilingPct != 0 ||
		got.HealMillis != 0 ||
		got.AgreeMillis != 40 {
		t.Errorf("got %+v", *got)
	}
	if got.OK || !slices.ContainsFunc(got.Wrong, func(s string) bool { return strings.Contains(s, "20.0 %") }) {
		t.Errorf("20 %% over without a bound: %q", got.Wrong)
	}
	if got.Regions != 3 || got.Nodes != 2 || got.Limit != 10 || got.WindowSeconds != 10 || got.Seconds != 36 ||
		got.Traffic != "2 times the limit" {
		t.Errorf("got %+v", *got)
	}
}

// The excess of a partition is reported apart from that before it and after its traces have gone, 12 s after the heal.
func TestReportSplitsAtThePartition(t *testing.T) {
	r := played(t)
	r.opt.Duration = 60 * time.Second
	r.partition = partition{
		region: "eu-west", began: at(14_000), healed: at(21_700), recovered: at(22_000), took: 300 * time.Millisecond,
	}
	add(r.tracker, 0, "x", 1_000, 11, true)  // 10 % over before
	add(r.tracker, 0, "x", 20_000, 18, true) // 80 % over within
	add(r.tracker, 0, "x", 23_000, 13, true) // and more with what came while it settled
	add(r.tracker, 0, "x", 50_000, 12, true) // 20 % over afterwards
	got := r.report(40)
	if got.OverAdmissionPct != 20 || got.PartitionOverAdmissionPct != 210 || got.PartitionCeilingPct != 100 ||
		got.HealMillis != 300 ||
		got.PartitionRegion != "eu-west" {
		t.Errorf("got %+v", *got)
	}
}

// Of a partition that never heals everything after it is its own.
func TestReportWithoutHeal(t *testing.T) {
	r := played(t)
	r.partition = partition{region: "eu-west", began: at(14_000), took: -1}
	add(r.tracker, 0, "x", 1_000, 11, true)
	add(r.tracker, 0, "x", 35_000, 18, true)
	got := r.report(-1)
	if got.OverAdmissionPct != 10 || got.PartitionOverAdmissionPct != 80 {
		t.Errorf("outside the partition %v %%, in it %v %%; want 10 and 80", got.OverAdmissionPct,
			got.PartitionOverAdmissionPct)
	}
	if got.OK || got.HealMillis != -1 {
		t.Errorf("judged %v, healed after %d ms", got.OK, got.HealMillis)
	}
}

func TestPhases(t *testing.T) {
	r := played(t)
	expect := func(ms int, want Phase) {
		t.Helper()
		if got := r.phase(at(ms)); got != want {
			t.Errorf("at %d ms: %q, want %q", ms, got, want)
		}
	}
	expect(0, Filling)
	expect(9_999, Filling)
	expect(10_000, Steady)
	r.partition.began = at(14_000)
	expect(14_000, Partitioned)
	expect(37_000, Partitioned) // it has not healed, requests or not
	r.partition.recovered = at(22_000)
	expect(22_000, Settling)
	expect(35_999, Settling)
	expect(36_000, Steady)
	expect(36_001, Ending)
	r.partition.recovered = at(30_000)
	expect(37_000, Settling) // what nodes export is still of the partition
	expect(44_000, Ending)
}
