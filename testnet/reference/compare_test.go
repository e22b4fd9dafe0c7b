package reference

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// answer is what a server answered: the path of each field that is there, and its text. What has its default value is
// not there, as it is not on the wire.
type answer map[string]string

// difference is a field that two answers do not share.
type difference struct{ field, theirs, ours string }

// compare returns the differences in the order of their names.
func compare(theirs, ours answer) (all []difference) {
	fields := make(map[string]bool)
	for field := range theirs {
		fields[field] = true
	}
	for field := range ours {
		fields[field] = true
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if theirs[field] != ours[field] {
			all = append(all, difference{field, theirs[field], ours[field]})
		}
	}
	return all
}

var decisionField = regexp.MustCompile(`^(status code|overall_?code|statuses\[\d+\]\.code)$`)

// decides reports whether the field lets a request pass or denies it.
func (d difference) decides() bool { return decisionField.MatchString(strings.ToLower(d.field)) }

var index = regexp.MustCompile(`\[\d+\]`)

// kind is the field without its indices.
func (d difference) kind() string { return index.ReplaceAllString(d.field, "[]") }

// addMessage adds the fields of a message that are set, unknown ones too.
func (a answer) addMessage(path string, m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := strings.TrimPrefix(path+"."+f.TextName(), ".")
		switch {
		case f.IsList():
			for i := range v.List().Len() {
				a.addValue(fmt.Sprintf("%s[%d]", name, i), f, v.List().Get(i))
			}
		case f.IsMap():
			v.Map().Range(func(key protoreflect.MapKey, v protoreflect.Value) bool {
				a.addValue(fmt.Sprintf("%s[%q]", name, key), f.MapValue(), v)
				return true
			})
		default:
			a.addValue(name, f, v)
		}
		return true
	})
	if unknown := m.GetUnknown(); len(unknown) > 0 {
		a[strings.TrimPrefix(path+".unknown", ".")] = fmt.Sprintf("%x", unknown)
	}
}

func (a answer) addValue(path string, f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		before := len(a)
		if a.addMessage(path, v.Message()); len(a) == before {
			a[path] = "{}"
		}
	case protoreflect.EnumKind:
		a[path] = fmt.Sprint(v.Enum())
		if value := f.Enum().Values().ByNumber(v.Enum()); value != nil {
			a[path] = string(value.Name())
		}
	case protoreflect.StringKind:
		a[path] = text(v.String())
	case protoreflect.BytesKind:
		a[path] = string(v.Bytes())
	default:
		a[path] = fmt.Sprint(v.Interface())
	}
}

// addJSON adds the fields of a document, or the text if it is none.
func (a answer) addJSON(body string) {
	var document any
	if err := json.Unmarshal([]byte(body), &document); err != nil {
		a["body"] = strings.TrimSpace(body)
		return
	}
	a.addElement("", document)
}

func (a answer) addElement(path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, element := range v {
			a.addElement(strings.TrimPrefix(path+"."+name, "."), element)
		}
	case []any:
		for i, element := range v {
			a.addElement(fmt.Sprintf("%s[%d]", path, i), element)
		}
	case string:
		a[path] = text(v)
	default:
		a[path] = fmt.Sprint(v)
	}
}

var printedOverride = regexp.MustCompile(`^(requests_per_unit|unit):`)

// text is the text of a field as it is compared. dynamic_metadata describes an override in the text form of protobuf,
// whose spaces differ from one program to the next so that nobody compares it.
func text(s string) string {
	if printedOverride.MatchString(s) {
		return strings.Join(strings.Fields(s), " ")
	}
	return s
}
