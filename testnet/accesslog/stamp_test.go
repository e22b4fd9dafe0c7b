package accesslog

import (
	"testing"
	"time"
)

// FuzzParseStamp: it reads what time.Parse reads, with months in their usual spelling, and nothing else.
func FuzzParseStamp(f *testing.F) {
	for _, s := range []string{
		"01/Mar/2026:12:00:00 +0000", "29/Feb/2024:23:59:59 -1330", "29/Feb/2023:00:00:00 +0000", "31/Dec/9999:24:00:00 +2400",
		"00/Jan/2026:12:00:00 +0000", "01/Mrz/2026:12:00:00 +0000", "01/anF/2026:12:00:00 +0000", "01/Mar/2026:12:60:00 +0060",
		"01/Mar/2026:12:00:60 +0061", "01/Mar/2026:12:00:00 =0000", "+1/Mar/2026:12:00:00 +2500", "31/Dec/0000:00:00:00 +0100", "31/Dec/0000:0:00:00  +0100", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := parseStamp(s)
		want, err := time.Parse(stamp, s)
		// time.Parse takes more than logs hold, as an hour of one digit: all that is written as usual has to be read.
		usual := err == nil && want.Format(stamp) == s
		if usual && !ok || ok && (err != nil || !got.Equal(want) || got.Location() != time.UTC) {
			t.Fatalf("%q: %v, %v, want %v, %v", s, got, ok, want, err)
		}
	})
}
