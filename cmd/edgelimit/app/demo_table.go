package app

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/testnet/demo"
	"github.com/edgelimit/edgelimit/testnet/judge"
)

// What a terminal has to have for a table, in columns and lines, and how long the bar of progress is.
const (
	tableWidth  = 80
	tableHeight = 20
	barWidth    = 24
)

// ink paints text where that is wanted.
type ink bool

// Colours of ink, as SGR parameters.
const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func (i ink) paint(colour, text string) string {
	if !i {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// tableShow redraws a table in place, for a terminal of at least tableWidth columns.
type tableShow struct {
	lineShow
	ink    ink
	height int // of the terminal, in lines
}

func (s *tableShow) sample(p demo.Sample) {
	var b strings.Builder
	if s.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\x1b[J", s.lines)
	}
	body := s.draw(p)
	s.lines = strings.Count(body, "\n")
	b.WriteString(body)
	_, _ = io.WriteString(s.out, b.String())
}

// tableLine is a line of the table: a node, a region, or all.
type tableLine struct {
	name        string
	requests    judge.Requests
	reached     int // peers
	peers       int // -1: not shown
	age         time.Duration
	bound       float64
	partitioned bool
}

func (l *tableLine) text(mark string) string {
	peers := ""
	if l.peers >= 0 {
		peers = fmt.Sprintf("%d/%d", l.reached, l.peers)
	}
	r, age := &l.requests, l.age.Round(time.Millisecond)
	return fmt.Sprintf("%s%-14s%9d%10d%9d%8s%10v%10.1f %%", mark, l.name, r.Offered, r.Admitted, r.Denied, peers, age,
		l.bound*100)
}

func (s *tableShow) draw(p demo.Sample) string {
	var b strings.Builder
	done := min(barWidth, int(float64(barWidth)*p.Elapsed.Seconds()/s.opt.Duration.Seconds()))
	colour := green
	if p.Phase == demo.Partitioned {
		colour = yellow
	}
	fmt.Fprintf(&b, "\n[%s%s] %.0fs of %v   %s\n\n", strings.Repeat("#", done), strings.Repeat(".", barWidth-done),
		p.Elapsed.Seconds(), s.opt.Duration, s.ink.paint(colour, phaseText(p)))
	const columns = "  %-14s%9s%10s%9s%8s%10s%12s"
	head := fmt.Sprintf(columns, "node", "offered", "admitted", "denied", "peers", "age", "bound")
	b.WriteString(s.ink.paint(bold, head) + "\n")
	for _, l := range s.table(p) {
		if l.partitioned {
			b.WriteString(s.ink.paint(yellow, l.text("✂ ")) + "\n")
		} else {
			b.WriteString(l.text("  ") + "\n")
		}
	}
	all := tableLine{name: "all", requests: p.Total, peers: -1, age: p.Stale, bound: p.Bound}
	b.WriteString(all.text("  ") + "\n\n")
	over := fmt.Sprintf("%+.1f %%", p.Over*100)
	if p.Over > p.Bound {
		over = s.ink.paint(red, over)
	}
	fmt.Fprintf(&b, "over the limit %s, at most %.1f %% by the bound (over the last window)\n", over, p.Bound*100)
	if p.Bound > 1 {
		fmt.Fprintln(&b, looseBound)
	}
	fmt.Fprintf(&b, "the oracle, with instant knowledge, would have admitted %d\n", p.Total.OracleAdmitted)
	for _, text := range unreachable(p) {
		fmt.Fprintln(&b, s.ink.paint(yellow, text))
	}
	return b.String()
}

// table is a line for each node, or for each region where the terminal has no room for that.
func (s *tableShow) table(p demo.Sample) (lines []tableLine) {
	const others = 12 // lines beside those of nodes
	byRegion := s.height > 0 && len(p.Nodes)+others > s.height
	for _, n := range p.Nodes {
		partitioned := p.Phase == demo.Partitioned && n.Region == p.Partitioned
		l := tableLine{n.ID, n.Requests, n.Peers - len(n.Unreachable), n.Peers, n.Stale, n.Bound, partitioned}
		if last := len(lines) - 1; byRegion && last >= 0 && lines[last].name == n.Region {
			r := &lines[last]
			r.requests.Offered += l.requests.Offered
			r.requests.Admitted += l.requests.Admitted
			r.requests.Denied += l.requests.Denied
			r.reached, r.age, r.bound = min(r.reached, l.reached), max(r.age, l.age), max(r.bound, l.bound)
			continue
		}
		if byRegion {
			l.name = n.Region
		}
		lines = append(lines, l)
	}
	return lines
}

// unreachable says in words which regions receive nothing from which other ones.
func unreachable(p demo.Sample) (lines []string) {
	receivers := make(map[string][]string) // by whom they cannot reach
	for _, n := range p.Nodes {
		from := make(map[string]bool)
		for _, peer := range n.Unreachable {
			from[peer.Region] = true
		}
		if len(from) == 0 {
			continue
		}
		silent := strings.Join(slices.Sorted(maps.Keys(from)), ", ")
		if !slices.Contains(receivers[silent], n.Region) {
			receivers[silent] = append(receivers[silent], n.Region)
		}
	}
	for _, silent := range slices.Sorted(maps.Keys(receivers)) {
		lines = append(lines, fmt.Sprintf("%s: nothing comes from %s", strings.Join(receivers[silent], ", "), silent))
	}
	return lines
}
