package rulefile

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// object and list are parts of a JSON Schema.
type (
	object = map[string]any
	list   = []any
)

// Schema returns the JSON Schema (draft 2020-12) of a document of a rule file, for editors.
func Schema() []byte {
	text, err := json.MarshalIndent(object{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"$id":     "https://github.com/edgelimit/edgelimit/node/rules/schema.json",
		"title":   "Rules of edgelimit",
		"description": "One document of a rule file: a domain in the form of envoyproxy/ratelimit, or rules in the " +
			"flat form. What only holds between several places, such as names that must not be given twice, is left " +
			"to edgelimit rules validate.",
		"if":   object{"type": "array"},
		"then": ref("rules"),
		"else": object{
			"if":   object{"type": "object", "anyOf": list{required("domain"), required("descriptors")}},
			"then": ref("document"),
			"else": ref("rule"),
		},
		"$defs": definitions(),
	}, "", " ")
	if err != nil {
		panic(err) // the tables are part of the program
	}
	return append(text, '\n')
}

func definitions() object {
	text := list{"string", "number", "boolean"}
	descriptor := closed(descriptorKeys, "key")
	needsLimit := list{"rate_limit"}
	descriptor["dependentRequired"] = object{"schedule": needsLimit, "allow": needsLimit, "deny": needsLimit}
	refill := closed(refillKeys, "amount", "every")
	refill["description"] = "What comes back into a bucket, in place of a window."
	return object{
		"text": object{"type": text},
		"name": object{"type": text, "minLength": 1},
		"clock": object{
			"type": "string", "pattern": "^([0-9]|[01][0-9]|2[0-3]):[0-5][0-9]$|^24:00$",
			"description": `A time of day, as in "06:00".`,
		},
		"addresses": object{
			"type": list{"array", "null"}, "items": object{"type": "string"},
			"description": "Addresses, and prefixes of them. The longest prefix that holds an address decides: allow " +
				"is never limited nor counted, deny is always denied.",
		},
		"refill":      refill,
		"rate_limit":  treeForm.schema(closed(rateLimitKeys), "parent"),
		"descriptors": listOf(ref("descriptor")),
		"descriptor":  descriptor,
		"document":    closed(documentKeys, "domain"),
		"rule":        flatForm.schema(closed(flatKeys, "rule_id"), "schedule"),
		"rules":       object{"type": "array", "items": ref("rule")},
	}
}

// schema adds to the schema of a rule which of its keys exclude or need one another. An unlimited rule has none of a
// limit's keys but the number, nor the key that is named.
func (fm *form) schema(rule object, alsoLimited string) object {
	limited := append(fm.limitKeys().names(), alsoLimited)
	limited = slices.DeleteFunc(limited, func(k string) bool { return k == fm.max })
	windows := list{}
	for _, name := range append(fm.windows.names(), "refill") {
		windows = append(windows, required(name))
	}
	hasCapacity := required("refill")
	hasCapacity["anyOf"] = list{required("burst"), required("max_wait")}
	all := list{
		object{"oneOf": windows},
		object{"if": hasCapacity, "then": without(fm.max), "else": required(fm.max)},
		object{
			"if": required("soft_percent"), "then": with("mode", "soft"),
			"else": object{"properties": object{"mode": object{"enum": list{"hard", "elastic", "throttle"}}}},
		},
		object{"if": with("scope", "node"), "then": without("on_partition", "on_failure", "max_unsent")},
		object{"if": required("max_pressure"), "then": with("mode", "elastic")},
		object{"if": with("mode", "elastic"),
			"then": without("cost", "ban", "count_rejected", "charge_on", "cost_from")},
		object{"if": object{"anyOf": list{required("charge_on"), required("cost_from")}},
			"then": without("queue", "count_rejected", "charge", "overdraw")},
		object{"if": required("cost_from"), "then": without("ban")},
		object{"if": object{"allOf": list{required("charge_on"), with("consistency", "strict")}},
			"then": without("ban")},
		object{"if": with("mode", "throttle"), "then": object{
			"allOf":      list{required("max_delay", "algorithm"), without("queue", "charge_on", "cost_from")},
			"properties": object{"algorithm": object{"enum": list{"token_bucket", "leaky_bucket", "gcra"}}},
		}, "else": without("max_delay")},
		object{"if": with("consistency", "strict"), "then": strictSchema(), "else": without("home_region", "lease")},
		object{"if": required("lease"), "then": without(unleased...)},
		object{"if": required("max_wait"), "then": object{"allOf": list{with("queue", true), without("burst")}}},
	}
	if fm == treeForm {
		borrows := with("mode", "elastic")
		borrows["properties"].(object)["max_pressure"] = never
		all = append(all, object{"if": required("parent"), "then": borrows})
	}
	rule["if"], rule["then"], rule["else"] = with("unlimited", true), without(limited...), object{"allOf": all}
	return rule
}

// strictSchema is that of a strict rule.
func strictSchema() object {
	return object{
		"allOf": list{without("on_partition", "max_unsent")},
		"properties": object{
			"mode":   object{"enum": list{"hard", "soft", "throttle"}},
			"scope":  object{"enum": list{"global", "region"}},
			"charge": object{"const": "all"},
		},
		"if": with("scope", "region"), "then": without("home_region"), "else": required("home_region"),
	}
}

// never is the schema of no value at all.
var never = object{"not": object{}}

// durationSchema is that of what time.ParseDuration reads, but for negative ones.
var durationSchema = object{"type": "string", "pattern": `^[+]?([0-9]*\.?[0-9]+(ns|us|µs|ms|s|m|h))+$`}

func ref(definition string) object { return object{"$ref": "#/$defs/" + definition} }

func required(names ...string) object { return object{"required": names} }

// with is the schema of an object whose key has a value.
func with(name string, value any) object {
	return object{"required": list{name}, "properties": object{name: object{"const": value}}}
}

// without is the schema of an object that has none of the keys.
func without(names ...string) object {
	properties := object{}
	for _, name := range names {
		properties[name] = never
	}
	return object{"properties": properties}
}

// closed is the schema of an object with these keys and no others.
func closed(known keys, needed ...string) object {
	properties := object{}
	for _, k := range known {
		value := maps.Clone(k.value)
		if k.doc != "" {
			value["description"] = k.doc
		}
		properties[k.name] = value
	}
	o := object{"type": "object", "additionalProperties": false, "properties": properties}
	if len(needed) > 0 {
		o["required"] = needed
	}
	return o
}

func listOf(items object) object { return object{"type": list{"array", "null"}, "items": items} }

func integer(name string) object {
	return object{"type": "integer", "minimum": ranges[name].min, "maximum": ranges[name].max}
}

// words is the schema of a key's choices.
func words(name string) object { return object{"enum": choices[name]} }

// unitSchema accepts the units in small letters, which editors suggest, and in any others.
func unitSchema() object {
	var names, patterns []string
	for _, u := range units {
		var pattern strings.Builder
		for _, c := range u.name {
			pattern.WriteString("[" + string(unicode.ToUpper(c)) + string(c) + "]")
		}
		names, patterns = append(names, u.name), append(patterns, pattern.String())
	}
	anyCase := object{"type": "string", "pattern": "^(" + strings.Join(patterns, "|") + ")$"}
	return object{"anyOf": list{object{"enum": names}, anyCase}}
}
