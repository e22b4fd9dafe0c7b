package telemetry

import (
	"testing"
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
	for _, text := range []string{"", "12.5\n", "full avg10=0.00 avg60=0", "some avg10=", "some avg10=1.5",
		"some avg10=-1 avg60=0", "some avg10=101 a", "some avg10=NaN a"} {
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
