package node

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/bubble"
)

const stalled = "some avg10=12.50 avg60=0.80 avg300=0.20 total=123456\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"

func TestParsePressure(t *testing.T) {
	for text, want := range map[string]float64{
		stalled: 0.125, "some avg10=0.00 avg60": 0, "some avg10=100.00 avg60=": 1,
	} {
		if p, ok := parsePressure([]byte(text)); !ok || p != want {
			t.Errorf("%q is %v, %v, want %v", text, p, ok, want)
		}
	}
	for _, text := range []string{"", "12.5\n", "full avg10=0.00 avg60=0", "some avg10=", "some avg10=1.5", "some avg10=-1 avg60=0", "some avg10=101 a", "some avg10=NaN a"} {
		if p, ok := parsePressure([]byte(text)); ok {
			t.Errorf("%q is taken for %v", text, p)
		}
	}
}

func FuzzParsePressure(f *testing.F) {
	f.Add([]byte(stalled))
	f.Add([]byte("some avg10=1e2 "))
	f.Fuzz(func(t *testing.T, text []byte) {
		if p, ok := parsePressure(text); ok && !(p >= 0 && p <= 1) {
			t.Errorf("%q is a pressure of %v", text, p)
		}
	})
}

// The file is read once a second. While it cannot be read the pressure counts as high, and the log says so once.
func TestPressureFile(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		file := write(t, "cpu", stalled)
		var book logbook
		cfg := quiet(elastic)
		cfg.PressureFile, cfg.Logger = file, book.logger()
		n := launch(t, cfg).ready(t)
		time.Sleep(1500 * time.Millisecond)
		if p := n.Pressure(); p != 0.125 {
			t.Errorf("the pressure is %v", p)
		}
		writeFile(t, file, strings.Replace(stalled, "12.50", "40.00", 1))
		time.Sleep(time.Second)
		if p := n.Pressure(); p != 0.4 {
			t.Errorf("the pressure has risen to %v", p)
		}
		writeFile(t, file, "nothing of the kind")
		time.Sleep(10 * time.Second)
		if p := n.Pressure(); p != 1 {
			t.Errorf("the pressure that nobody can read is %v", p)
		}
		if got := strings.Count(book.String(), "the pressure cannot be read"); got != 1 {
			t.Errorf("the log says so %d times", got)
		}
	})
}

func TestPressureFileThatIsNone(t *testing.T) {
	for name, want := range map[string]string{
		filepath.Join(t.TempDir(), "missing"): "no such file",
		write(t, "empty", ""):                 "EOF",
		write(t, "other", "1.5\n"):            `does not begin with the part of the last ten seconds, as in "some avg10=1.50"`,
	} {
		cfg := quiet(elastic)
		cfg.PressureFile = name
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "pressure_file: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

// A report from a time to come is as old as one from long ago.
func TestPressureAcrossAStepOfTheClock(t *testing.T) {
	n := idle(t, elastic)
	for _, ahead := range []time.Duration{-6 * time.Second, 6 * time.Second, math.MinInt64 / 2} {
		n.pressure.Store(&report{0, n.clock.Now() + int64(ahead)})
		if p := n.Pressure(); p != 1 {
			t.Errorf("a report that is %v ahead counts: %v", ahead, p)
		}
	}
}
