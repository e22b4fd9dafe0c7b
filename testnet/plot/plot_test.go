package plot

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"
)

func example(bound float64) Series {
	s := Series{
		Title: []string{strings.Repeat("30 regions of 50 nodes, ", 12), "a < b & c"},
		Limit: 1000, Window: 10 * time.Second, Duration: 80 * time.Second,
		Partitions: []Partition{{From: 20 * time.Second, Until: 50 * time.Second, Label: "partition 2/*"}},
	}
	for i := range 80 {
		s.Samples = append(s.Samples, Sample{
			T:       time.Duration(i)*time.Second + time.Second/2,
			Offered: 200, Admitted: 90, Oracle: 100, WindowAdmitted: 900, WindowOracle: 1000, Bound: bound,
		})
	}
	return s
}

func svg(t *testing.T, s Series) string {
	t.Helper()
	var b strings.Builder
	if err := WriteSVG(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The picture is well-formed, names its axes and curves, and keeps all that it draws inside of itself.
func TestWriteSVG(t *testing.T) {
	s := example(2)
	picture := svg(t, s)
	lines, partitions := 0, 0
	var text strings.Builder
	for dec := xml.NewDecoder(strings.NewReader(picture)); ; {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.CharData:
			text.WriteString("\n" + string(e) + "\n")
			if wide := charWidth * float64(len(strings.TrimSpace(string(e)))); wide > width-left {
				t.Errorf("%q is about %.0f px wide", e, wide)
			}
		case xml.StartElement:
			for _, a := range e.Attr {
				switch v, _ := strconv.ParseFloat(a.Value, 64); {
				case a.Name.Local == "class" && a.Value == "partition":
					partitions++
				case strings.HasPrefix(a.Name.Local, "x") && a.Name.Local != "xmlns" && (v < 0 || v > width):
					t.Errorf("%s is at x = %g", e.Name.Local, v)
				case a.Name.Local == "points":
					lines++
					if n := len(strings.Fields(a.Value)); n != len(s.Samples) {
						t.Errorf("%d points for %d samples", n, len(s.Samples))
					}
				}
			}
		}
	}
	if lines != 8 || partitions != 2 {
		t.Errorf("%d curves and %d shaded partitions, want 8 and 2", lines, partitions)
	}
	for want, times := range map[string]int{
		"partition 2/*": 2, "\nadmitted\n": 2, "\noracle\n": 2, "\nlimit\n": 2, "limit + bound": 1, "offered": 1,
		"seconds since the first request": 2, "requests per second": 1, "requests in 10s": 1, "a < b & c": 1,
	} {
		if n := strings.Count(text.String(), want); n != times {
			t.Errorf("%q is written %d times, want %d", want, n, times)
		}
	}
}

// Limit and bound are drawn in proportion, from zero on; only what is many times the rest leaves the picture.
func TestScale(t *testing.T) {
	limit := func(Sample) float64 { return 1000 }
	bound := func(p Sample) float64 { return 1000 * (1 + p.Bound) }
	for _, c := range []struct{ bound, top float64 }{{0.5, 1500}, {2, 3000}, {149, 4000}} {
		s := example(c.bound)
		if top := s.top([]curve{{clip: true, value: bound}, {value: limit}}); top != c.top {
			t.Errorf("a bound of %g: the scale ends at %g, want %g", c.bound, top, c.top)
		}
		off := strings.Contains(svg(t, s), "limit + bound (up to 150k, off the scale)")
		if want := c.bound == 149; off != want {
			t.Errorf("a bound of %g: off the scale is %v", c.bound, off)
		}
	}
}

func TestEmptyAndBroken(t *testing.T) {
	empty := svg(t, Series{Limit: 1, Window: time.Second})
	if strings.Contains(empty, "NaN") || strings.Contains(empty, "Inf") {
		t.Error("an empty run draws what is no number")
	}
	if WriteSVG(broken{}, example(1)) == nil {
		t.Error("a file that cannot be written is no error")
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no") }

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]float64{0.9: 1, 1: 1, 1.1: 2, 2.1: 5, 6: 10, 23: 50, 1001: 2000} {
		if got := niceStep(v); got != want {
			t.Errorf("step %g: %g, want %g", v, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0", 0.5: "0.5", 1500: "1500", 20e3: "20k", 15e6: "15M", 1.5e8: "150M"} {
		if got := number(v); got != want {
			t.Errorf("%g is written %s, want %s", v, got, want)
		}
	}
	if got := fmt.Sprint(wrap("aa bb cc", 5)); got != "[aa bb cc]" || len(wrap("aa bb cc", 5)) != 2 {
		t.Errorf("wrapped %q", wrap("aa bb cc", 5))
	}
}

// A client that uses up its limit at the beginning of each window is at its limit, not above it and then at nothing.
func TestAveraged(t *testing.T) {
	s := Series{Window: 4 * time.Second}
	for i := range 12 {
		s.Samples = append(s.Samples, Sample{Offered: 8, Admitted: []float64{8, 4, 0, 0}[i%4]})
	}
	for i, p := range s.averaged().Samples[3:] {
		if p.Admitted != 3 || p.Offered != 8 {
			t.Errorf("second %d: %v admitted of %v, want 3 of 8", i+3, p.Admitted, p.Offered)
		}
	}
	if s.Samples[0].Admitted != 8 {
		t.Error("the run itself was changed")
	}
}
