package node

import (
	"encoding/json"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/node/status"
	"github.com/edgelimit/edgelimit/node/text"
)

// Layer is a configuration as it was after one source of settings had been read over the one before it.
type Layer struct {
	From   string // file, environment or flag
	Config Config
}

// Settings returns the effective configuration by name, with where each value comes from: the last layer of
// Config.Layers that changed it. What is neither of a layer nor the default comes from the program. Secrets are masked.
func (n *Node) Settings() ([]status.Setting, error) {
	before := flatten(DefaultConfig())
	from := make(map[string]string)
	for name := range before {
		from[name] = "default"
	}
	read := func(source string, cfg Config) map[string]string {
		now := flatten(cfg)
		for name, value := range now {
			if before[name] != value {
				from[name] = source
			}
		}
		before = now
		return now
	}
	for _, l := range n.cfg.Layers {
		read(l.From, l.Config)
	}
	var all []status.Setting
	for name, value := range read("program", n.cfg) {
		all = append(all, status.Setting{Name: name, Value: json.RawMessage(value), From: from[name]})
	}
	slices.SortFunc(all, func(a, b status.Setting) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// flatten returns the settings of a configuration in JSON, by their names in the configuration file.
func flatten(cfg Config) map[string]string {
	all := make(map[string]string)
	flattenStruct("", reflect.ValueOf(cfg), all)
	return all
}

func flattenStruct(prefix string, v reflect.Value, into map[string]string) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		switch f := v.Field(i); {
		case name == "-" || !field.IsExported():
		case field.Type.Kind() == reflect.Struct && options == "inline":
			flattenStruct(prefix, f, into)
		case field.Type.Kind() == reflect.Struct && field.Type.NumField() > 0 &&
			field.Type.Field(0).Tag.Get("yaml") != "":
			flattenStruct(prefix+name+".", f, into)
		default:
			text, err := json.Marshal(shown(name, f))
			if err != nil {
				text = []byte("null")
			}
			into[prefix+name] = string(text)
		}
	}
}

// shown returns a value for JSON: durations and sizes as they are written, and secrets masked.
func shown(name string, v reflect.Value) any {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil
		}
		return shown(name, v.Elem())
	case reflect.Slice:
		all := []any{}
		for i := range v.Len() {
			if name == "command" && i > 0 { // an argument may be a credential
				return append(all, mask)
			}
			all = append(all, shown(name, v.Index(i)))
		}
		return all
	case reflect.Map:
		all := make(map[string]any)
		for entries := v.MapRange(); entries.Next(); {
			key := entries.Key().String()
			if name == "headers" || name == "metadata" { // any may be a credential
				all[key] = mask
				continue
			}
			all[key] = shown(key, entries.Value())
		}
		return all
	case reflect.String:
		return masked(name, v.String())
	}
	switch value := v.Interface().(type) {
	case time.Duration:
		return text.Setting(value)
	case interface{ String() string }:
		return masked(name, value.String())
	}
	if v.Kind() != reflect.Struct {
		return v.Interface()
	}
	fields := make(map[string]string)
	flattenStruct("", v, fields)
	all := make(map[string]any)
	for key, text := range fields {
		all[key] = json.RawMessage(text)
	}
	return all
}

const mask = "***"

// masked returns a text without what may be a secret in it: the value of a setting that is called so, and passwords
// and parameters in URLs.
func masked(name, text string) string {
	if text == "" || strings.HasSuffix(name, "_file") {
		return text
	}
	for _, word := range []string{"password", "secret", "token", "credential", "authorization", "api_key"} {
		if strings.Contains(strings.ToLower(name), word) {
			return mask
		}
	}
	if !strings.Contains(text, "://") && !strings.Contains(text, "@") {
		return text
	}
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		scheme, rest = "", text
	} else {
		scheme += "://"
	}
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		user, _, _ := strings.Cut(rest[:at], ":")
		if u, err := url.PathUnescape(user); err != nil || u == "" || !strings.Contains(rest[:at], ":") {
			user = mask
		} else {
			user += ":" + mask
		}
		rest = user + rest[at:]
	}
	if question := strings.IndexByte(rest, '?'); question >= 0 {
		rest = rest[:question] + "?" + mask
	}
	return scheme + rest
}
