package actions

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// source is where the value of an entry comes from.
type source struct {
	read func(v *view, argument string) (value string, ok bool)
	argument,
	example string // what the argument looks like; empty: it takes none
	target bool // it reads path or query
}

// sources are the kinds of sources, by the first word of how they are written.
var sources = map[string]source{
	"client":   {read: func(v *view, _ string) (string, bool) { return v.clientText(), v.client.IsValid() }},
	"method":   {read: func(v *view, _ string) (string, bool) { return v.method, v.method != "" }},
	"host":     {read: func(v *view, _ string) (string, bool) { return strings.ToLower(v.host), v.host != "" }},
	"path":     {read: func(v *view, _ string) (string, bool) { return v.path, v.path != "" }, target: true},
	"header":   {read: header, example: "header X-Api-Key"},
	"cookie":   {read: cookie, example: "cookie session"},
	"query":    {read: query, example: "query token", target: true},
	"jwt":      {read: jwt, example: "jwt sub"},
	"template": {read: template, example: "template /tenants/{tenant}/*", target: true},
	"text":     {read: func(_ *view, argument string) (string, bool) { return argument, true }, example: "text api"},
}

// parseSource reads how a source is written: its kind, and a blank before its argument if it takes one.
func parseSource(text string) (source, error) {
	kind, argument, _ := strings.Cut(text, " ")
	argument = strings.TrimSpace(argument)
	s, known := sources[kind]
	switch {
	case !known:
		return source{}, fmt.Errorf("%q: want client, method, host, path, header NAME, cookie NAME, query NAME, jwt CLAIM, template PATH or text VALUE", text)
	case s.example == "" && argument != "":
		return source{}, fmt.Errorf("%q: %s stands alone", text, kind)
	case s.example != "" && argument == "":
		return source{}, fmt.Errorf("%q: write it as in %q", text, s.example)
	}
	if kind == "header" {
		argument = http.CanonicalHeaderKey(argument)
	}
	if kind == "template" {
		if err := checkTemplate(argument); err != nil {
			return source{}, err
		}
	}
	s.argument = argument
	return s, nil
}

// header is the value of a header that stands there once. One that was sent several times could mean one to this node and another to
// who reads it next.
func header(v *view, name string) (string, bool) {
	value := only(v.header[name])
	return value, value != ""
}

func cookie(v *view, name string) (string, bool) {
	r := http.Request{Header: v.header}
	found := r.CookiesNamed(name)
	if len(found) != 1 || found[0].Value == "" {
		return "", false
	}
	return found[0].Value, true
}

func query(v *view, name string) (string, bool) {
	values, err := url.ParseQuery(v.query)
	if err != nil {
		return "", false
	}
	value := only(values[name])
	return value, value != ""
}

// only is the value that stands alone in a list; nothing if there are none or several.
func only(list []string) string {
	if len(list) != 1 {
		return ""
	}
	return list[0]
}
