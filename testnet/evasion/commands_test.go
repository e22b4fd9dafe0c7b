package evasion

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// throttle is CL.THROTTLE of the plain request, but for its quantity of 1.
func throttle(key string) []string { return []string{"CL.THROTTLE", key, "9999", "1000", "31536000"} }

// array is a command as clients send it.
func array(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.String()
}

// command is a form of CL.THROTTLE: pieces that are written one after the other.
type command struct {
	name     string
	pieces   []string
	key      string // the plain request's; its bucket is the one to be charged
	quantity uint64 // of each throttle in it that is admitted
	refused  bool   // no server takes it for the plain request
}

// silent are forms that get no answer but the end of the connection: those that are not complete, and what a browser
// sends; or that wait for EXEC.
var silent = []string{"a count above", "line: no end", "line: of HTTP", "after MULTI"}

// givesBack is the quantity -1, as a difference of what is left.
const givesBack = math.MaxUint64

// spellings are other spellings of a number, none of which is another number.
func spellings(n string) map[string]string {
	return map[string]string{
		"a zero before": "0" + n, "a plus": "+" + n, "a blank after": n + " ", "a blank before": " " + n,
		"a fraction":  n + ".0",
		"an exponent": n + "e0", "hexadecimal": "0x" + n, "a tab": n + "\t", "a line end": n + "\r\n",
		"NUL":        n + "\x00",
		"NUL before": "\x00" + n, "minus": "-" + n, "two minuses": "--" + n, "underscores": n[:1] + "_" + n[1:],
		"a comma": n + ",0",
		"letters": n + "a", "2^64 more": "1844674407370955161" + n, "many zeros": strings.Repeat("0", 30) + n,
		"wide digits": "１", "quoted": `"` + n + `"`, "nothing": "", "infinity": "inf", "not a number": "nan",
	}
}

// quotedWord is a word as a line has it in which each byte is escaped.
func quotedWord(w string) string {
	var b strings.Builder
	for _, c := range []byte(w) {
		fmt.Fprintf(&b, `\x%02x`, c)
	}
	return `"` + b.String() + `"`
}

func numberForms() (all []command) {
	plain := append(throttle("k"), "1")
	for at, what := range map[int]string{2: "max_burst", 3: "count", 4: "period", 5: "quantity"} {
		for name, spelled := range spellings(plain[at]) {
			words := slices.Clone(plain)
			words[at] = spelled
			all = append(all, command{name: what + ", " + name, pieces: []string{array(words...)}, quantity: 1})
			if what == "quantity" && name == "minus" {
				all[len(all)-1].quantity = givesBack
			}
		}
	}
	for quantity, n := range map[string]uint64{"0": 0, "1": 1, "2": 2, "100": 100, "-0": 0, "-1": givesBack,
		"999999999999":        0,
		"9223372036854775807": 0, "9223372036854775808": 0, "18446744073709551615": 0, "4294967297": 0} {
		all = append(all, command{name: "a quantity of " + quantity,
			pieces: []string{array(append(throttle("k"), quantity)...)}, quantity: n})
	}
	return all
}

func nameForms() (all []command) {
	for _, name := range []string{"cl.throttle", "CL.THROTTLE", "Cl.Throttle", "cL.tHrOtTlE"} {
		words := append([]string{name}, throttle("k")[1:]...)
		all = append(all,
			command{name: "the name " + name, pieces: []string{array(words...)}, quantity: 1},
			command{name: "the name in a line: " + name, pieces: []string{strings.Join(words, " ") + "\r\n"},
				quantity: 1})
	}
	for _, name := range []string{"CL.THROTTLE ", " CL.THROTTLE", "CL.THROTTLE\x00", "CL_THROTTLE",
		"CL.THROTTLE\r\n", "CLTHROTTLE",
		"ＣＬ.THROTTLE", "CL.THROTTLE.", "CL.THROTTL", "", "CL.THROTTLE k", strings.Repeat("CL.THROTTLE", 100)} {
		words := append([]string{name}, throttle("k")[1:]...)
		all = append(all, command{name: fmt.Sprintf("the name %.20q", name), pieces: []string{array(words...)},
			refused: true})
	}
	return all
}

func keyForms() (all []command) {
	for name, key := range map[string]string{
		"empty": "", "a blank": " ", "NUL": "\x00", "CRLF": "\r\n", "binary": "\x00\xff\r\n\x80$1\r\n",
		"a quote": `"`, "quotes": `'"\`,
		"a command": array("PING"), "UTF-8": "ключ", "overlong UTF-8": "\xc0\x80", "a star": "*1",
		"a dollar": "$1", "a number": "0",
		"capital K": "K", "a blank after": "k ", "255 bytes": strings.Repeat("x", 255),
		"4,096 bytes":  strings.Repeat("x", 4096),
		"16,384 bytes": strings.Repeat("x", 16_384),
	} {
		all = append(all, command{name: "key: " + name, pieces: []string{array(throttle(key)...)}, key: key,
			quantity: 1})
		words := throttle(key)
		words[1] = quotedWord(key)
		line := strings.Join(words, " ") + "\r\n"
		all = append(all, command{name: "key in a line: " + name, pieces: []string{line}, key: key, quantity: 1})
	}
	long := strings.Repeat("x", 16_385)
	return append(all, command{name: "key: 16,385 bytes", pieces: []string{array(throttle(long)...)},
		refused: true})
}

// respLineForms are lines, as people type them, and those that look like it.
func respLineForms() (all []command) {
	words := throttle("k")
	line := strings.Join(words, " ")
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quotedWord(w)
	}
	for name, text := range map[string]string{
		"one": line + "\r\n", "a bare line feed": line + "\n", "blanks": "  " + strings.Join(words, "   ") + "  \r\n",
		"tabs": strings.Join(words, "\t") + "\r\n", "NULs between": strings.Join(words, "\x00") + "\r\n",
		"carriage returns between": strings.Join(words, "\r") + "\r\n", "quotes": `"` + strings.Join(words,
			`" "`) + "\"\r\n",
		"apostrophes": `'` + strings.Join(words, `' '`) + "'\r\n", "escapes": strings.Join(quoted, " ") + "\r\n",
		"an empty line before": "\r\n" + line + "\r\n", "empty lines before": strings.Repeat("\n", 100) + line + "\n",
		"quotes within":      "CL.\"THROTTLE\" k 9999 1000 31536000\r\n",
		"half a quoted word": "CL.THROTTLE \"k\" 9999 1000 3153\"6000\"\n",
	} {
		all = append(all, command{name: "line: " + name, pieces: []string{text}, quantity: 1})
	}
	for name, text := range map[string]string{
		"no end": line, "an open quote": line + " \"1\r\n",
		"text after a quote": "CL.THROTTLE \"k\"x 9999 1000 31536000\r\n",
		"commas":             strings.Join(words, ",") + "\r\n", "of HTTP": "POST /" + line + " HTTP/1.1\r\n",
		"too long": line + strings.Repeat(" ", 16<<10) + "\r\n",
	} {
		all = append(all, command{name: "line: " + name, pieces: []string{text}, refused: true})
	}
	return all
}

// frameForms are arrays, written and counted in other ways, and more than one.
func frameForms() (all []command) {
	one := array(throttle("k")...)
	add := func(refused bool, name string, pieces ...string) {
		all = append(all, command{name: name, pieces: pieces, quantity: 1, refused: refused})
	}
	add(false, "the plain one", one)
	add(false, "a byte at a time", strings.Split(one, "")...)
	for at := 1; at < len(one); at += 3 {
		add(false, fmt.Sprintf("cut after %d bytes", at), one[:at], one[at:])
	}
	for _, n := range []int{2, 10, 500} {
		add(false, fmt.Sprintf("%d at once", n), strings.Repeat(one, n))
	}
	for name, before := range map[string]string{
		"PING": array("PING"), "HELLO 2": array("HELLO", "2"), "HELLO 3": array("HELLO", "3"),
		"SELECT 0":           array("SELECT", "0"),
		"an unknown command": array("GET", "k"), "MULTI": array("MULTI"), "RESET": array("RESET"),
		"CLIENT SETNAME": array("CLIENT", "SETNAME", "x"), "CLIENT REPLY OFF": array("CLIENT", "REPLY", "OFF"),
		"AUTH":           array("AUTH", "x"),
		"an empty array": "*0\r\n", "a null array": "*-1\r\n", "an empty line": "\r\n",
		"a peek":   array(append(throttle("k"), "0")...),
		"READONLY": array("READONLY"), "ASKING": array("ASKING"),
	} {
		add(false, "after "+name, before+one)
	}
	add(false, "in a transaction", array("MULTI")+one+array("EXEC"))
	add(false, "in another database", array("SELECT", "1")+one)
	all[len(all)-1].quantity = 0 // of this one's key
	add(false, "before QUIT", one+array("QUIT"))
	add(false, "before nonsense", one+"*x\r\n")
	add(false, "before half of another", one+one[:20])
	for name, changed := range map[string][2]string{
		"a plus in the count": {"*5", "*+5"}, "a zero in the count": {"*5", "*05"},
		"a blank in the count": {"*5", "* 5"},
		"a count too high":     {"*5", "*1025"}, "a count below": {"*5", "*4"}, "a count above": {"*5", "*6"},
		"bare line feeds":    {"\r\n", "\n"},
		"a plus in a length": {"$1\r", "$+1\r"}, "a zero in a length": {"$1\r", "$01\r"},
		"a length below": {"$11", "$10"},
		"a length above": {"$11", "$12"}, "a length below zero": {"$1\r", "$-1\r"}, "a huge length": {"$1\r",
			"$99999999999\r"},
		"a number of RESP3": {"$4\r\n1000", ":1000"}, "a simple string": {"$1\r\nk", "+k"},
		"a verbatim string": {"$1\r\nk", "=5\r\ntxt:k"},
		"a set of RESP3":    {"*5", "~5"}, "a push of RESP3": {"*5", ">5"}, "an attribute of RESP3": {"*5", "|5"},
		"an array in it":     {"$1\r\nk", "*1\r\n$1\r\nk"},
		"a string in pieces": {"$1\r\nk", "$?\r\n;1\r\nk\r\n;0"}, "an array without a count": {"*5", "*?"},
	} {
		add(true, name, strings.ReplaceAll(one, changed[0], changed[1]))
	}
	add(true, "one word less", array(throttle("k")[:4]...))
	add(true, "one word more", array(append(throttle("k"), "1", "1")...))
	add(true, "an empty word more", array(append(throttle("k"), "")...))
	add(true, "in EVAL", array("EVAL", "return redis.call('CL.THROTTLE','k','9999','1000','31536000')", "0"))
	return all
}

// throttleForms are all forms of CL.THROTTLE.
func throttleForms() []command {
	return slices.Concat(frameForms(), nameForms(), numberForms(), keyForms(), respLineForms())
}
