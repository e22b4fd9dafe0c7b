package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"
)

// FollowPressure calls report once a second with the pressure that a file holds, until ctx ends.
func FollowPressure(ctx context.Context, file string, report func(float64), log *slog.Logger) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	failing := false
	for {
		p, err := ReadPressure(file)
		if err == nil {
			report(p)
		} else if !failing {
			log.Warn("the pressure cannot be read, and counts as high", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// ReadPressure reads a file of Linux' pressure stall information, such as /proc/pressure/cpu or a cgroup's
// cpu.pressure: the part of the last ten seconds in which some task had to wait, 0 to 1.
func ReadPressure(name string) (float64, error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, fmt.Errorf("pressure_file: %w", err)
	}
	defer f.Close()
	var b [256]byte
	size, err := f.Read(b[:])
	if err != nil {
		return 0, fmt.Errorf("pressure_file: %w", err)
	}
	p, ok := parsePressure(b[:size])
	if !ok {
		return 0, fmt.Errorf("pressure_file: %s does not begin with the part of the last ten seconds, "+
			"as in \"some avg10=1.50\"", name)
	}
	return p, nil
}

// parsePressure takes avg10, in percent, out of
//
//	some avg10=1.50 avg60=0.80 avg300=0.20 total=123456
func parsePressure(text []byte) (p float64, ok bool) {
	rest, ok := bytes.CutPrefix(text, []byte("some avg10="))
	number, _, found := bytes.Cut(rest, []byte(" "))
	p, err := strconv.ParseFloat(string(number), 64)
	return p / 100, ok && found && err == nil && p >= 0 && p <= 100
}
