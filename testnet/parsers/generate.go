package parsers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/edgelimit/edgelimit/testnet/evasion"
)

// change writes a text in another form.
type change func(r *rand.Rand, text string) string

// changes are those of each source.
var changes = map[Source][]change{
	Target: slices.Concat(pathChanges, queryChanges),
	Cookie: cookieChanges, Bearer: bearerChanges, Header: headerChanges,
}

// changed is the form after up to three changes, none with the seed 0.
func (f Form) changed(seed uint64) Form {
	r := rand.New(rand.NewPCG(seed, 1))
	for range seed % 4 {
		f.Text = pick(r, changes[f.Source])(r, f.Text)
	}
	return f
}

// Generate returns n different forms, each of which is made by one to four changes of the plain one.
func Generate(seed uint64, n int) []Form {
	r := rand.New(rand.NewPCG(seed, 0))
	sources := []struct {
		source  Source
		text    string
		changes []change
	}{
		{Target, plainTarget, pathChanges},
		{Target, plainTarget, queryChanges},
		{Target, plainTarget, changes[Target]},
		{Cookie, "Cookie: session=s1", cookieChanges},
		{Cookie, "Cookie: theme=dark; session=s1", cookieChanges},
		{Bearer, "Authorization: " + evasion.Bearer, bearerChanges},
		{Header, "X-Api-Key: k1", headerChanges},
	}
	known := map[Form]bool{}
	var all []Form
	for len(all) < n {
		s := sources[len(all)%len(sources)]
		f := Form{s.source, s.text}
		for range 1 + min(r.IntN(4), r.IntN(4)) {
			f.Text = s.changes[r.IntN(len(s.changes))](r, f.Text)
		}
		if f.Sendable() && !known[f] {
			known[f] = true
			all = append(all, f)
		}
	}
	return all
}

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

// signs are what parsers remove, replace or stop at, as bytes of UTF-8 and of Latin-1.
var signs = strings.Split("\t| |\v|\f|\x00|\x1f|\x7f|\x85|\xa0|\u0085|\u00a0|\u1680|\u180e|\u2000|\u2003|\u200a|"+
	"\u200b|\u2028|\u2029|\u202f|\u205f|\u2060|\u3000|\ufeff|\xff|à|;|,|=|#|?|&|/|\\|.|+|\"|'|%|"+
	"[|]|(|)|@|:|*|$|_|-|~|!|^|`|{|<", "|")

var spaces = []string{"", " ", "\t", "  ", "\xa0", "\u00a0", "\x85", "\u3000", "\ufeff", "\u2003", "\x1f", "\v"}

// escaped is a byte as %XX, once, twice or thrice, as %uXXXX, or overlong.
func escaped(r *rand.Rand, c byte) string {
	switch r.IntN(10) {
	case 0:
		return fmt.Sprintf("%%25%02x", c)
	case 1:
		return fmt.Sprintf("%%u%04X", c)
	case 2:
		return fmt.Sprintf("%%%02x%%%02X", 0xc0|c>>6, 0x80|c&0x3f)
	case 3:
		return fmt.Sprintf("%%2525%02x", c)
	case 4, 5, 6:
		return fmt.Sprintf("%%%02X", c)
	}
	return fmt.Sprintf("%%%02x", c)
}

// within applies a change to the part of a text that is between two places.
func within(c change, bounds func(text string) (from, to int)) change {
	return func(r *rand.Rand, text string) string {
		from, to := bounds(text)
		return text[:from] + c(r, text[from:to]) + text[to:]
	}
}

// escape escapes a byte of the text.
func escape(r *rand.Rand, text string) string {
	if text == "" {
		return text
	}
	at := r.IntN(len(text))
	return text[:at] + escaped(r, text[at]) + text[at+1:]
}

// insert puts a sign in, as it is or escaped.
func insert(r *rand.Rand, text string) string {
	sign := pick(r, signs)
	if r.IntN(3) == 0 {
		var b strings.Builder
		for i := range len(sign) {
			b.WriteString(escaped(r, sign[i]))
		}
		sign = b.String()
	}
	at := r.IntN(len(text) + 1)
	switch r.IntN(3) { // mostly around the text
	case 0:
		at = 0
	case 1:
		at = len(text)
	}
	return text[:at] + sign + text[at:]
}

// capital writes a letter in the other case.
func capital(r *rand.Rand, text string) string {
	b := []byte(text)
	for range 20 {
		if len(b) == 0 {
			break
		}
		if c := &b[r.IntN(len(b))]; 'a' <= *c|0x20 && *c|0x20 <= 'z' {
			*c ^= 0x20
			break
		}
	}
	return string(b)
}

// replaced writes one of the places of old as one of others.
func replaced(old string, others ...string) change {
	return func(r *rand.Rand, text string) string {
		n := strings.Count(text, old)
		if n == 0 {
			return text
		}
		at := -1
		for range 1 + r.IntN(n) {
			at += 1 + strings.Index(text[at+1:], old)
		}
		return text[:at] + pick(r, others) + text[at+len(old):]
	}
}

// around puts one of some texts before or after.
func around(before, after []string) change {
	return func(r *rand.Rand, text string) string {
		if i := r.IntN(len(before) + len(after)); i < len(before) {
			return before[i] + text
		} else {
			return text + after[i-len(before)]
		}
	}
}

func pathOf(text string) (from, to int) { return 0, strings.IndexByte(text+"?", '?') }

func queryOf(text string) (from, to int) {
	_, path := pathOf(text)
	return min(path+1, len(text)), len(text)
}

var pathChanges = []change{
	within(escape, pathOf), within(escape, pathOf), within(insert, pathOf), within(capital, pathOf),
	within(replaced("/", `\`, "//", "/./", "/x/../", "/x/%2e%2e/", "/x/%2E./", "%2f", "%2F", "%5c", "/..;/", "/;/",
		";/", ";a/",
		";a=b/", ";a%2fb/", "/x/..;a/", "/x/..%2f", `/x\..\`, "/.;/", "/%2e/", "///", "/ /", "%252f", "/../",
		"/x//../",
		"\t/", "/\t", "/;a/../", "/x%2f../"), pathOf),
	within(around([]string{"/x", "//x", `/\x`, "///x", `\\x`, "http://x", "HTTP://shop.example", "https://u@x:1",
		"/.", "/x/..",
		"/x/y/../..", "/;a", "/%2e", "/x/%2e%2e", "//x@y", `/\\x`, "//", "/../x/..", "http:", "/%0a", "/.;a"},
		[]string{"/", ";a", ";a/b", ";a%2fb", ";/", ";", "#x", "%23x", "%3fx", "?", "%00", "%00.png", "/.", "/x/..",
			"//", "%20",
			" ", "\t", "%09", "%0a", "\xa0", "%C2%A0", ".", "..", "/..", "%2f", `\`, "%5c", "#?", "/%2e",
			"/x/%2e%2e", "%3b", "%3ba=1",
			"%253b", "\x00", ";a?", "#/../x", ";a=/../x", "+", "/;a", "%", "&"}), pathOf),
}

// pairs changes one of the pairs of a text.
func pairs(separator byte, c change) change {
	return func(r *rand.Rand, text string) string {
		all := strings.Split(text, string(separator))
		i := r.IntN(len(all))
		for k, pair := range all { // mostly the one that matters
			if r.IntN(8) > 0 && (strings.Contains(pair, "token") || strings.Contains(pair, "session")) {
				i = k
			}
		}
		all[i] = c(r, all[i])
		return strings.Join(all, string(separator))
	}
}

func nameOf(pair string) (from, to int) { return 0, strings.IndexByte(pair+"=", '=') }

func valueOf(pair string) (from, to int) {
	_, name := nameOf(pair)
	return min(name+1, len(pair)), len(pair)
}

var bracketed = around([]string{"[", "]", "%5B", "%5d", "[]", "=", ".", "_", "[x]", "%00", "+", " ", "%20", "?", ";",
	"#", "%C2%A0"},
	[]string{"[]", "]", "[", "%5B%5D", "[0]", "[a]", "[a][b]", "%5d", "[\x00", "%00", "%00x", "+", " ", "%20", ".",
		"[]]", "[[", "[0",
		"%5B", "\xa0", "[]x", "[x]y"})

var queryChanges = []change{
	within(pairs('&', within(escape, nameOf)), queryOf), within(pairs('&', within(escape, valueOf)), queryOf),
	within(pairs('&', within(insert, nameOf)), queryOf), within(pairs('&', within(insert, valueOf)), queryOf),
	within(pairs('&', within(bracketed, nameOf)), queryOf), within(pairs('&', within(bracketed, nameOf)), queryOf),
	within(pairs('&', within(capital, nameOf)), queryOf),
	within(replaced("&", ";", "#", "?", "&&", "%26", "&amp;", ",", "&?", "&=&", "&;", "&%zz&", "&token&",
		"&token=&"), queryOf),
	within(around([]string{"token=t2&", "token&", "?", "&", ";", "#", "%zz&", "=&", "token[]=t2&", "token[a]=t2&",
		"TOKEN=t2&", "token=%00&",
		"token;"},
		[]string{"&token=t2", "#x", "#&token=t2", "&", ";x", "&token", ";token=t2", "&token[]=t2", "&token[a]=t2",
			"&Token=t2",
			"&token%00=t2", "&tok%65n=t2", "?x", "%00", "&token.=t2"}), queryOf),
}

func lineOf(text string) (from, to int) {
	if i := strings.Index(text, ": "); i >= 0 {
		return i + 2, len(text)
	}
	return len(text), len(text)
}

var cookieChanges = []change{
	within(pairs(';', within(insert, nameOf)), lineOf), within(pairs(';', within(insert, valueOf)), lineOf),
	within(pairs(';', within(escape, nameOf)), lineOf), within(pairs(';', within(escape, valueOf)), lineOf),
	within(pairs(';', within(capital, nameOf)), lineOf), within(pairs(';', within(bracketed, nameOf)), lineOf),
	within(pairs(';', func(r *rand.Rand, pair string) string {
		name, value, _ := strings.Cut(pair, "=")
		return pick(r, spaces) + name + pick(r, spaces) + "=" + pick(r, spaces) + value + pick(r, spaces)
	}), lineOf),
	within(replaced("s1", `"s1"`, `j:"s1"`, "j:s1", `"s1`, `s1"`, `"s1X`, `"\163\061"`, `"\s\1"`, `j:["s1"]`,
		`j:{"a":"s1"}`, "s1,",
		"%22s1%22", "j%3A%22s1%22", `"s1" x`, `"s1";`, `"s1"x`, `'s1'`, `"\x731"`, `""s1""`, "s:s1.x", `j: "s1"`,
		"s1;", "s1 x", "s1,x",
		`"%731"`, `"s1\"`, `"s\"1"`, `j:"\u00731"`, `"s1" `, "=s1", `\163\061`, "s1\xa0", "\xa0s1", "s1\u3000",
		"\x1fs1"), lineOf),
	within(replaced(";", ",", ";;", "; ;", ";\t", ";\xa0", ";\u00a0", "&", ";=", ";\x00", ";session;", `; a="; `,
		`; a="b; `, ";\u3000",
		";$Path=/;", " ;", ";,", "; a=%zz;", ";\x1f", ";a=\xff;", `; a=b" ;`), lineOf),
	within(around([]string{"session=s2; ", "=", "session; ", "session=; ", `a="`, "$Version=1; ", ";", ",", "\xa0",
		"\u3000", "session=%zz; ",
		`session="s2; `, "Session=s2; ", "=x; ", "session[]=s2; ", "s.ession=s2;", "\x1f", "a=b,", "[; "},
		[]string{"; session=s2", ";", "; session", "; session=", `"`, ", session=s2", "; Session=s2", " ", "\xa0",
			"\u3000", ",", "; =session=s2",
			"\x85", "; session[]=s2", ", x=y", "\nCookie: session=s2", "\nCookie: a=b", "; $Path=/", "\u00a0",
			"\v"}), lineOf),
}

var bearerChanges = []change{
	within(replaced(" ", "\xa0", "\u00a0", "\x85", "\t", "  ", " \t", "\u3000", "\ufeff", "\u2003", ",", ", ", "=",
		":", "\x1f", "\v", "\x00", "", " Bearer ",
		"\xa0 ", "\u180e", " \"", "\u200b", "\xff", " token=", "%20", "+", "\x1c", "\u0085", "\u2028"), lineOf),
	within(insert, lineOf), within(capital, lineOf), within(escape, lineOf),
	within(around([]string{" ", "\t", "\xa0", "\u3000", ",", "Basic YTpi, ", "Basic YTpi ", "\ufeff",
		"Bearer x.y.z, ", "x", "\"", "\x1f", "Bearer ", "a=b, "},
		[]string{" ", "=", "==", ",", ", Bearer x.y.z", " x", "\xa0", "\u3000", "\"", ";", ".x",
			"\nAuthorization: Basic YTpi",
			"\nAuthorization: Bearer x.y.z", "\x85", "\t", "%3D", ", Basic x", "\x1f", "\u2028", "\v"}), lineOf),
	func(r *rand.Rand, text string) string {
		return pick(r, []string{"Authorization: Basic YTpi\n", "Authorization: Bearer x.y.z\n", "Authorization:\n",
			"authorization: a\n"}) + text
	},
}

// nameBefore is the name of the last line.
func nameBefore(text string) (from, to int) {
	from = strings.LastIndexByte(text, '\n') + 1
	return from, from + strings.IndexByte(text[from:]+":", ':')
}

func lastValue(text string) (from, to int) {
	_, to = nameBefore(text)
	return min(to+1, len(text)), len(text)
}

var headerChanges = []change{
	within(replaced("-", "_", ".", "+", "~", "!", "#", "$", "%", "&", "'", "*", "^", "`", "|", "--", "", "_-", "-_",
		"\xa0", "/"), nameBefore),
	within(replaced("-", "_"), nameBefore), within(capital, nameBefore),
	within(insert, nameBefore), within(insert, lastValue),
	within(around([]string{"_", "-", "HTTP_", "http-", "."}, []string{"-", "_", " ", "\t", ".", "[]", "\x00", "~"}),
		nameBefore),
	within(around(spaces, spaces), lastValue),
	func(r *rand.Rand, text string) string {
		other := "X-Api-Key: k2"
		if r.IntN(2) == 0 {
			other = within(replaced("-", "_", ".", "+"), nameBefore)(r, other)
		}
		if r.IntN(2) == 0 {
			return other + "\n" + text
		}
		return text + "\n" + other
	},
	func(_ *rand.Rand, text string) string { return text + "\nX-Api-Key:" },
}
