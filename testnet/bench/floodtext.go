package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// report sums the flood up and says what it kept of its promises.
func (f *flood) report(took time.Duration, rss uint64) floodReport {
	us := func(d time.Duration) float64 { return float64(d) / 1e3 }
	r := floodReport{
		Flood: f.name, Asked: f.asked, TookS: took.Seconds(),
		BudgetMiB: mib(floodBudget), FloorMiB: mib(f.floor), RSSMiB: mib(rss), Collector: collectorSettings(),
		P50: us(f.times.quantile(0.5)), P99: us(f.times.quantile(0.99)), P999: us(f.times.quantile(0.999)), Max: us(f.times.longest),
		Over: len(f.let), Kept: f.kept(), Stats: f.table.stats(),
	}
	return f.verdicts(r, rss)
}

// verdicts adds to the report what became of the flood's promises.
func (f *flood) verdicts(r floodReport, rss uint64) floodReport {
	most := rssFactor*floodBudget + float64(f.floor)
	r.Promises = []promise{
		{fmt.Sprintf("resident at most %.1f x the budget + the floor: %.0f MiB", rssFactor, most/(1<<20)), float64(rss) <= most},
		{fmt.Sprintf("p99 of Take below %v", takeAtMost), f.times.quantile(0.99) < takeAtMost},
	}
	if f.promised {
		kept := float64(r.Kept) / float64(r.Over)
		text := fmt.Sprintf("at least %.1f %% of the keys over their limit kept", 100*keptAtLeast)
		r.Promises = append(r.Promises, promise{text, kept >= keptAtLeast})
	}
	return r
}

// kept is how many clients over their limit were never admitted again.
func (f *flood) kept() (n int) {
	for _, let := range f.let {
		if !let {
			n++
		}
	}
	return n
}

func mib[T uint64 | int](bytes T) float64 { return float64(bytes) / (1 << 20) }

// collectorSettings is what the environment says to the garbage collector.
func collectorSettings() string {
	settings := "GOGC=" + orDefault(os.Getenv("GOGC"), "100")
	return settings + " GOMEMLIMIT=" + orDefault(os.Getenv("GOMEMLIMIT"), "off")
}

func orDefault(v, otherwise string) string {
	if v == "" {
		return otherwise
	}
	return v
}

// writeFloods writes the floods side by side.
func writeFloods(w io.Writer, reports []floodReport) error {
	s := sheet{title: "Floods against a budget of " + fmt.Sprint(floodBudget>>20) + " MiB", head: []string{""}}
	add := func(name string, cell func(floodReport) string) {
		row := []string{name}
		for _, r := range reports {
			row = append(row, cell(r))
		}
		s.rows = append(s.rows, row)
	}
	number := func(get func(floodReport) float64) func(floodReport) string {
		return func(r floodReport) string { return figure(get(r)) }
	}
	for _, r := range reports {
		s.head = append(s.head, r.Flood)
	}
	add("requests", func(r floodReport) string { return fmt.Sprint(r.Asked) })
	add("took, s", number(func(r floodReport) float64 { return r.TookS }))
	add("resident, most, MiB", number(func(r floodReport) float64 { return r.RSSMiB }))
	add("resident, floor, MiB", number(func(r floodReport) float64 { return r.FloorMiB }))
	add("over budget + floor", number(func(r floodReport) float64 { return (r.RSSMiB - r.FloorMiB) / r.BudgetMiB }))
	add("garbage collector", func(r floodReport) string { return r.Collector })
	add("Take p50, us", number(func(r floodReport) float64 { return r.P50 }))
	add("Take p99, us", number(func(r floodReport) float64 { return r.P99 }))
	add("Take p99.9, us", number(func(r floodReport) float64 { return r.P999 }))
	add("Take max, us", number(func(r floodReport) float64 { return r.Max }))
	add("keys over their limit", func(r floodReport) string { return fmt.Sprint(r.Over) })
	add("never admitted again", func(r floodReport) string { return fmt.Sprint(r.Kept) })
	for i, line := range (floodStats{}).lines() {
		add(line[0], func(r floodReport) string { return r.Stats.lines()[i][1] })
	}
	if err := (plain{}).sheet(w, s); err != nil {
		return err
	}
	verdicts := sheet{title: "Promises", head: []string{"flood", "promise", "verdict"}}
	for _, r := range reports {
		for _, p := range r.Promises {
			verdicts.rows = append(verdicts.rows, []string{r.Flood, p.Text, map[bool]string{true: "met", false: "missed"}[p.Met]})
		}
	}
	return plain{}.sheet(w, verdicts)
}
