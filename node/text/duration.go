package text

import (
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// Duration returns d as people say it, in the largest units that lose nothing: "1 h", "90 min", "30 s", "1.5 ms",
// "7 days". Beyond 100 seconds, part of a second counts as a whole one.
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Duration(max(-d, 0)) // there is no opposite of the least
	case d == 0:
		return "0 s"
	case d < time.Microsecond:
		return strconv.FormatInt(int64(d), 10) + " ns"
	case d < time.Millisecond:
		return decimal(d, time.Microsecond) + " µs"
	case d < time.Second:
		return decimal(d, time.Millisecond) + " ms"
	case d < 100*time.Second && d%time.Minute != 0:
		return decimal(d, time.Second) + " s"
	}
	if rest := d % time.Second; rest > 0 {
		d += time.Second - rest
	}
	var parts []string
	add := func(unit time.Duration, one, many string) {
		if n := d / unit; n == 1 {
			parts = append(parts, one)
		} else if n > 1 {
			parts = append(parts, strconv.FormatInt(int64(n), 10)+" "+many)
		}
		d %= unit
	}
	if d >= 48*time.Hour || d%day == 0 {
		add(day, "1 day", "days")
	}
	if d >= 100*time.Minute || d%time.Hour == 0 {
		add(time.Hour, "1 h", "h")
	}
	add(time.Minute, "1 min", "min")
	add(time.Second, "1 s", "s")
	return strings.Join(parts, " ")
}

// decimal returns how many units d has.
func decimal(d, unit time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(unit), 'f', -1, 64)
}

// Roughly returns d, which is not negative, in two units at most: whole milliseconds, seconds, minutes or hours of it.
func Roughly(d time.Duration) string {
	unit := time.Hour
	switch d = max(d, 0); {
	case d < time.Second:
		unit = time.Millisecond
	case d < 100*time.Second:
		unit = time.Second
	case d < 48*time.Hour:
		unit = time.Minute
	}
	return Duration(d.Truncate(unit))
}

// Setting returns d as a configuration file has it, such as 1h or 1m30s: as time.ParseDuration reads it.
func Setting(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
