package evasion

import (
	_ "embed"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"text/template"
)

// Variations are all forms, each with a name of its own.
func Variations() []Variation {
	single := [][]Variation{headers("X-Api-Key", "api_key"), headers("Cookie", "session"),
		headers("Authorization", "sub"), queries(), paths(), others()}
	return append(slices.Concat(single...), pairs(single[:4])...)
}

// pairs are forms in which two sources are varied: each form of a family, with one of each other family after it.
func pairs(families [][]Variation) (all []Variation) {
	names := []string{"X-Api-Key", "Cookie", "Authorization"} // the line that a family varies; the last: the target
	for f, family := range families {
		for g := f + 1; g < len(families); g++ {
			for i, first := range family {
				second := families[g][i*7%len(families[g])]
				all = append(all, first.with(first.Name+" and "+second.Name, func(v *Variation) {
					v.Loses = append(v.Loses, second.Loses...)
					if g == len(names) {
						v.Target = second.Target
						return
					}
					v.set(names[g], linesAbout(second, names[g])...)
				}))
			}
		}
	}
	return all
}

// linesAbout are the lines that took the place of the plain request's line of a name.
func linesAbout(v Variation, name string) []string {
	plain := Plain().Lines
	at := slices.IndexFunc(plain, func(line string) bool { return strings.HasPrefix(line, name+":") })
	return v.Lines[at : len(v.Lines)-(len(plain)-at-1)]
}

//go:embed forms.txt
var formsText string

// forms are the lines of forms.txt by their sections.
var forms = func() map[string][]string {
	encode := func(e *base64.Encoding) func(string) string {
		return func(s string) string { return e.EncodeToString([]byte(s)) }
	}
	functions := template.FuncMap{
		"repeat": func(n int, text string) string { return strings.Repeat(text, n) },
		"numbered": func(n int, format, separator string) string { // with the numbers from 1 to n
			all := make([]string, n)
			for i := range all {
				all[i] = fmt.Sprintf(format, i+1)
			}
			return strings.Join(all, separator)
		},
		"base64": encode(base64.StdEncoding), "base64url": encode(base64.URLEncoding),
		"rawBase64": encode(base64.RawStdEncoding), "rawBase64url": encode(base64.RawURLEncoding),
	}
	var text strings.Builder
	tokens := struct{ Ann, Bob string }{strings.TrimPrefix(Bearer, "Bearer "), Token(`{"sub":"bob"}`)}
	err := template.Must(template.New("forms.txt").Funcs(functions).Parse(formsText)).Execute(&text, tokens)
	if err != nil {
		panic(err)
	}
	sections := make(map[string][]string)
	for _, section := range strings.Split(text.String(), "\n== ")[1:] {
		lines := strings.Split(strings.Trim(section, "\n"), "\n")
		sections[lines[0]] = lines[1:]
	}
	return sections
}()

// vary is a variation for each form of a section, of which those with a hyphen lose the layer.
func vary(section, layer string, change func(v *Variation, form string)) (all []Variation) {
	for _, form := range forms[section] {
		form, loses := strings.CutPrefix(form, "-")
		v := Plain()
		change(&v, form)
		if loses {
			v.Loses = []string{layer}
		}
		all = append(all, v)
	}
	return all
}

// headers are forms of a header's line.
func headers(name, layer string) []Variation {
	return vary(name, layer, func(v *Variation, form string) {
		lines := strings.Split(form, " | ")
		v.Name = name + ": " + lines[0]
		v.set(name, lines[1:]...)
	})
}

func queries() []Variation {
	return vary("query", "token", func(v *Variation, form string) {
		v.Name = fmt.Sprintf("query: %.40q of %d bytes", form, len(form))
		v.Target = "/tenants/acme/login?" + form
	})
}

func paths() []Variation {
	return vary("path", "tenant", func(v *Variation, form string) {
		v.Name = fmt.Sprintf("path: %.60q of %d bytes", form, len(form))
		sign := "?"
		if strings.Contains(form, "?") {
			sign = "&"
		}
		v.Target = form + sign + "page=2&token=t1"
	})
}

// others are forms of method and host, and headers that concern none of the layers, or pretend to.
func others() []Variation {
	all := vary("method", "method", func(v *Variation, form string) { v.Name, v.Method = "method: "+form, form })
	all = append(all, vary("host", "", func(v *Variation, form string) { v.Name, v.Host = "host: "+form, form })...)
	for _, line := range forms["more"] {
		all = append(all,
			Plain().with("more: "+line, func(v *Variation) { v.Lines = append(v.Lines, line) }),
			Plain().with("more, first: "+line, func(v *Variation) { v.Lines = slices.Insert(v.Lines, 0, line) }))
	}
	all = append(all, vary("parameters of /v1/auth", "", func(v *Variation, form string) {
		v.Name, v.Target = "parameters of /v1/auth: "+form, strings.Replace(v.Target, "?", "?"+form, 1)
	})...)
	return append(all, Plain().with("lines backwards", func(v *Variation) { slices.Reverse(v.Lines) }))
}
