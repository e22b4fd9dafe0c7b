package sim

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// A plot has two panels: what was admitted in each second, and how full the fullest window of a client was. Both stand against the limit,
// the oracle and the bound.
const (
	plotWidth, plotHeight   = 900.0, 640.0
	plotLeft, plotRight     = 70.0, 20.0
	panelHeight             = 230.0
	firstPanel, secondPanel = 60.0, 360.0
	plotTicks               = 5
)

// curve is one line of a panel.
type curve struct {
	name, colour, dash string
	values             []float64
}

// WritePlot writes the run as an SVG picture: admitted per second, and in the fullest rolling window of any client, against the limit, the
// oracle and the bound.
func (r *Report) WritePlot(out io.Writer) error {
	w := bufio.NewWriter(out)
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(w, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	title := fmt.Sprintf("%d regions of %d nodes, %d per %gs and client, %s at %g times the limit, gossip every %g ms: "+
		"net %+.2f %%, peak %+.2f %%, bound %.2f %%",
		r.Regions, r.Nodes, r.Limit, r.WindowSeconds, r.Pattern, r.Load, r.IntervalMillis, r.NetPct, r.PeakPct, r.BoundPct)
	fmt.Fprintf(w, `<text x="%g" y="24" font-size="13">%s</text>`+"\n", plotLeft, html.EscapeString(title))

	perSecond := float64(r.Limit) / r.WindowSeconds * float64(r.Keys)
	n := len(r.PerSecond)
	admitted, oracle, limit, bound := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	full, oracleFull, window, windowBound := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	for i, s := range r.PerSecond {
		admitted[i], oracle[i], limit[i], bound[i] = float64(s.Admitted), float64(s.Oracle), perSecond, perSecond*(1+s.Bound)
		full[i], oracleFull[i] = float64(s.WindowAdmitted), float64(s.WindowOracle)
		window[i], windowBound[i] = float64(r.Limit), float64(r.Limit)*(1+s.Bound)
	}
	panel(w, firstPanel, "admitted in each second, all clients", curves(admitted, oracle, limit, bound))
	panel(w, secondPanel, "fullest rolling window of a client", curves(full, oracleFull, window, windowBound))
	fmt.Fprintf(w, `<text x="%g" y="%g" text-anchor="end">seconds</text>`+"\n", plotWidth-plotRight, secondPanel+panelHeight+34)
	fmt.Fprintln(w, "</svg>")
	return w.Flush()
}

func curves(admitted, oracle, limit, bound []float64) []curve {
	return []curve{
		{"bound", "#b8860b", "2 3", bound}, {"limit", "#c00000", "6 4", limit},
		{"oracle", "#2e8b57", "", oracle}, {"admitted", "#1f4e9c", "", admitted},
	}
}

// panel draws curves over the seconds of the run, from y on.
func panel(w io.Writer, y float64, title string, curves []curve) {
	most := 1.0
	for _, c := range curves {
		for _, v := range c.values {
			most = max(most, v)
		}
	}
	step := niceStep(most / plotTicks)
	top := math.Ceil(most/step) * step
	seconds := float64(max(1, len(curves[0].values)))
	atX := func(second float64) float64 { return plotLeft + second/seconds*(plotWidth-plotLeft-plotRight) }
	atY := func(v float64) float64 { return y + panelHeight*(1-v/top) }

	fmt.Fprintf(w, `<text x="%g" y="%.1f">%s</text>`+"\n", plotLeft, y-8, html.EscapeString(title))
	for v := 0.0; v <= top+step/2; v += step {
		fmt.Fprintf(w, `<line x1="%g" x2="%g" y1="%.1f" y2="%.1f" stroke="#ddd"/>`, plotLeft, plotWidth-plotRight, atY(v), atY(v))
		fmt.Fprintf(w, `<text x="%g" y="%.1f" text-anchor="end">%g</text>`+"\n", plotLeft-6, atY(v)+4, v)
	}
	across := niceStep(seconds / 10)
	for s := 0.0; s <= seconds; s += across {
		fmt.Fprintf(w, `<text x="%.1f" y="%.1f" text-anchor="middle">%g</text>`+"\n", atX(s), y+panelHeight+16, s)
	}
	for i, c := range curves {
		var points strings.Builder
		for s, v := range c.values {
			fmt.Fprintf(&points, "%.1f,%.1f ", atX(float64(s)+0.5), atY(v))
		}
		fmt.Fprintf(w, `<polyline fill="none" stroke="%s" stroke-width="1.5" stroke-dasharray="%s" points="%s"/>`+"\n",
			c.colour, c.dash, strings.TrimSpace(points.String()))
		x := plotWidth - plotRight - float64(len(curves)-i)*85
		fmt.Fprintf(w, `<line x1="%g" x2="%g" y1="%.1f" y2="%.1f" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`,
			x, x+20, y-12, y-12, c.colour, c.dash)
		fmt.Fprintf(w, `<text x="%g" y="%.1f">%s</text>`+"\n", x+25, y-8, c.name)
	}
}

// niceStep is the least of 1, 2 and 5 times a power of ten that is not below v.
func niceStep(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(max(v, 1e-9))))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v {
			return m * power
		}
	}
	return 10 * power
}
