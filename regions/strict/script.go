package strict

import (
	"crypto/sha1"
	"embed"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

//go:embed lua/*.lua
var sources embed.FS

// algorithmFiles are the scripts of the algorithms.
var algorithmFiles = []struct {
	file    string
	numbers []counters.Algorithm
}{
	{"sliding_window", []counters.Algorithm{counters.SlidingWindow}},
	{"fixed_window", []counters.Algorithm{counters.FixedWindow}},
	{"sliding_log", []counters.Algorithm{counters.SlidingLog}},
	{"bucket", []counters.Algorithm{counters.TokenBucket, counters.LeakyBucket, counters.LeakyQueue}},
}

// script is a script with the name by which EVALSHA knows it.
type script struct{ source, sha string }

func newScript(source string) script {
	sum := sha1.Sum([]byte(source))
	return script{source, hex.EncodeToString(sum[:])}
}

var decideScript = newScript(assemble(read("clock")))

func read(file string) string {
	text, err := sources.ReadFile("lua/" + file + ".lua")
	if err != nil {
		panic(err) // it is embedded
	}
	return string(text)
}

// assemble returns the script that decides, with a script that sets `now`.
func assemble(clock string) string {
	var algorithms strings.Builder
	for _, a := range algorithmFiles {
		var is []string
		for _, n := range a.numbers {
			is = append(is, fmt.Sprintf("number == %d", n))
		}
		fmt.Fprintf(&algorithms, "if %s then\n%send\n", strings.Join(is, " or "), read(a.file))
	}
	return minify(clock + strings.Replace(read("main"), "--@algorithms\n", algorithms.String(), 1))
}

// minify drops comments and indentation: servers keep the source.
func minify(source string) string {
	var out strings.Builder
	for line := range strings.Lines(source) {
		line, _, _ = strings.Cut(line, "--")
		if line = strings.TrimSpace(line); line != "" {
			out.WriteString(line + "\n")
		}
	}
	return out.String()
}

// The kinds of calls.
const (
	callTake        = 'n'
	callAgain       = 'r' // a take that may have been executed, or may be yet
	callLease       = 'l'
	callReport      = 'o'
	callReportAgain = 'p' // such a report
	callRefund      = 'x'
)

// answer is what the script answers about a layer.
type answer struct {
	flags                  byte
	remaining, wait, reset float64 // a count, and microseconds
}

// Flags of an answer.
const (
	answerAllowed = 1 << iota
	answerWaived
	answerCharged
	answerRefunded
	answerLeased
)

const answerSize = 1 + 3*8

// decode reads the answer of the script about so many layers: its time in microseconds, and an answer for each.
func decode(reply any, layers int) (now int64, answers []answer, err error) {
	text, ok := reply.(string)
	if !ok || len(text) != 8+layers*answerSize {
		return 0, nil, fmt.Errorf("the script answered %.40q about %d layers", fmt.Sprint(reply), layers)
	}
	at := number(text)
	if !(at >= 0 && at < exact) {
		return 0, nil, fmt.Errorf("the script answered the time %v", at)
	}
	answers = make([]answer, 0, layers)
	for text = text[8:]; text != ""; text = text[answerSize:] {
		a := answer{text[0], number(text[1:]), number(text[9:]), number(text[17:])}
		if !(a.remaining >= 0 && a.remaining <= counters.MaxLimit) || !(a.wait >= -1) || !(a.reset >= 0) {
			return 0, nil, fmt.Errorf("the script answered %+v", a)
		}
		answers = append(answers, a)
	}
	return int64(at), answers, nil
}

func number(text string) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64([]byte(text[:8])))
}

// micros converts a number of microseconds.
func micros(n float64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/1024)) * time.Microsecond
}

// decision writes the answer about a layer to d.
func (a *answer) decision(l *counters.Limit, mode counters.Mode, d *counters.Decision) {
	m := l.Meter()
	*d = counters.Decision{Rule: m.Rule, Window: m.Window, Limit: l.Max(), Mode: mode,
		Allowed: a.flags&answerAllowed != 0, Waived: a.flags&answerWaived != 0,
		Remaining: min(uint64(a.remaining), l.Max()), ResetAfter: micros(a.reset)}
	switch {
	case a.flags&answerWaived != 0:
	case !d.Allowed && a.wait < 0:
		d.RetryAfter = counters.Never
	case !d.Allowed:
		d.RetryAfter = micros(a.wait)
	default:
		d.Delay = max(0, micros(a.wait))
	}
}
