package sim

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// A plot is well-formed, and all that it draws lies inside of it.
func TestPlot(t *testing.T) {
	r := run(t, short(nil))
	var b strings.Builder
	if err := r.WritePlot(&b); err != nil {
		t.Fatal(err)
	}
	lines, texts := 0, 0
	for dec := xml.NewDecoder(strings.NewReader(b.String())); ; {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		switch e, _ := token.(xml.StartElement); e.Name.Local {
		case "polyline":
			lines++
			for _, a := range e.Attr {
				if points := strings.Fields(a.Value); a.Name.Local == "points" && len(points) != len(r.PerSecond) {
					t.Errorf("%d points for %d seconds", len(points), len(r.PerSecond))
				}
			}
		case "text":
			texts++
		}
	}
	if lines != 8 || texts < 20 {
		t.Errorf("%d lines and %d texts, want 8 lines and an axis", lines, texts)
	}
	for _, name := range []string{"admitted", "oracle", "limit", "bound"} {
		if strings.Count(b.String(), ">"+name+"<") != 2 {
			t.Errorf("%s is not named in both panels", name)
		}
	}
	if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
		t.Error("it holds what is no number")
	}
	if err := (&Report{Limit: 1, WindowSeconds: 1}).WritePlot(io.Discard); err != nil {
		t.Errorf("an empty run: %v", err)
	}
	if err := r.WritePlot(broken{}); err == nil {
		t.Error("a file that cannot be written is no error")
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no") }

func TestNiceStep(t *testing.T) {
	for v, want := range map[float64]float64{0.9: 1, 1: 1, 1.1: 2, 2.1: 5, 6: 10, 23: 50, 1001: 2000} {
		if got := niceStep(v); got != want {
			t.Errorf("%g: %g, want %g", v, got, want)
		}
	}
}
