package accesslog

import (
	"strings"
	"time"
)

// stamp is how the formats write a time; all of its parts have a fixed place.
const stamp = "02/Jan/2006:15:04:05 -0700"

const months = "JanFebMarAprMayJunJulAugSepOctNovDec"

// parseStamp reads a time, in UTC: what time.Parse accepts with the months as they are usually spelled, but several times as fast, and
// without making a zone of each offset.
func parseStamp(s string) (t time.Time, ok bool) {
	if len(s) != len(stamp) || s[2] != '/' || s[6] != '/' || s[11] != ':' || s[14] != ':' || s[17] != ':' || s[20] != ' ' {
		return t, false
	}
	day, hour, minute, second := digits(s[0:2]), digits(s[12:14]), digits(s[15:17]), digits(s[18:20])
	month, year := strings.Index(months, s[3:6]), digits(s[7:11])
	zoneHours, zoneMinutes := digits(s[22:24]), digits(s[24:26])
	if day < 1 || hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59 || month < 0 || month%3 != 0 || year < 0 ||
		zoneHours < 0 || zoneHours > 24 || zoneMinutes < 0 || zoneMinutes > 60 {
		return t, false
	}
	offset := time.Duration(zoneHours)*time.Hour + time.Duration(zoneMinutes)*time.Minute
	switch s[21] {
	case '+':
	case '-':
		offset = -offset
	default:
		return t, false
	}
	t = time.Date(year, time.Month(month/3+1), day, hour, minute, second, 0, time.UTC)
	if t.Day() != day { // the month has no such day
		return time.Time{}, false
	}
	return t.Add(-offset), true
}

// digits is the number that s, of a few digits, stands for; -1 if it has anything else.
func digits(s string) (n int) {
	for i := range len(s) {
		c := s[i] - '0'
		if c > 9 {
			return -1
		}
		n = 10*n + int(c)
	}
	return n
}
