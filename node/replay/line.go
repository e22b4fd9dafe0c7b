package replay

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// parser parses lines of any format into the values of a layout.
type parser struct {
	layout *layout
	format Format
	json   jsonLine
}

// parse returns a request's time in ns since the Unix epoch, and sets values, as many as the layout is wide. They share
// the line's memory, and are empty where the line lacks them.
func (p *parser) parse(line string, values []string) (at int64, err error) {
	clear(values)
	if p.format == JSON || p.format == Auto && strings.HasPrefix(strings.TrimLeft(line, " \t\ufeff"), "{") {
		return p.parseJSON(line, values)
	}
	return p.parseCombined(line, values)
}

func (p *parser) parseJSON(line string, values []string) (int64, error) {
	if err := p.json.parse(strings.TrimPrefix(line, "\ufeff"), &p.layout.json, values); err != nil {
		return 0, err
	}
	if values[0] == "" {
		return 0, fmt.Errorf("no time: it is none of the usual fields; name it with %s=PATH", timeKey)
	}
	return parseTime(values[0])
}

func (p *parser) parseCombined(line string, values []string) (at int64, err error) {
	var e hostEntry
	e.host, line = cutHost(line)
	if e.Entry, err = parseEntry(line); err != nil {
		return 0, err
	}
	for i, get := range p.layout.get {
		if get != nil {
			values[i] = get(&e)
		}
	}
	return inRange(e.Time)
}

// cutHost removes the virtual host from a line that begins with one: an address follows it, instead of the ident, which
// is a dash.
func cutHost(line string) (host, rest string) {
	host, rest, ok := strings.Cut(line, " ")
	if !ok || strings.HasPrefix(rest, "- ") {
		return "", line
	}
	addr, _, _ := strings.Cut(rest, " ")
	if _, err := netip.ParseAddr(addr); err != nil {
		return "", line
	}
	return withoutPort(host), rest
}

var errTime = errors.New("the time is none: want one like 2006-01-02T15:04:05Z or " + stamp + ", or seconds since 1970")

// parseTime parses the times that servers write: RFC 3339, that of the combined format, and seconds, milliseconds,
// microseconds or nanoseconds since 1970, by their size.
func parseTime(s string) (int64, error) {
	switch {
	case len(s) > 64:
		return 0, errTime
	case len(s) > 10 && s[4] == '-':
		return parseLayouts(s, time.RFC3339, "2006-01-02T15:04:05Z0700", "2006-01-02 15:04:05Z07:00")
	case len(s) > 10 && s[2] == '/':
		return parseLayouts(s, stamp)
	}
	return epoch(s)
}

func parseLayouts(s string, layouts ...string) (int64, error) {
	for _, layout := range layouts {
		if t, err := time.Parse(layout, s); err == nil {
			return inRange(t)
		}
	}
	return 0, errTime
}

func epoch(s string) (int64, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f > 0 && f < 1e20) {
		return 0, errTime
	}
	for f >= 1e11 { // not seconds: they would be beyond the year 5138
		f /= 1e3
	}
	seconds := math.Floor(f)
	return inRange(time.Unix(int64(seconds), int64((f-seconds)*1e9)))
}

// The engine counts from 1970. Times outside these years are a fault of the log.
const firstYear, lastYear = 1971, 2199

func inRange(t time.Time) (int64, error) {
	if y := t.UTC().Year(); y < firstYear || y > lastYear {
		return 0, fmt.Errorf("the time is outside the years %d to %d", firstYear, lastYear)
	}
	return t.UnixNano(), nil
}
