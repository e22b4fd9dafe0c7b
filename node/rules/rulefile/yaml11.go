package rulefile

import (
	"encoding/base64"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
)

// envoyproxy/ratelimit reads YAML 1.1, as yaml.v2 does: yes and off are booleans, a repeated key goes over the first,
// and a merge key (<<) goes over what stands before it.

// scalarKind is what YAML 1.1 makes of a scalar.
type scalarKind uint8

const (
	textScalar scalarKind = iota
	nullScalar
	boolScalar
	wholeScalar   // fits an int64
	numberScalar  // any other number
	invalidScalar // what its tag does not allow
)

// scalar11 is a scalar in YAML 1.1.
type scalar11 struct {
	kind   scalarKind
	yes    bool
	whole  int64
	number float64 // of a whole number, too
	text   string  // as written, decoded if it is !!binary
}

// words11 are the plain scalars that are neither text nor written in digits.
var words11 = sync.OnceValue(func() map[string]scalar11 {
	known := make(map[string]scalar11)
	for words, s := range map[string]scalar11{
		"y Y yes Yes YES true True TRUE on On ON":    {kind: boolScalar, yes: true},
		"n N no No NO false False FALSE off Off OFF": {kind: boolScalar},
		"~ null Null NULL":                           {kind: nullScalar},
		".nan .NaN .NAN":                             {kind: numberScalar, number: math.NaN()},
		".inf .Inf .INF +.inf +.Inf +.INF":           {kind: numberScalar, number: math.Inf(+1)},
		"-.inf -.Inf -.INF":                          {kind: numberScalar, number: math.Inf(-1)},
	} {
		for word := range strings.FieldsSeq(words) {
			known[word] = s
		}
	}
	known[""] = scalar11{kind: nullScalar}
	return known
})

// read11 reads a scalar.
func read11(n *yaml.Node) scalar11 {
	const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	s := scalar11{text: n.Value}
	if n.Style&yaml.TaggedStyle == 0 {
		if n.Style&quoted == 0 {
			s = plain11(n.Value)
		}
		return s
	}
	want, ok := map[string]scalarKind{
		"!!bool": boolScalar, "!!int": wholeScalar, "!!float": numberScalar, "!!null": nullScalar,
	}[n.ShortTag()]
	switch plain := plain11(n.Value); {
	case n.ShortTag() == "!!binary":
		data, err := base64.StdEncoding.DecodeString(n.Value)
		if s.text = string(data); err != nil {
			s.kind = invalidScalar
		}
	case n.ShortTag() == "!!timestamp" && !isTimestamp(n.Value):
		s.kind = invalidScalar
	case !ok: // text, or a tag of somebody
	case plain.kind == want:
		s = plain
	case want == numberScalar && plain.kind == wholeScalar:
		s = plain
		s.kind = want
	default:
		s.kind = invalidScalar
	}
	return s
}

// float11 matches what may be a number with a fraction or an exponent.
var float11 = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)

// plain11 reads a scalar without quotes.
func plain11(text string) scalar11 {
	if s, ok := words11()[text]; ok {
		s.text = text
		return s
	}
	s := scalar11{text: text}
	if !strings.ContainsRune("+-.0123456789", rune(text[0])) || isTimestamp(text) {
		return s
	}
	number, err := strconv.ParseFloat(text, 64)
	if text[0] != '.' {
		digits := strings.ReplaceAll(text, "_", "")
		whole, notWhole := strconv.ParseInt(digits, 0, 64)
		if notWhole == nil {
			s.kind, s.whole, s.number = wholeScalar, whole, float64(whole)
			return s
		}
		if large, notLarge := strconv.ParseUint(digits, 0, 64); notLarge == nil {
			s.kind, s.number = numberScalar, float64(large)
			return s
		}
		if !float11.MatchString(digits) {
			return s
		}
		number, err = strconv.ParseFloat(digits, 64)
	}
	if err == nil {
		s.kind, s.number = numberScalar, number
	}
	return s
}

// isTimestamp reports whether a plain scalar is a time, which counts as text.
func isTimestamp(text string) bool {
	if len(text) < len("2006-1-2") || text[4] != '-' {
		return false
	}
	for _, layout := range []string{"2006-1-2T15:4:5.999999999Z07:00", "2006-1-2t15:4:5.999999999Z07:00",
		"2006-1-2 15:4:5.999999999", "2006-1-2"} {
		if _, err := time.Parse(layout, text); err == nil {
			return true
		}
	}
	return false
}

// isPlainNull reports whether a node is the null for which a rate_limit is not there at all: NULL is an empty one.
func isPlainNull(n *yaml.Node) bool {
	if n.Kind != yaml.ScalarNode {
		return false
	}
	return read11(n).kind == nullScalar && (n.Value == "" || n.Value == "~" || n.Value == "null")
}

// isMerge reports whether a key is a merge key.
func isMerge(key *yaml.Node) bool {
	if key.Kind != yaml.ScalarNode || key.Value != "<<" {
		return false
	}
	return key.Style == 0 || key.ShortTag() == "!!merge"
}

// textNode, flagNode and numberNode return a node with a value in place of another one.
func textNode(at *yaml.Node, text string) *yaml.Node { return scalarNode(at, "!!str", text) }
func flagNode(at *yaml.Node, yes bool) *yaml.Node {
	return scalarNode(at, "!!bool", strconv.FormatBool(yes))
}

func numberNode(at *yaml.Node, number int64) *yaml.Node {
	return scalarNode(at, "!!int", strconv.FormatInt(number, 10))
}

func scalarNode(at *yaml.Node, tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value, Line: at.Line, Column: at.Column}
}

func mapNode(at *yaml.Node, content ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: content, Line: at.Line, Column: at.Column}
}

func listNode(at *yaml.Node, content ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: content, Line: at.Line, Column: at.Column}
}
