package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/edgelimit/edgelimit/testnet/sim"
)

// sheet is a table to write.
type sheet struct {
	title, note string
	head        []string
	rows        [][]string
}

// write appends the table to b as Markdown.
func (s *sheet) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n## %s\n\n", s.title)
	if s.note != "" {
		fmt.Fprintf(b, "%s\n\n", s.note)
	}
	line := func(cells []string) {
		for _, c := range cells {
			fmt.Fprintf(b, "| %s ", strings.ReplaceAll(c, "|", `\|`))
		}
		b.WriteString("|\n")
	}
	line(s.head)
	fmt.Fprintf(b, "|---|%s\n", strings.Repeat("---:|", len(s.head)-1))
	for _, row := range s.rows {
		line(row)
	}
}

// column is a figure of every row of a section.
type column struct {
	head string
	cell func(*result) string
}

var (
	sentColumns = []column{{"kB/s", figure(kilobytes)}, {"messages/s", figure(messages)}, {"edgelimit sim", command}}

	usual = append([]column{
		{"net, %", figure(netPct)}, {"peak, %", figure(peak)}, {"rejected", rejected}, {"bound, %", figure(bound)},
		{"factor", figure(boundRatio)},
	}, sentColumns...)
	cuts = append([]column{
		{"net, %", figure(netPct)}, {"net in the cut, %", figure(cutNet)}, {"peak, %", figure(peak)},
		{"peak two windows after, %", figure(healedPeak)}, {"known again, ms", figure(healed)}, {"rejected", rejected},
		{"bound, %", figure(bound)}, {"factor", figure(boundRatio)},
	}, sentColumns...)
	sized = append([]column{
		{"net, %", figure(netPct)}, {"peak, %", figure(peak)}, {"rejected", rejected}, {"bound, %", figure(bound)},
		{"counted in the region, p99 ms", figure(here)}, {"across, p99 ms", figure(across)},
		{"agreed, ms", figure(agreed)},
	}, sentColumns...)
	stores = []column{
		{"net, %", figure(netPct)}, {"peak, %", figure(peak)}, {"rejected", rejected}, {"calls", figure(storeCalls)},
		{"failed", figure(storeFailed)}, {"lost", figure(slotsLost)}, {"lacking", figure(slotsMissing)},
		{"twice", figure(slotsTwice)}, {"whole again, flushes", figure(repairFlushes)},
		{"whole again, ms", figure(repairMillis)}, {"edgelimit sim", command},
	}
)

// figure is the median over the seeds, with the worst where that differs as it is written.
func figure(of func(*sim.Report) float64) func(*result) string {
	return func(r *result) string { return over(r.reports, of).String() }
}

func (s spread) String() string {
	median, worst := number(s.median), number(s.worst)
	if median == worst {
		return median
	}
	return fmt.Sprintf("%s (%s)", median, worst)
}

func rejected(r *result) string {
	offered := sum(r.reports, compliantOffered)
	if offered == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f of %.0f", sum(r.reports, falseRejections), offered)
}

func command(r *result) string {
	flags := r.options.Flags()
	for i, f := range flags {
		if strings.ContainsAny(f, "*>/") {
			flags[i] = "'" + f + "'"
		}
	}
	return "`" + strings.Join(flags, " ") + "`"
}

// number writes three digits that count at most, and two after the point at most.
func number(v float64) string {
	digits := 2
	switch size := math.Abs(v); {
	case math.IsInf(v, 0):
		return "never"
	case size == math.Trunc(size) || size >= 99.95:
		digits = 0
	case size >= 9.995:
		digits = 1
	}
	text := fmt.Sprintf("%.*f", digits, v)
	if strings.Trim(text, "-0.") == "" {
		return "0"
	}
	return text
}

// sheet is the table of a section.
func (d *document) sheet(s section) sheet {
	out := sheet{title: s.title, note: s.note, head: []string{""}}
	for _, c := range s.columns {
		out.head = append(out.head, c.head)
	}
	for i := range s.rows {
		r := d.results.of(&s.rows[i])
		line := []string{s.rows[i].name + d.fewer(r)}
		for _, c := range s.columns {
			line = append(line, c.cell(r))
		}
		out.rows = append(out.rows, line)
	}
	return out
}

// fewer says of a row that it was run with fewer seeds than others.
func (d *document) fewer(r *result) string {
	switch n := len(r.reports); n {
	case d.seeds.count:
		return ""
	case 1:
		return " (the first seed)"
	default:
		return fmt.Sprintf(" (the first %d seeds)", n)
	}
}

// ablationSheet puts the variants side by side.
func (d *document) ablationSheet() sheet {
	s := sheet{title: ablationTitle, head: []string{"net / peak, % (messages/s)"},
		note: "What each part of the rule by which nodes decide adds."}
	for _, v := range variants {
		s.head = append(s.head, v.name)
	}
	for i := range contests {
		line := []string{contests[i].name}
		for _, v := range variants {
			r := d.results.of(&v.contests()[i])
			median := func(figure func(*sim.Report) float64) string { return number(over(r.reports, figure).median) }
			line = append(line,
				fmt.Sprintf("%s / %s (%s)%s", median(netPct), median(peak), median(messages), unfair(r)))
		}
		s.rows = append(s.rows, line)
	}
	return s
}

// unfair tells of clients that kept to the limit and were rejected.
func unfair(r *result) string {
	if n := sum(r.reports, falseRejections); n > 0 {
		return fmt.Sprintf(", %.0f rejected without need", n)
	}
	return ""
}
