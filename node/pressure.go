package node

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"
)

// pressureLasts is how long a reported pressure counts. Who reports it should do so every second or so.
const pressureLasts = 5 * time.Second

// report is a pressure that was reported, and when.
type report struct {
	pressure float64
	at       int64
}

// SetPressure reports how hard it is for the system behind the node to keep up, from 0, idle, to 1: elastic rules without a parent let more
// pass while that is low. A report counts for five seconds. What is no number from 0 to 1 counts as 1.
func (n *Node) SetPressure(p float64) {
	if !(p >= 0 && p <= 1) {
		p = 1
	}
	n.pressure.Store(&report{p, n.clock.Now()})
}

// Pressure is what was last reported; 1 where that is too long ago, or nothing was: where nobody looks, nothing is known to be idle.
func (n *Node) Pressure() float64 {
	r := n.pressure.Load()
	if r == nil {
		return 1
	}
	if age := time.Duration(n.clock.Coarse() - r.at); age.Abs() > pressureLasts { // the clock may have been set back
		return 1
	}
	return r.pressure
}

// pressureEvery is how often the pressure file is read.
const pressureEvery = time.Second

// watchPressure reports what the pressure file says.
func (n *Node) watchPressure(ctx context.Context) {
	if n.cfg.PressureFile == "" {
		return
	}
	ticker := time.NewTicker(pressureEvery)
	defer ticker.Stop()
	failing := false
	for {
		p, err := readPressure(n.cfg.PressureFile)
		if err == nil {
			n.SetPressure(p)
		} else if !failing {
			n.log.Warn("the pressure cannot be read, and counts as high", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// readPressure reads a file of Linux' pressure stall information, such as /proc/pressure/cpu or a cgroup's cpu.pressure.
func readPressure(name string) (float64, error) {
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
		return 0, fmt.Errorf("pressure_file: %s does not begin with the part of the last ten seconds, as in \"some avg10=1.50\"", name)
	}
	return p, nil
}

// parsePressure takes the part of the last ten seconds in which something had to wait, told in percent, out of
//
//	some avg10=1.50 avg60=0.80 avg300=0.20 total=123456
func parsePressure(text []byte) (p float64, ok bool) {
	rest, ok := bytes.CutPrefix(text, []byte("some avg10="))
	number, _, found := bytes.Cut(rest, []byte(" "))
	p, err := strconv.ParseFloat(string(number), 64)
	return p / 100, ok && found && err == nil && p >= 0 && p <= 100
}
