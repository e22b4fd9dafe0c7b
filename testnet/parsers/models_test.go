package parsers

import (
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// A model reports whether a server's parser reads the plain value of a source: of a target, or of lines of the header.
// It may read more than the server, which only makes it stricter. One that is nil is not modelled.
type model struct {
	path, query            func(target string) bool
	cookie, bearer, header func(lines []string) bool
}

var models = map[string]model{
	"Django": {
		path:   func(target string) bool { return percent(pythonURL(target).path) == plainPath },
		query:  func(target string) bool { return last(pythonQuery(pythonURL(target).query)) == plainToken },
		cookie: func(lines []string) bool { return pythonCookie(utf8Text(joined(lines, wsgiName, pythonHeader, ","))) },
		bearer: func(lines []string) bool { return fieldsBearer(joined(lines, wsgiName, pythonHeader, ",")) },
		header: func(lines []string) bool { return joined(lines, wsgiName, pythonHeader, ",") == plainKey },
	},
	"Flask": {
		query:  func(target string) bool { return first(pythonQuery(flaskURL(target).query)) == plainToken },
		cookie: func(lines []string) bool { return werkzeugCookie(joined(lines, wsgiName, flaskHeader, ",")) },
		bearer: func(lines []string) bool { return fieldsBearer(joined(lines, wsgiName, flaskHeader, ",")) },
		header: func(lines []string) bool { return anyOf(lines, wsgiName) },
	},
	"Starlette": {
		path: func(target string) bool {
			raw, _, _ := strings.Cut(target, "?")
			p := noTabs.Replace(percent(raw))
			return p[:strings.IndexAny(p+"#", "#?")] == plainPath
		},
		query: func(target string) bool {
			_, query, _ := strings.Cut(target, "?")
			return last(pythonQuery(query)) == plainToken
		},
		cookie: func(lines []string) bool { return pythonCookie(runes(oneOf(lines, exactName, first))) },
		bearer: func(lines []string) bool {
			scheme, token, _ := strings.Cut(oneOf(lines, exactName, first), " ")
			return strings.EqualFold(scheme, "bearer") && isBearer(strings.TrimFunc(runes(token), isPython))
		},
		header: func(lines []string) bool { return oneOf(lines, exactName, first) == plainKey },
	},
	"Express": {
		query:  func(target string) bool { return qsQuery(target) },
		cookie: func(lines []string) bool { return expressCookie(runes(joined(lines, exactName, nodeHeader, "; "))) },
		bearer: func(lines []string) bool {
			m := regexp.MustCompile(`([^` + jsBlanks + `]+)[` + jsBlanks + `]+([^` + jsBlanks + `]+)`).
				FindStringSubmatch(runes(oneOf(lines, exactName, first)))
			return m != nil && strings.EqualFold(m[1], "bearer") && isBearer(m[2])
		},
		header: func(lines []string) bool { return joined(lines, exactName, nodeHeader, ", ") == plainKey },
	},
	"Node": {
		query:  func(target string) bool { return searchParams(target) == plainToken },
		header: func(lines []string) bool { return joined(lines, exactName, nodeHeader, ", ") == plainKey },
	},
	"Tomcat": {
		query: func(target string) bool {
			_, query, _ := strings.Cut(target, "?")
			return first(formValues(strings.Split(query, "&"), "token")) == plainToken
		},
		bearer: func(lines []string) bool {
			m := regexp.MustCompile(`^(?i:Bearer) ([a-zA-Z0-9-._~+/]+=*)$`).
				FindStringSubmatch(oneOf(lines, exactName, first))
			return m != nil && isBearer(m[1])
		},
		header: func(lines []string) bool { return oneOf(lines, exactName, first) == plainKey },
	},
	"PHP": {
		cookie: func(lines []string) bool { return phpCookie(joined(lines, phpName, nodeHeader, "; ")) },
		query: func(target string) bool {
			target, _, _ = strings.Cut(target, "#")
			_, query, _ := strings.Cut(target, "?")
			return phpParameters(strings.Split(query, "&"), "token", plainToken, true)
		},
		bearer: func(lines []string) bool {
			m := regexp.MustCompile(`(?i)Bearer[\t-\r ]+([^\t-\r ]+)`).
				FindStringSubmatch(runes(joined(lines, phpName, nodeHeader, ", ")))
			return m != nil && isBearer(m[1])
		},
		header: func(lines []string) bool { return anyOf(lines, phpName) },
	},
	"lighttpd": {
		header: func(lines []string) bool { return anyOf(lines, phpName) },
	},
	"Rack": {
		query:  rackQuery,
		cookie: func(lines []string) bool { return rackCookie(joined(lines, wsgiName, nodeHeader, ", ")) },
		bearer: func(lines []string) bool {
			f := strings.FieldsFunc(joined(lines, wsgiName, nodeHeader, ", "), isASCIIBlank)
			return len(f) > 1 && strings.EqualFold(f[0], "bearer") && isBearer(f[1])
		},
		header: func(lines []string) bool { return anyOf(lines, wsgiName) },
	},
}

// reads returns what the models of a server read of a form; known is false if there is none for its source.
func (m *model) reads(f Form) (read byte, known bool) {
	if f.Source == Target {
		p, q := m.path != nil && m.path(f.Text), m.query != nil && m.query(f.Text)
		return targetSign(p, q), m.path != nil || m.query != nil
	}
	of := map[Source]func([]string) bool{Cookie: m.cookie, Bearer: m.bearer, Header: m.header}[f.Source]
	if of == nil {
		return none, false
	}
	return sign(of(strings.Split(f.Text, "\n"))), true
}

func isBearer(token string) bool { return strings.HasPrefix(token, plainBearer) }

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

func last(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// runes reads Latin-1.
func runes(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteRune(rune(s[i]))
	}
	return b.String()
}

func utf8Text(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

const jsBlanks = "\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"

func isASCIIBlank(r rune) bool { return '\t' <= r && r <= '\r' || r == ' ' }

func isUnicodeBlank(r rune) bool {
	return isASCIIBlank(r) || r == 0xa0 || r == 0x1680 || 0x2000 <= r && r <= 0x200a || r == 0x2028 || r == 0x2029 ||
		r == 0x202f || r == 0x205f || r == 0x3000
}

func isPython(r rune) bool { return isUnicodeBlank(r) || 0x1c <= r && r <= 0x1f || r == 0x85 }

func isJavaScript(r rune) bool { return isUnicodeBlank(r) || r == 0xfeff }

// percent resolves %XX, and leaves what is malformed.
func percent(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func form(s string) string { return percent(strings.ReplaceAll(s, "+", " ")) }

// nameRule reports whether a name in a line is the wanted one.
type nameRule func(name, wanted string) bool

func exactName(name, wanted string) bool { return strings.EqualFold(name, wanted) }

func wsgiName(name, wanted string) bool {
	return strings.EqualFold(strings.ReplaceAll(name, "-", "_"), strings.ReplaceAll(wanted, "-", "_"))
}

// phpName takes all signs for the same.
func phpName(name, wanted string) bool {
	return len(name) == len(wanted) && strings.EqualFold(strings.Map(func(r rune) rune {
		if r < 0x80 && !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789", r|0x20) {
			return '-'
		}
		return r
	}, name), wanted)
}

func pythonHeader(value string) string { return strings.Trim(value, " \t") }
func flaskHeader(value string) string  { return strings.TrimLeft(value, " \t") }
func nodeHeader(value string) string   { return strings.Trim(value, " \t") }

// valuesOf are the values of the lines whose name is that of one of the sources.
func valuesOf(lines []string, same nameRule) (values []string) {
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		for _, wanted := range names {
			if same(name, wanted) {
				values = append(values, value)
			}
		}
	}
	return values
}

func joined(lines []string, same nameRule, trim func(string) string, by string) string {
	values := valuesOf(lines, same)
	for i := range values {
		values[i] = trim(values[i])
	}
	return strings.Join(values, by)
}

func oneOf(lines []string, same nameRule, which func([]string) string) string {
	return strings.Trim(which(valuesOf(lines, same)), " \t")
}

// anyOf is for servers that read one of several lines, or those that are not empty.
func anyOf(lines []string, same nameRule) bool {
	return slices.ContainsFunc(valuesOf(lines, same), func(v string) bool { return strings.Trim(v, " \t") == plainKey })
}

func fieldsBearer(value string) bool {
	f := strings.FieldsFunc(runes(value), isPython)
	return len(f) > 1 && strings.EqualFold(f[0], "bearer") && isBearer(f[1])
}

var noTabs = strings.NewReplacer("\t", "", "\n", "", "\r", "")

type parts struct{ path, query string }

// pythonURL is urlsplit as gunicorn calls it.
func pythonURL(target string) (p parts) {
	target = noTabs.Replace(strings.TrimLeftFunc(target, func(r rune) bool { return r <= ' ' }))
	doubled := strings.HasPrefix(target, "//")
	if scheme := strings.IndexByte(target, ':'); !doubled && scheme > 0 &&
		regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+.-]*$`).MatchString(target[:scheme]) {
		target = target[scheme+1:]
		if rest, ok := strings.CutPrefix(target, "//"); ok {
			target = rest[strings.IndexAny(rest+"/", "/?#"):]
		}
	}
	target, _, _ = strings.Cut(target, "#")
	p.path, p.query, _ = strings.Cut(target, "?")
	return p
}

// flaskURL is url_parse as Werkzeug's server calls it.
func flaskURL(target string) parts {
	target = strings.TrimFunc(runes(target), isPython)
	target, _, _ = strings.Cut(target, "#")
	p, q, _ := strings.Cut(target, "?")
	return parts{p, q}
}

// formValues are the values of the parameters of a name.
func formValues(pairs []string, wanted string) (values []string) {
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		if form(name) == wanted {
			values = append(values, form(value))
		}
	}
	return values
}

func pythonQuery(query string) []string { return formValues(strings.Split(query, "&"), "token") }

func searchParams(target string) string {
	target = noTabs.Replace(strings.TrimFunc(target, func(r rune) bool { return r <= ' ' }))
	target, _, _ = strings.Cut(target, "#")
	_, query, _ := strings.Cut(target, "?")
	return first(formValues(strings.Split(query, "&"), "token"))
}

// qsQuery is qs, which Express uses.
func qsQuery(target string) bool {
	target, _, _ = strings.Cut(target, "#")
	_, query, _ := strings.Cut(target, "?")
	for _, part := range strings.Split(query, "&") {
		at := strings.Index(part, "]=") + 1
		if at == 0 {
			at = strings.IndexByte(part, '=')
		}
		if at < 0 || form(part[at+1:]) != plainToken {
			continue
		}
		key := form(part[:at])
		parent := key
		segment := regexp.MustCompile(`\[[^\[\]]*\]`).FindStringIndex(key)
		if segment != nil {
			parent = key[:segment[0]]
			if parent == "" {
				parent = key[1 : segment[1]-1]
			}
		}
		if parent == "token" {
			return true
		}
	}
	return false
}

func rackQuery(target string) bool {
	target, _, _ = strings.Cut(target, "#")
	_, query, _ := strings.Cut(target, "?")
	for _, pair := range strings.FieldsFunc(query, func(r rune) bool { return r == '&' || r == ';' }) {
		name, value, _ := strings.Cut(strings.TrimLeft(pair, " "), "=")
		m := regexp.MustCompile(`(?s)^[\[\]]*([^\[\]]+)\]*(.*)$`).FindStringSubmatch(form(name))
		if m != nil && m[1] == "token" && m[2] != "[" && form(value) == plainToken {
			return true
		}
	}
	return false
}

// phpParameters reports whether PHP registers a value under the name, of parameters or cookies.
func phpParameters(pairs []string, wanted, plain string, anyOf bool) bool {
	var values []string
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		name, _, _ = strings.Cut(strings.TrimLeft(form(name), " "), "\x00")
		name, _, _ = strings.Cut(name, "[")
		if strings.NewReplacer(" ", "_", ".", "_").Replace(name) == wanted {
			values = append(values, form(value))
		}
	}
	return anyOf && slices.Contains(values, plain) || first(values) == plain
}

func phpCookie(header string) bool {
	pairs := strings.Split(header, ";")
	for i := range pairs {
		pairs[i] = strings.TrimLeftFunc(pairs[i], isASCIIBlank)
	}
	return phpParameters(pairs, "session", plainSession, true)
}

// pythonCookie is that of Django and Starlette.
func pythonCookie(header string) bool {
	found := ""
	for _, chunk := range strings.Split(header, ";") {
		key, value, ok := strings.Cut(chunk, "=")
		if ok && strings.TrimFunc(key, isPython) == "session" {
			found = pythonUnquote(strings.TrimFunc(value, isPython))
		}
	}
	return found == plainSession
}

func pythonUnquote(s string) string {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return s
	}
	s = s[1 : len(s)-1]
	return regexp.MustCompile(`\\[0-3][0-7][0-7]|\\.`).ReplaceAllStringFunc(s, func(m string) string {
		if len(m) == 4 {
			n, _ := strconv.ParseUint(m[1:], 8, 8)
			return string(rune(n))
		}
		return m[1:]
	})
}

var werkzeugPair = regexp.MustCompile(`^([^=;]*)(?:[\t-\r ]*=[\t-\r ]*("(?:[^\\"]|\\.)*"|.*?))?[\t-\r ]*;`)

func werkzeugCookie(header string) bool {
	for rest := runes(header) + ";"; rest != ""; {
		m := werkzeugPair.FindStringSubmatch(rest)
		if m == nil {
			return false
		}
		rest = rest[len(m[0]):]
		if strings.TrimFunc(m[1], isASCIIBlank) == "session" {
			return pythonUnquote(m[2]) == plainSession
		}
	}
	return false
}

// expressCookie is the package cookie, and cookie-parser after it.
func expressCookie(header string) bool {
	for _, pair := range strings.Split(header, ";") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || strings.TrimFunc(key, isJavaScript) != "session" {
			continue
		}
		value = strings.TrimFunc(value, isJavaScript)
		if strings.HasPrefix(value, `"`) {
			value = value[1:max(len(value)-1, 1)]
		}
		if decoded, err := url.PathUnescape(value); err == nil && utf8.ValidString(decoded) {
			value = decoded
		}
		if text, ok := strings.CutPrefix(value, "j:"); ok {
			var one string
			var list []any
			if json.Unmarshal([]byte(text), &one) == nil {
				value = one
			} else if json.Unmarshal([]byte(text), &list) == nil {
				return slices.Contains(list, any(plainSession))
			}
		}
		return value == plainSession
	}
	return false
}

func rackCookie(header string) bool {
	for _, pair := range strings.Split(header, ";") {
		key, value, _ := strings.Cut(strings.TrimLeft(pair, " "), "=")
		if key == "session" {
			return form(value) == plainSession
		}
	}
	return false
}

// TestModels: what the recorded servers read, their models read. Of what the servers answer without reading it so, the
// models read little.
func TestModels(t *testing.T) {
	recorded, err := Recording()
	testkit.Must(t, err)
	for i, s := range Servers {
		m := models[s.Name]
		missed, more, known := 0, 0, 0
		for _, r := range recorded {
			got, ok := m.reads(r.Form)
			if !ok || r.Read[i] == refuses {
				continue
			}
			known++
			for _, l := range layers {
				switch {
				case l.source != r.Source || l.key == "path" && m.path == nil || l.key == "token" && m.query == nil ||
					l.key == "tenant":
				case l.reads(r.Read[i]) && !l.reads(got):
					missed++
					t.Errorf("%s reads %s of %s, its model does not", s.Name, l.key, r.Form)
				case l.reads(got) && !l.reads(r.Read[i]):
					more++
				}
			}
		}
		if t.Logf("%s: %d forms, the model reads %d more", s.Name, known, more); known == 0 || more > known/8 {
			t.Errorf("%s: the model reads %d of %d forms that the server does not", s.Name, more, known)
		}
	}
}

// FuzzReadings: whatever the models read as the plain request's counts as that, or is denied. Each text is changed by
// up to three of the generator's changes as well.
func FuzzReadings(f *testing.F) {
	for i, form := range Generate(3, 200) {
		f.Add(byte(form.Source), form.Text, uint64(i))
	}
	both := countings(f)
	f.Fuzz(func(t *testing.T, source byte, text string, seed uint64) {
		form := Form{Source(source), text}
		if form.Source != Target && names[form.Source] == "" {
			return
		}
		form = form.changed(seed)
		if !form.Sendable() {
			return
		}
		r := Recorded{form, make([]byte, len(Servers))}
		for i, s := range Servers {
			m := models[s.Name]
			r.Read[i], _ = m.reads(form)
		}
		for _, c := range both {
			c.check(t, r)
		}
	})
}
