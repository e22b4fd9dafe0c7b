// Package plot draws a run of a cluster as an SVG picture: requests per second, averaged over a window, and the fullest
// window of a client against the limit and the bound that the nodes exported.
package plot

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// Series is a run, sampled once a second.
type Series struct {
	Title      []string      // lines above the picture; WriteSVG wraps long ones
	Limit      float64       // L: requests per window and client
	Window     time.Duration // W
	Clients    int           // clients with such a limit, which the panel of requests per second adds up; 0 means 1
	Duration   time.Duration // length of the time axis
	Samples    []Sample
	Partitions []Partition
}

// Sample is what happened in one second.
type Sample struct {
	T time.Duration // since the start of the run; samples ascend
	// requests of all clients in this second; what the oracle would have admitted
	Offered, Admitted, Oracle float64
	// Requests in the fullest rolling window of one client that ended in this second.
	WindowAdmitted, WindowOracle float64
	Bound                        float64 // largest bound that a node exported, as a fraction of the limit
}

// Partition is a time in which some nodes could not reach others.
type Partition struct {
	From, Until time.Duration
	Label       string
}

// Layout of the picture in pixels.
const (
	width, left, right     = 960.0, 84.0, 20.0
	titleLine, headLine    = 18.0, 20.0
	panelHeight, panelFoot = 230.0, 48.0 // the foot holds the time axis
	charWidth              = 7.0         // of a 13 px letter, on the safe side
)

const (
	maxChars   = 122 // of a line of the title
	maxStretch = 4   // limits a panel to this many times what its unclipped curves need
)

// curve is one line of a panel.
type curve struct {
	name, colour, dash string
	clip               bool // it may leave the panel at the top
	value              func(Sample) float64
}

// WriteSVG draws the series in two panels. Offered load or a bound that is many times the rest is clipped at the top of
// its panel; its legend says how high it goes.
func WriteSVG(w io.Writer, s Series) error {
	var b bytes.Buffer
	var title []string
	for _, line := range s.Title {
		title = append(title, wrap(line, maxChars)...)
	}
	first := titleLine*float64(len(title)+1) + 2*headLine
	second := first + panelHeight + panelFoot + 2*headLine
	height := second + panelHeight + panelFoot
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%g" height="%g" viewBox="0 0 %[1]g %[2]g" `+
		`font-family="sans-serif" font-size="12">`+"\n", width, height)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	for i, line := range title {
		text(&b, left, titleLine*float64(i+1), line, `font-size="13"`)
	}
	const red, green, blue, grey, gold = "#c00000", "#2e8b57", "#1f4e9c", "#8a8a8a", "#b8860b"
	rate := s.Limit / s.Window.Seconds() * float64(max(1, s.Clients))
	s.averaged().panel(&b, first, "requests of all clients, averaged over a window", "requests per second", []curve{
		{"offered", grey, "", true, func(p Sample) float64 { return p.Offered }},
		{"limit", red, "6 4", false, func(Sample) float64 { return rate }},
		{"oracle", green, "", false, func(p Sample) float64 { return p.Oracle }},
		{"admitted", blue, "", false, func(p Sample) float64 { return p.Admitted }},
	})
	s.panel(&b, second, "fullest rolling window of a client", fmt.Sprintf("requests in %v", s.Window), []curve{
		{"limit + bound", gold, "2 3", true, func(p Sample) float64 { return s.Limit * (1 + p.Bound) }},
		{"limit", red, "6 4", false, func(Sample) float64 { return s.Limit }},
		{"oracle", green, "", false, func(p Sample) float64 { return p.WindowOracle }},
		{"admitted", blue, "", false, func(p Sample) float64 { return p.WindowAdmitted }},
	})
	b.WriteString("</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

// averaged returns the series with requests per second averaged over the window that ends in each second: a limit is
// about a window, in which a client that is denied at its end was admitted all at once at its beginning.
func (s Series) averaged() Series {
	seconds := max(1, int(s.Window/time.Second))
	out := slices.Clone(s.Samples)
	for i := range out {
		sum := Sample{T: out[i].T, Bound: out[i].Bound}
		for _, p := range s.Samples[max(0, i-seconds+1) : i+1] {
			sum.Offered += p.Offered / float64(seconds)
			sum.Admitted += p.Admitted / float64(seconds)
			sum.Oracle += p.Oracle / float64(seconds)
		}
		out[i] = sum
	}
	s.Samples = out
	return s
}

// panel draws a heading, a legend, axes, the partitions and the curves, with the top left corner of the diagram at
// (left, y).
func (s Series) panel(b *bytes.Buffer, y float64, title, unit string, curves []curve) {
	top := s.top(curves)
	step := niceStep(top / 5)
	top = math.Ceil(top/step) * step
	const diagram = width - left - right
	seconds, foot := max(s.Duration.Seconds(), 1), y+panelHeight
	atX := func(t time.Duration) float64 { return left + min(t.Seconds(), seconds)/seconds*diagram }
	atY := func(v float64) float64 { return y + panelHeight*(1-min(v, top)/top) }

	text(b, left, y-8-headLine, title, `font-weight="bold"`)
	for _, p := range s.Partitions {
		fmt.Fprintf(b, `<rect class="partition" x="%.1f" y="%.1f" width="%.1f" height="%g" fill="#f3e3c3"/>`+"\n",
			atX(p.From), y, atX(p.Until)-atX(p.From), panelHeight)
		text(b, atX(p.From)+4, y+14, p.Label, `fill="#7a5c20"`)
	}
	for v := 0.0; v <= top+step/2; v += step {
		fmt.Fprintf(b, `<line x1="%g" x2="%g" y1="%.1f" y2="%.1[3]f" stroke="#ddd"/>`+"\n", left, width-right, atY(v))
		text(b, left-6, atY(v)+4, number(v), `text-anchor="end"`)
	}
	across := max(1, niceStep(seconds/10))
	for t := 0.0; t <= seconds; t += across {
		x := left + t/seconds*diagram
		fmt.Fprintf(b, `<line x1="%.1f" x2="%.1[1]f" y1="%g" y2="%g" stroke="#888"/>`, x, foot, foot+4)
		text(b, x, foot+17, number(t), `text-anchor="middle"`)
	}
	text(b, left+diagram/2, foot+34, "seconds since the first request", `text-anchor="middle"`)
	text(b, 16, y+panelHeight/2, unit, fmt.Sprintf(`text-anchor="middle" transform="rotate(-90 16 %g)"`,
		y+panelHeight/2))

	x := left
	for _, c := range curves {
		stroke := fmt.Sprintf(`stroke="%s" stroke-width="1.8" stroke-dasharray="%s"`, c.colour, c.dash)
		fmt.Fprintf(b, `<polyline fill="none" %s points="`, stroke)
		for _, p := range s.Samples {
			fmt.Fprintf(b, "%.1f,%.1f ", atX(p.T), atY(c.value(p)))
		}
		b.WriteString(`"/>` + "\n")
		name := c.name
		if peak := s.peak(c); peak > top {
			name += fmt.Sprintf(" (up to %s, off the scale)", number(peak))
		}
		fmt.Fprintf(b, `<line x1="%g" x2="%g" y1="%g" y2="%[3]g" %[4]s/>`, x, x+22, y-12, stroke)
		text(b, x+27, y-8, name, "")
		x += 27 + charWidth*float64(len(name)) + 16
	}
}

// top returns the highest value of a panel's scale.
func (s Series) top(curves []curve) float64 {
	rest, all := 1.0, 1.0
	for _, c := range curves {
		if all = max(all, s.peak(c)); !c.clip {
			rest = max(rest, s.peak(c))
		}
	}
	return min(all, maxStretch*rest)
}

func (s Series) peak(c curve) (peak float64) {
	for _, p := range s.Samples {
		peak = max(peak, c.value(p))
	}
	return peak
}

func text(b *bytes.Buffer, x, y float64, s, attributes string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" %s>%s</text>`+"\n", x, y, attributes, html.EscapeString(s))
}

// wrap breaks a line between words into lines of at most max bytes.
func wrap(line string, max int) (lines []string) {
	for len(line) > max {
		at := strings.LastIndexByte(line[:max+1], ' ')
		if at <= 0 {
			break
		}
		lines, line = append(lines, line[:at]), line[at+1:]
	}
	return append(lines, line)
}

// number writes a figure of an axis, large ones with k, M or G: 1500, 20k, 1.5M.
func number(v float64) string {
	units := []string{"", "k", "M", "G"}
	for ; v >= 1e4 && len(units) > 1; units = units[1:] {
		v /= 1e3
	}
	return fmt.Sprintf("%.4g%s", v, units[0])
}

// niceStep returns the least of 1, 2 and 5 times a power of ten that is not below v.
func niceStep(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(max(v, 1e-9))))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v {
			return m * power
		}
	}
	return 10 * power
}
