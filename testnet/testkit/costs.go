package testkit

import "strings"

// Costs are texts of costs, and what each API charges for them: JSON bodies, the command line and response headers.
var Costs = []struct {
	Text string
	Cost uint64
	OK   bool
}{
	{"0", 0, true}, {"1", 1, true}, {"7", 7, true}, {"1099511627776", 1 << 40, true},
	// Beyond any limit, and never less for being longer.
	{"9223372036854775808", 1 << 63, true}, {"18446744073709551615", 1<<64 - 1, true},
	{"18446744073709551616", 1<<64 - 1, true}, {strings.Repeat("9", 4000), 1<<64 - 1, true},
	{"", 0, false}, {"-1", 0, false}, {"-0", 0, false}, {"1.5", 0, false}, {"1.0", 0, false}, {"1e9", 0, false},
	{"0x9", 0, false}, {"1_000", 0, false}, {"9 9", 0, false}, {"+1", 0, false}, {"-18446744073709551616", 0, false},
	{"seven", 0, false}, {"null", 0, false}, {"٣", 0, false},
}
