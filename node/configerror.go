package node

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/node/text"
)

// The YAML reader knows what is wrong with a setting by its line alone, and by the types of this program. Here that
// becomes a place in the file, with the line, and what to write there.

// renamed are settings of earlier versions, and what takes their places.
var renamed = map[string]string{"max_keys": "memory, a budget in bytes as in 256MiB, takes its place",
	"start_without": "start_without_rules, beside rules_xds, takes its place"}

// forms say how values of a type are written.
var forms = map[string]string{
	"time.Duration": "a duration such as 100ms", "[]string": "a list such as [a, b]", "bool": "true or false",
	"int": "a whole number", "float64": "a number", "string": "text", "map[string]string": "pairs such as {env: prod}",
	"rules.Failure": "open, closed or local",
}

// configErrors takes apart what the YAML reader said of a configuration file.
func configErrors(file string, data []byte, err error) error {
	var list []string
	if all, ok := errors.AsType[*yaml.TypeError](err); ok {
		list = all.Errors
	} else if strings.HasPrefix(err.Error(), "line ") { // of a Size, or a descriptor
		list = []string{err.Error()}
	} else {
		e := rulefile.SyntaxError(file, data, err)
		e.Source = presentable(e.Source)
		return e
	}
	lines := strings.Split(string(data), "\n")
	errs := make([]error, len(list))
	for i, text := range list {
		e := &rulefile.Error{File: file, Line: 1, Column: 1, Reason: text}
		if n, _ := fmt.Sscanf(text, "line %d: ", &e.Line); n == 1 {
			_, e.Reason, _ = strings.Cut(text, ": ")
		}
		if e.Line <= len(lines) {
			e.Source = strings.TrimSuffix(lines[e.Line-1], "\r")
		}
		explainSetting(e)
		e.Source = presentable(e.Source)
		errs[i] = e
	}
	return errors.Join(errs...)
}

// explainSetting says of one problem what to write, and finds its column.
func explainSetting(e *rulefile.Error) {
	var word, structure string
	if n, _ := fmt.Sscanf(e.Reason, "field %s not found in type %s", &word, &structure); n == 2 {
		e.Reason = fmt.Sprintf("unknown setting %q: %s", word, cmp.Or(renamed[word], meantSetting(word, structure),
			"edgelimit serve --print-config shows those that there are"))
	} else if n, _ := fmt.Sscanf(e.Reason, "mapping key %q already defined", &word); n == 1 {
		e.Reason = word + " was already given above"
	} else if given, found := strings.CutPrefix(e.Reason, "cannot unmarshal "); found {
		parts := strings.Split(given, " into ")
		_, word, _ = strings.Cut(given, "`") // the value, which may end with ...`
		word, _, _ = strings.Cut(word, "`")
		word = strings.TrimSuffix(word, "...")
		e.Reason = "want " + cmp.Or(forms[parts[len(parts)-1]],
			"settings of its own, as edgelimit serve --print-config shows them")
	}
	at := strings.Index(e.Source, word)
	if at <= 0 || word == "" {
		at = len(e.Source) - len(strings.TrimLeft(e.Source, " \t"))
	}
	e.Column = 1 + utf8.RuneCountInString(e.Source[:at])
}

// meantSetting suggests what an unknown key of a struct may have been meant to be; empty if nothing is near.
func meantSetting(word, structure string) string {
	keys, path := make(map[string][]string), "" // the keys of each struct; where a setting of that name is
	var collect func(t reflect.Type, prefix string)
	collect = func(t reflect.Type, prefix string) {
		for f := range t.Fields() {
			key := f.Tag.Get("yaml")
			if key == "-" {
				continue
			}
			keys[t.String()] = append(keys[t.String()], key)
			if key == word {
				path = prefix + key
			}
			inner, named := f.Type, ""
			switch inner.Kind() {
			case reflect.Slice:
				inner = inner.Elem()
			case reflect.Map:
				inner, named = inner.Elem(), "NAME."
			}
			if inner.Kind() == reflect.Struct {
				collect(inner, prefix+key+"."+named)
			}
		}
	}
	collect(reflect.TypeFor[Config](), "")
	if guess := rules.Nearest(word, keys[structure]); guess != "" {
		return fmt.Sprintf("did you mean %q?", guess)
	}
	if path != "" {
		return fmt.Sprintf("did you mean %s?", path)
	}
	return ""
}

// userinfo is a name and password in a URL.
var userinfo = regexp.MustCompile(`://[^\s/@]*@`)

// presentable is a line as it may be shown: short, without what a terminal would obey, and without passwords.
func presentable(line string) string {
	line = userinfo.ReplaceAllStringFunc(line, func(s string) string {
		return "://" + strings.Repeat("*", utf8.RuneCountInString(s)-len("://@")) + "@"
	})
	parts := strings.Split(line, "\t")
	for i := range parts {
		parts[i] = text.Clean(parts[i])
	}
	shown := []rune(strings.Join(parts, "\t"))
	const maxExcerpt = 80
	return string(shown[:min(len(shown), maxExcerpt)])
}
